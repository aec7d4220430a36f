//! A kernel's own virtio driver behind the vhost port: `scripts/vhost-guest` for a few seconds, and
//! as the guest of `haul forward pvp`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::forward::{has_two_processors, of, pid, processes_of, pvp, turn, value};
use crate::{LIMIT, Ran, finish, haul, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether all that a guest needs is installed; if not, prints the skip.
fn is_here() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("busybox", "busybox-static")]
    {
        if !std::env::split_paths(&folders).any(|folder| folder.join(tool).is_file()) {
            eprintln!("SKIPPED: a guest's kernel: no {tool} on PATH: apt-get install {package}");
            return false;
        }
    }
    let kept = "target/pcie-guest/bridge.ko";
    let is_kept = root().join(kept).exists();
    if !is_kept {
        eprintln!("SKIPPED: a guest's kernel: no file {kept}: scripts/pcie-guest --fetch");
    }
    is_kept
}

#[test]
fn kernel_driver_passes_traffic_and_survives_restart_of_haul() {
    if !is_here() {
        return;
    }
    let mut command = Command::new(root().join("scripts/vhost-guest"));
    command.arg("2").env("HAUL", env!("CARGO_BIN_EXE_haul"));
    let tcp_bytes: u64 = 10_000_000;
    command.env("HAUL_GUEST_TCP_BYTES", tcp_bytes.to_string());
    // The script has its own limits.
    let ran = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) };
    let ran = ran.expect(0);
    let value = |what: &str, name: &str| -> u64 {
        let line = ran.out.lines().find(|line| line.starts_with(what));
        let mut words = line.into_iter().flat_map(str::split_whitespace);
        let word = words.find_map(|word| word.strip_prefix(name));
        let number = word.and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no {name} of {what}: {ran:#?}"))
    };
    assert!(value("files", "whole=") > 0 && value("files", "torn=") == 0, "{ran:#?}");
    assert!(value("restarted", "rx=") > 0, "{ran:#?}");
    let streams = |name: &str| value("streams", name);
    assert!(streams("bytes=") >= tcp_bytes && streams("torn=") == 0, "{ran:#?}");
    // The guest left the division of long packets to its card, which passed them on undivided.
    assert!(streams("packets=") < tcp_bytes / 1460 / 2, "{ran:#?}");
    // All packets that were made while there was a link entered the ring, and all packets in the
    // ring arrived.
    let of = |name: &str| value("generator", name);
    let (sent, came) = (of("sent="), of("came="));
    assert!(
        came > of("foreign=") && of("made=") == sent + of("no_link=") + of("full="),
        "{ran:#?}"
    );
    // The guest's kernel may also send a packet of its own, which has no number.
    let returned = came - of("foreign=");
    assert!(returned <= sent && of("duplicates=") == 0, "{ran:#?}");
    // The driver received what haul put into the ring. The driver counts its sent packets when it
    // clears the buffers, including packets that were sent before.
    let (rx, tx) = (value("driver", "rx="), value("driver", "tx="));
    assert_eq!(rx, sent, "{ran:#?}");
    assert!(tx >= came, "{ran:#?}");
}

/// The guest of a flow, made by the script; `None` if that fails.
fn image() -> Option<(TempDir, String)> {
    if !is_here() || !has_two_processors() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let mut script = Command::new(root().join("scripts/vhost-guest"));
    run(script.args(["--image", &path])).expect(0);
    Some((folder, path))
}

#[test]
fn kernel_guest_closes_the_ledger_of_a_flow() {
    let Some((_folder, image)) = image() else { return };
    let setting = format!("guest_image={image}");
    let to_kernel = ["--guest", "qemu", "--set", &setting];
    // The baseline takes part twice: the kernel has outlived a switch.
    let records = pvp(&[&to_kernel[..], &["--sizes", "64", "--copy", "haul"]].concat());
    let records = records.expect(0).records();
    let this = [("size_bytes", "64"), ("copy", "haul"), ("guest", "qemu"), ("traffic", "gen")];
    let found = of(&records, "rate_peak", &this);
    let [record] = found[..] else { panic!("{found:#?}") };
    assert!(record.median().unwrap() > 0.0, "{record:#?}");
    for receipt in ["guest_version", "guest_kernel", "accelerator", "features", "ring_size"] {
        assert!(record.parameters.contains_key(receipt), "{receipt}: {record:#?}");
    }
    let lost = |stage| value(&records, "lost", &[&this[..], &[("stage", stage)]].concat());
    assert!(lost("vhost_full") > 0.0, "{records:#?}");
    for stage in ["generator", "switch_in", "switch_out", "unaccounted"] {
        assert_eq!(lost(stage), 0.0, "{stage}: {records:#?}");
    }
    for (arguments, code, parts) in [
        (["--set", "guest_image=/none"], 1, ["/none/vmlinuz", "scripts/vhost-guest --image"]),
        (["--sizes", "1515"], 2, ["1515 B", "1514 B"]),
    ] {
        let pvp = ["forward", "pvp", "--guest", "qemu"];
        let image = if code == 2 { &to_kernel[2..] } else { &[] };
        run(&mut haul(&[&pvp[..], image, &arguments].concat())).expect(code).says(&parts);
    }
}

#[test]
fn kernel_guest_ends_with_its_run() {
    let Some((_folder, image)) = image() else { return };
    let _turn = turn();
    for signal in [Signal::INT, Signal::KILL] {
        let folder = tempfile::tempdir().unwrap();
        let setting = format!("guest_image={image}");
        let mut command = haul(&["forward", "pvp", "--guest", "qemu", "--set", &setting]);
        command.env("TMPDIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let wait = |what: &str, is_so: &dyn Fn() -> bool| {
            let started = Instant::now();
            while !is_so() {
                assert!(started.elapsed() < LIMIT / 2, "{signal:?}: {what}");
                thread::sleep(Duration::from_millis(20));
            }
        };
        let entries = || fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.path());
        wait("its console", &|| entries().any(|entry| entry.join("run/console").exists()));
        kill_process(pid(&child), signal).unwrap();
        assert_ne!(finish(child).code, Some(0));
        wait("its processes to end", &|| processes_of(folder.path()).is_empty());
        assert!(signal == Signal::KILL || entries().count() == 0);
    }
}
