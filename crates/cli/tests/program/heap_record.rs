//! `haul heap record`, `info` and `list`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, thread};

use haul::heap::{Heap, Node};
use rustix::process::{Pid, Signal, kill_process};

use crate::{away, finish, haul, install, run};

/// The folder of this build's libraries, with the one that records.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "-p", "haul-record"]);
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).expect(0);
        assert!(folder.join("libhaul_record.so").exists(), "cargo left no libhaul_record.so");
        folder
    })
}

/// `haul heap record` in a folder.
fn record(folder: &Path, arguments: &[&str]) -> Command {
    built();
    let mut command = haul(&["heap", "record"]);
    command.args(arguments).current_dir(folder).env_remove("LD_PRELOAD");
    command
}

#[test]
fn a_program_is_recorded_and_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let sort = ["-o", "sort.trace", "--", "sort", "-r", "words"];
    fs::write(folder.path().join("words"), "a\nc\nb\n").unwrap();
    let ran = run(&mut record(folder.path(), &sort)).expect(0);
    assert_eq!(ran.out, "c\nb\na\n");
    assert!(ran.err.contains("sort.trace (sort)"), "{ran:#?}");
    let info = |more: &[&str]| {
        let mut command = haul(&["heap", "info", "sort.trace"]);
        run(command.args(more).current_dir(folder.path())).expect(0)
    };
    let text = info(&[]).out;
    for part in ["program    sort, process", "allocations (", "at most", "half up to"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let records = info(&["--json"]).records();
    let of = |metric: &str| records.iter().find(|record| record.metric == metric).unwrap();
    assert!(of("allocations").median().unwrap() >= 1.0);
    assert_eq!(of("live_peak").parameters["program"], "sort");
    // A name that is taken is nobody's to overwrite, and is told before the program runs.
    let again = run(&mut record(folder.path(), &sort)).expect(2).says(&["it exists", "-o"]);
    assert_eq!(again.out, "");
    // Without -o the program gives the name, and the next one finds a free one.
    for name in ["sort.trace", "sort-2.trace"] {
        let _ = fs::remove_file(folder.path().join("sort.trace"));
        fs::write(folder.path().join("sort.trace"), "").unwrap();
        if name == "sort.trace" {
            fs::remove_file(folder.path().join("sort.trace")).unwrap();
        }
        run(&mut record(folder.path(), &["sort", "words"])).expect(0).says(&[name]);
    }
}

#[test]
fn each_process_of_a_run_has_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sort words | sort -r; exit 7";
    fs::write(folder.path().join("words"), "a\nb\n").unwrap();
    let arguments = ["-o", "all", "--", "sh", "-c", script];
    let ran = run(&mut record(folder.path(), &arguments)).expect(7);
    assert_eq!(ran.out, "b\na\n");
    let ran = ran.says(&["ended with exit code 7", "(sort)"]);
    let named = ran.err.lines().filter(|line| line.contains("haul: recorded")).count();
    let left = fs::read_dir(folder.path()).unwrap().flatten();
    let left = left.filter(|e| e.file_name().to_string_lossy().starts_with("all.")).count();
    assert!(named >= 2 && named == left, "{named} of {left}: {ran:#?}");
}

#[test]
fn a_program_that_fails_or_cannot_be_recorded_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let of = |arguments: &[&str]| run(&mut record(folder.path(), arguments));
    of(&["-o", "a", "--", "/no/such/program"]).expect(1).says(&["cannot start", "PATH"]);
    let ran = of(&["-o", "b", "--", "sh", "-c", "kill -9 $$"]).expect(128 + 9);
    ran.says(&["exit code 137", "recorded"]);
    of(&["-o", "no/such/folder/c", "--", "true"]).expect(1).says(&["cannot write"]);
    of(&[]).expect(2);
    // A copy of haul without the library beside it.
    let lonely = folder.path().join("bin");
    fs::create_dir(&lonely).unwrap();
    install(env!("CARGO_BIN_EXE_haul").as_ref(), &lonely.join("haul"));
    let mut command = Command::new(lonely.join("haul"));
    away(command.args(["heap", "record", "true"]).current_dir(folder.path()));
    run(&mut command).expect(1).says(&["libhaul_record.so", "-p haul-record", "scripts/install"]);
    // Installed, it lies in the lib beside bin.
    fs::create_dir(folder.path().join("lib")).unwrap();
    let library = "libhaul_record.so";
    symlink(built().join(library), folder.path().join("lib").join(library)).unwrap();
    let mut command = Command::new(lonely.join("haul"));
    away(command.args(["heap", "record", "--", "sort", "/dev/null"]).current_dir(folder.path()));
    run(&mut command).expect(0).says(&["sort.trace"]);
}

#[test]
fn what_runs_on_after_ctrl_c_is_still_recorded() {
    let folder = tempfile::tempdir().unwrap();
    // It ends by itself when it is interrupted, as a server would.
    let script = "trap 'sort words; exit 0' INT; echo ready; while :; do sleep 0.05; done";
    fs::write(folder.path().join("words"), "b\na\n").unwrap();
    let arguments = ["-o", "server", "--", "sh", "-c", script];
    let mut command = record(folder.path(), &arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    // As a terminal does: everybody in the foreground has it.
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let of_parent = |pid: u32| -> Vec<u32> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    for shell in of_parent(child.id()) {
        kill_process(Pid::from_raw(shell.cast_signed()).unwrap(), Signal::INT).unwrap();
    }
    let ran = finish(child).expect(1);
    assert!(ran.out.contains("ready") && ran.out.contains("a\nb"), "{ran:#?}");
    ran.says(&["interrupted", "haul: recorded"]);
}

#[test]
fn shared_heaps_are_listed() {
    let name = format!("list-{}", std::process::id());
    let heap = Heap::builder().limit(64 << 20).shared_named(&name).unwrap();
    let block = heap.alloc(4096, 16, Node::ANY).unwrap();
    let ran = run(&mut haul(&["heap", "list"])).expect(0);
    let line = ran.out.lines().find(|line| line.starts_with(&name));
    let line = line.unwrap_or_else(|| panic!("{ran:#?}")).to_owned();
    assert!(line.contains(" 1 ") && line.contains("64.0 MiB"), "{line}");
    let records = run(&mut haul(&["heap", "list", "--json"])).expect(0).records();
    let live = records.iter().find(|r| r.parameters["heap"] == *name && r.metric == "live");
    assert!(live.unwrap().median().unwrap() >= 4096.0);
    // SAFETY: allocated above, and freed once.
    unsafe { heap.free(block) }.unwrap();
    Heap::remove_name(&name).unwrap();
    let ran = run(&mut haul(&["heap", "list"])).expect(0);
    assert!(!ran.out.contains(&name), "{ran:#?}");
    // What is no heap is told, and stops nothing.
    let bad = Path::new("/dev/shm").join(format!("haul-heap.bad-{}", std::process::id()));
    fs::write(&bad, "nonsense").unwrap();
    let ran = run(&mut haul(&["heap", "list"]));
    fs::remove_file(&bad).unwrap();
    let ran = ran.expect(0);
    assert!(ran.out.lines().any(|line| line.starts_with("bad-")), "{ran:#?}");
}
