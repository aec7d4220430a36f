//! `haul copy run` and `haul copy profile`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use haul_model::{Line, Record};

use crate::heap_record::compiled;
use crate::{haul, install, run};

/// Builds the library beside the program under test.
pub(crate) fn built() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["-p", "haul-copy-preload", "-p", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).expect(0);
        assert!(folder.join("libhaul_copy.so").exists(), "cargo left no library");
    });
}

pub(crate) fn copy(folder: &Path, arguments: &[&str]) -> Command {
    built();
    let mut command = haul(&["copy"]);
    command.args(arguments).current_dir(folder).env_remove("LD_PRELOAD");
    command
}

pub(crate) fn program(folder: &Path, body: &str) -> Option<PathBuf> {
    let head = "#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n\
                #include <unistd.h>\nstatic char a[9000], b[9000];\n\
                __attribute__((noinline)) void copies(int n) { while (n--) memcpy(a, b, 100); }\n";
    compiled(folder, &format!("{head}{body}"), &["-O0", "-fno-builtin"])
}

fn records(text: &str) -> Vec<Record> {
    let lines = haul_model::parse(text).unwrap();
    let record = |line| match line {
        Line::Record(record) => Some(record),
        Line::Machine(_) => None,
    };
    lines.into_iter().filter_map(record).collect()
}

#[test]
fn run_becomes_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = "grep -c libhaul_copy.so /proc/self/maps >/dev/null && cat; exit 7";
    let mut command = copy(folder.path(), &["run", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"in\n"[..], Some(7)));
    assert!(output.stderr.is_empty(), "{output:?}");
    let killed = run(&mut copy(folder.path(), &["run", "--", "sh", "-c", "kill -9 $$"]));
    assert!(killed.out.is_empty() && killed.err.is_empty());
    let missing = run(&mut copy(folder.path(), &["run", "--", "/no/such/program"])).expect(1);
    assert!(missing.err.contains("cannot start /no/such/program"), "{}", missing.err);
}

#[test]
fn profile_has_sites_with_functions_and_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    // The profile is read when the program ends, so the program waits for its child.
    let body = "int main(void) { copies(1000); int child = fork(); if (child == 0) copies(500); \
                else waitpid(child, 0, 0); return 0; }";
    let Some(program) = program(folder.path(), body) else { return };
    let arguments = ["profile", "--sample-every", "1B", "-o", "p.jsonl", "--json", "--"];
    let done = run(copy(folder.path(), &arguments).arg(&program)).expect(0);
    let text = fs::read_to_string(folder.path().join("p.jsonl")).unwrap();
    assert_eq!(records(&done.out), records(&text));
    let all = records(&text);
    let site = all.iter().find(|record| record.text("site").is_some()).unwrap();
    let name = site.text("site").unwrap();
    assert!(name.starts_with("p+0x") && name.ends_with("(copies)"), "{name}");
    assert_eq!((site.count("calls"), site.samples[0]), (Some(1500), 150_000.0));
    assert_eq!((site.experiment.as_str(), site.subject.as_str()), ("copy.profile", "p"));
    let (libc_s, haul_s) = (site.number("libc_s").unwrap(), site.number("haul_s").unwrap());
    assert!((1e-6..1e-1).contains(&libc_s) && (1e-6..1e-1).contains(&haul_s), "{site:?}");
    assert!(all[0].number("libc_s").unwrap() >= libc_s && all[0].number("program_cpu_s").is_some());
    assert!(done.err.contains("time of these calls: about "), "{}", done.err);
    assert!(done.err.contains("1500") || done.err.contains("100.0%"), "{}", done.err);
    assert!(done.err.contains("not seen: copies that the compiler inlined"), "{}", done.err);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.iter().all(|it| !it.file_name().to_string_lossy().ends_with(".mapped")));
    let page = folder.path().join("p.html");
    let report = ["report", "p.jsonl", "--out-file", "p.html"];
    run(haul(&report).current_dir(folder.path())).expect(0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("The copies of a program") && page.contains("(copies)"));
    assert!(page.contains("ms with libc") && page.contains("Time of these calls: about "));
}

#[test]
fn daemons_profile_is_read_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) { copies(2000000); write(1, \"x\", 1); pause(); return 0; }";
    let Some(program) = program(folder.path(), body) else { return };
    built();
    let library = Path::new(env!("CARGO_BIN_EXE_haul")).with_file_name("libhaul_copy.so");
    let mapped = folder.path().join("d.mapped");
    let mut daemon = Command::new(&program);
    daemon.env("LD_PRELOAD", library).env("HAUL_COPY_PROFILE", &mapped).env("HAUL_TUNING", "off");
    let mut daemon = daemon.stdout(Stdio::piped()).spawn().unwrap();
    let mut one = [0];
    std::io::Read::read_exact(daemon.stdout.as_mut().unwrap(), &mut one).unwrap();
    let from = ["profile", "--from", "d.mapped", "-o", "d.jsonl"];
    let done = run(&mut copy(folder.path(), &from));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    done.expect(0);
    let all = records(&fs::read_to_string(folder.path().join("d.jsonl")).unwrap());
    let calls = all[0].count("calls").unwrap();
    assert!((1_700_000..2_300_000).contains(&calls), "{calls}");
}

#[test]
fn failing_and_lost_programs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) =
        program(folder.path(), "int main(void) { copies(9); raise(SIGTERM); return 0; }")
    else {
        return;
    };
    let arguments = ["profile", "--sample-every", "1B", "-o", "k.jsonl", "--"];
    let done = run(copy(folder.path(), &arguments).arg(&program)).expect(128 + 15);
    assert!(done.err.contains("exit code 143"), "{}", done.err);
    assert!(fs::read_to_string(folder.path().join("k.jsonl")).unwrap().contains("copies"));
    // A process is seen if it lives for two of haul's checks, which a busy machine delays.
    let is_seen = |seconds: u32| {
        let (script, file) =
            (format!("env -u LD_PRELOAD sleep {seconds}"), format!("l{seconds}.jsonl"));
        let lost = ["profile", "-o", &file, "--", "sh", "-c", &script];
        run(&mut copy(folder.path(), &lost)).expect(0).err.contains("without the library: sleep")
    };
    assert!([1, 4, 16].into_iter().any(is_seen), "a process without the library is never seen");
}

#[test]
fn bad_outputs_and_inputs_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("old.jsonl"), "x").unwrap();
    let exists = ["profile", "-o", "old.jsonl", "--", "true"];
    let exists = run(&mut copy(folder.path(), &exists)).expect(2);
    assert!(exists.err.contains("old.jsonl") && exists.err.contains("it exists"), "{}", exists.err);
    let nowhere = ["profile", "-o", "no/such/folder.jsonl", "--", "true"];
    assert!(run(&mut copy(folder.path(), &nowhere)).expect(1).err.contains("no/such"));
    let foreign = run(&mut copy(folder.path(), &["profile", "--from", "old.jsonl"])).expect(1);
    assert!(foreign.err.contains("not a profile of copies"), "{}", foreign.err);
    run(&mut copy(folder.path(), &["profile"])).expect(2);
    run(&mut copy(folder.path(), &["run"])).expect(2);
    // A limit on the size of files stands for a full disk.
    let script = "ulimit -f 1000; trap '' XFSZ; exec \"$0\" copy profile -o full.jsonl -- true";
    let mut full = Command::new("bash");
    full.args(["-c", script, env!("CARGO_BIN_EXE_haul")]).env("HAUL_TUNING", "off");
    let full = run(full.current_dir(folder.path())).expect(1);
    assert!(full.err.contains("of room for the recording"), "{}", full.err);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// The dynamic linker would end the library's path at the space.
#[test]
fn library_in_a_folder_with_a_space_is_refused() {
    built();
    let folder = tempfile::tempdir().unwrap();
    let spaced = folder.path().join("a b");
    fs::create_dir(&spaced).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_haul"));
    for name in ["haul", "libhaul_copy.so"] {
        install(&program.with_file_name(name), &spaced.join(name));
    }
    let mut command = Command::new(spaced.join("haul"));
    command.args(["copy", "run", "--", "true"]).env("HAUL_TUNING", "off");
    let refused = run(&mut command).expect(1);
    assert!(refused.err.contains("LD_PRELOAD ends a path at a space"), "{}", refused.err);
}

/// The policy for a program is found over its sizes, and the library of that program loads it.
#[test]
fn profile_is_tuned_to() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let body = "int main(void) { for (int i = 0; i < 3000; i++) { memcpy(a, b, 4096); memset(a, 1, 70); } \
                return 0; }";
    let Some(program) = program(at, body) else { return };
    let profile = ["profile", "--sample-every", "1B", "-o", "p.jsonl", "--"];
    run(copy(at, &profile).arg(&program)).expect(0);
    let tune = |more: &[&str]| run(copy(at, &["tune", "--budget", "0.5"]).args(more));
    let done = tune(&["--json", "--profile", "p.jsonl", "--out-file", "p.toml"]).expect(0);
    let all = records(&done.out);
    let sizes: Vec<u64> = all.iter().filter_map(|record| record.count("size_bytes")).collect();
    // The copies are of one size above those without thresholds, and the fills of none.
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == 4096), "{sizes:?}");
    let drawn = all.iter().filter_map(|record| record.text("distribution"));
    assert!(drawn.into_iter().all(|name| name == "program"), "{all:?}");
    let text = fs::read_to_string(at.join("p.toml")).unwrap();
    text.parse::<haul_machine::tuning::Tuning>().unwrap();
    let again = at.join("again.mapped");
    let library = Path::new(env!("CARGO_BIN_EXE_haul")).with_file_name("libhaul_copy.so");
    let mut tuned = Command::new(&program);
    tuned.env("LD_PRELOAD", library).env("HAUL_TUNING", at.join("p.toml"));
    run(tuned.env("HAUL_COPY_PROFILE", &again)).expect(0);
    let bytes = fs::read(&again).unwrap();
    let loaded = haul_model::profile::Profile::parse(&bytes).unwrap();
    assert!(loaded.processes[0].has_policy_file, "the library loads the file");
}

#[test]
fn unusable_profile_is_refused_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let whole = |more: &str| {
        let record = Record::new("r", "copy.profile", "p", "bytes", "B").with("by", "all");
        let mut record = record.with("function", more);
        record.samples = vec![1.0];
        record.stamp("r", "m", "2026-01-01T00:00:00Z");
        record
    };
    let none = haul_model::profile::Calls::default().on(whole("none"));
    let other = Record { experiment: "copy.size".into(), ..whole("other") };
    let file = |name: &str, bytes: &[u8]| fs::write(at.join(name), bytes).unwrap();
    let line = |record: Record| format!("{}\n", Line::from(record).to_json()).into_bytes();
    file("old", &line(whole("old")));
    file("none", &line(none));
    file("other", &line(other));
    file("text", b"hello\n");
    file("mapped", b"haulcpp\n\x01\0\0\0");
    for (name, part) in [
        ("absent", "absent"),
        ("old", "an earlier haul wrote it"),
        ("none", "has no calls to tune to"),
        ("other", "holds no profile of copies"),
        ("text", "text:1"),
        ("mapped", "profile the program again"),
    ] {
        let refused = run(&mut copy(at, &["tune", "--profile", name, "--out-file", "t.toml"]));
        assert!(refused.code != Some(0) && refused.err.contains(part), "{name}: {refused:?}");
        assert!(!at.join("t.toml").exists());
    }
    // The output must not replace the profile.
    file("t.jsonl", &line(whole("old")));
    let same = ["tune", "--profile", "t.jsonl", "--out-file", "t.jsonl"];
    let refused = run(&mut copy(at, &same));
    assert!(refused.err.contains("t.jsonl"), "{refused:?}");
}
