//! `haul forward pvp` with switches that load a library: what is refused before anything starts,
//! and that the library reaches the switch alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use haul_model::Record;

use crate::forward::{OPEN_VSWITCH, has_testpmd, has_two_processors, of, pvp};
use crate::{haul, run};

/// Prints what the library of haul's ring prints, and leaves a file named after each process that
/// loads it.
const REPORTS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static int is_asked(void) {
    const char *asked = getenv("HAUL_RTE_VHOST");
    return asked != NULL && strcmp(asked, "tell") == 0;
}
__attribute__((constructor)) static void start(void) {
    char name[17] = "", path[4096];
    prctl(PR_GET_NAME, name);
    snprintf(path, sizeof path, "%s/%s-%d", FOLDER, name, is_asked());
    close(open(path, O_CREAT | O_WRONLY, 0600));
}
__attribute__((destructor)) static void end(void) {
    if (is_asked())
        fprintf(stderr, "haul: rte_vhost: /vm: served %d packets, handed 2 to DPDK\n", SERVED);
}
"#;

/// Builds the library at this path. It names its processes in `folder`.
fn build(library: &Path, folder: &Path, served: u32) {
    let source = library.with_extension("c");
    fs::write(&source, REPORTS).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1"]);
    compiler.arg(format!("-DFOLDER=\"{}\"", folder.display())).arg(format!("-DSERVED={served}"));
    assert!(compiler.arg("-o").args([library, &source]).status().unwrap().success());
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The rate of this subject.
fn rate<'a>(records: &'a [Record], subject: &str) -> &'a Record {
    let all = of(records, "rate_peak", &[]);
    let mut own = all.into_iter().filter(|record| record.subject == subject);
    let first = own.next().unwrap_or_else(|| panic!("no {subject}: {records:#?}"));
    assert!(own.next().is_none() && first.median().unwrap() > 0.0, "{records:#?}");
    first
}

#[test]
fn pvp_refuses_libraries_that_no_switch_could_load() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut header = fs::read(env!("CARGO_BIN_EXE_haul")).unwrap();
    header.truncate(64);
    header[4] = 3 - header[4];
    fs::write(at("class.so"), &header).unwrap();
    fs::write(at("text.so"), "memcpy").unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::create_dir(at("class")).unwrap();
    fs::write(at("class/librte_vhost.so.23"), &header).unwrap();
    assert!(Command::new("mkfifo").arg(at("fifo.so")).status().unwrap().success());
    let (a, b) = (at("a,b.so"), at("a b.so"));
    fs::copy(at("class.so"), &a).unwrap();
    fs::copy(at("class.so"), &b).unwrap();
    for (library, parts) in [
        (format!("ovs:preload={}", at("missing.so")), &["ovs:preload", "No such file"][..]),
        (format!("testpmd:preload={}", at("empty")), &["testpmd:preload", "is not a file"]),
        (format!("ovs:preload={}", at("fifo.so")), &["is not a file"]),
        (format!("ovs:preload={}", at("text.so")), &["is not an ELF file"]),
        (format!("ovs:preload={}", at("class.so")), &["another loader"]),
        (format!("ovs:preload={a}"), &["--switch", "a path with a comma"]),
        (format!("ovs:preload={b}"), &["contains ' '", "make a link"]),
        (format!("ovs:lib={}", at("missing")), &["ovs:lib", "No such file"]),
        (format!("ovs:lib={}", at("text.so")), &["Not a directory"]),
        (format!("ovs:lib={}", at("empty")), &["has no librte_vhost.so", "rebuild"]),
        (format!("ovs:lib={}", at("class")), &["another loader"]),
        ("ovs:lib=".into(), &["is empty"]),
        ("ovs:load=a".into(), &["ovs:lib=DIR"]),
        ("haul:preload=a".into(), &["--copy"]),
    ] {
        let switch = format!("haul,{library}");
        let ran = run(&mut haul(&["forward", "pvp", "--sizes", "64", "--switch", &switch]));
        ran.expect(2).says(parts);
    }
}

#[test]
fn library_reaches_open_vswitch_alone() {
    if !has_two_processors() {
        return;
    }
    if !Path::new(OPEN_VSWITCH).exists() {
        eprintln!(
            "SKIPPED: Open vSwitch with a library: no file {OPEN_VSWITCH}: \
             apt-get install openvswitch-switch-dpdk"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (marks, own) = (folder.path().join("marks"), folder.path().join("own"));
    for folder in [&marks, &own] {
        fs::create_dir(folder).unwrap();
    }
    let ring = folder.path().join("libhaul_rte_vhost.so");
    build(&ring, &marks, 5);
    // The installed library at another path, as a rebuilt one would be.
    let (file, installed) = installed_vhost();
    fs::copy(installed, own.join(&file)).unwrap();
    let (ring, own) = (ring.display().to_string(), own.display().to_string());
    let switch = format!("ovs,ovs:lib={own},ovs:preload={ring}");
    let records = pvp(&["--sizes", "64", "--switch", &switch]).expect(0).records();
    let loaded = rate(&records, "ovs+haul");
    assert_eq!(loaded.comparison.as_ref().unwrap().baseline, "ovs");
    assert_eq!(loaded.parameters["served"].as_bool(), Some(true), "{loaded:#?}");
    assert_eq!(loaded.parameters["copy"], "haul");
    assert!(loaded.parameters["note"].as_str().unwrap().contains("handed 28.571%"), "{loaded:#?}");
    let swapped = rate(&records, "ovs+own");
    assert_eq!(swapped.parameters["library"], format!("lib={own}"));
    assert!(!swapped.parameters.contains_key("served"), "{swapped:#?}");
    assert!(!rate(&records, "ovs").parameters.contains_key("library"));
    assert_eq!(names_in(&marks), ["ovs-vswitchd-dp-1"], "processes that loaded it");

    let twice = format!("ovs,ovs:lib={own},ovs:lib={own}/../own");
    pvp(&["--sizes", "64", "--switch", &twice]).expect(2).says(&["two switches named ovs+own"]);
    // A version that the switch does not need is not loaded.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    symlink(format!("{own}/{file}"), other.join("librte_vhost.so.1")).unwrap();
    let foreign = format!("ovs,ovs:lib={}", other.display());
    let ran = pvp(&["--sizes", "64", "--switch", &foreign]);
    ran.expect(0).says(&["ovs+other", "did not load"]);
}

/// The installed librte_vhost: its name and its path.
fn installed_vhost() -> (String, PathBuf) {
    let output = Command::new("ldd").arg(OPEN_VSWITCH).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("librte_vhost.so")).unwrap();
    let (name, rest) = line.trim().split_once(" => ").unwrap();
    (name.to_owned(), rest.split(" (").next().unwrap().into())
}

#[test]
fn library_that_serves_nothing_is_named() {
    if !has_two_processors() || !has_testpmd() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let ring = folder.path().join("libhaul_rte_vhost.so");
    build(&ring, &marks, 0);
    let switch = format!("testpmd,testpmd:preload={}", ring.display());
    let ran = pvp(&["--sizes", "64", "--switch", &switch, "--guest", "testpmd"]).expect(0);
    let records = ran.records();
    ran.says(&["whose library served no packet"]);
    let loaded = rate(&records, "testpmd+haul");
    assert_eq!(loaded.parameters["served"].as_bool(), Some(false), "{loaded:#?}");
    assert_eq!(loaded.comparison.as_ref().unwrap().baseline, "testpmd");
    // The guest is testpmd too, but has no library.
    assert_eq!(names_in(&marks), ["dpdk-testpmd-1"], "processes that loaded it");
    assert!(!rate(&records, "testpmd").parameters.contains_key("served"));
}

/// Open vSwitch's counters of bytes are compared with the bytes of the guest's packets, so that a
/// packet that was cut would be seen.
#[test]
fn packets_of_9000_bytes_pass_each_switch_and_guest() {
    if !has_two_processors() || !has_testpmd() {
        return;
    }
    let has_ovs = Path::new(OPEN_VSWITCH).exists();
    if !has_ovs {
        eprintln!(
            "SKIPPED: long packets through Open vSwitch: no file {OPEN_VSWITCH}: \
             apt-get install openvswitch-switch-dpdk"
        );
    }
    for (switch, layout, buffers, stated) in [
        ("haul", "split", &[][..], "several"),
        ("haul", "packed", &[], "several"),
        ("haul", "packed-vector", &[], "one"),
        ("testpmd", "packed-in-order", &["--set", "buffers=one"], "one"),
        ("ovs", "packed", &[], "several"),
        ("ovs", "split-vector", &[], "one"),
    ] {
        if switch == "ovs" && !has_ovs {
            continue;
        }
        let counts = ["--set", "ovs_port=dpdkvhostuserclient"];
        let port = if switch == "ovs" { &counts[..] } else { &[] };
        let layout = format!("layout={layout}");
        let own = ["--switch", switch, "--guest", "testpmd", "--set", &layout];
        let of_size = ["--sizes", "9000", "--copy", "haul"];
        let records = pvp(&[&of_size[..], &own, port, buffers].concat()).expect(0).records();
        let own = rate(&records, switch);
        assert_eq!(own.shown("buffers").as_deref(), Some(stated), "{own:#?}");
        let miscounted = of(&records, "miscounted", &[]);
        assert_eq!(miscounted.len(), usize::from(switch == "ovs"), "{records:#?}");
        // One restart of each of the baseline's two series.
        assert!(miscounted.iter().all(|it| it.samples == [0.0; 2]), "{miscounted:#?}");
    }
}

#[test]
fn other_flows_take_packets_of_9000_bytes() {
    if !has_two_processors() || !has_testpmd() {
        return;
    }
    let long = ["--sizes", "9000", "--switch", "testpmd"];
    for (flow, guest, buffers) in [
        ("enqueue", "testpmd", &[][..]),
        ("dequeue", "testpmd", &[]),
        ("dequeue", "testpmd", &["--set", "buffers=one"]),
        ("return", "haul", &[]),
    ] {
        let own = ["--flow", flow, "--guest", guest];
        let records = pvp(&[&long[..], &own, buffers].concat()).expect(0).records();
        assert!(rate(&records, "testpmd").median().unwrap() > 0.0, "{flow}: {records:#?}");
    }
}
