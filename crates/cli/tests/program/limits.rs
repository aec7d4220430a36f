//! Limits of a process (`ulimit`), and places that are not there: the cause is named, and what lifts it.

use std::path::Path;
use std::process::Command;

use crate::{Ran, away, haul, run};

/// The program under a limit, in a folder of its own.
fn under(limit: &str, arguments: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$HAUL\" {arguments}")]);
    command.env("HAUL", env!("CARGO_BIN_EXE_haul")).current_dir(folder.path());
    away(&mut command);
    run(&mut command)
}

#[test]
fn too_few_descriptors_are_told_with_their_limit() {
    let heap = "heap bench --test pairs --against libc --budget 0.1";
    let ran = under("-n 8", heap).expect(1).says(&["Too many open files", "ulimit -n"]);
    assert!(!ran.err.contains("--against"), "{ran:#?}");
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: too few descriptors of a transfer: only one CPU: allow it two");
        return;
    }
    let channel = "channel bench --size 64KiB --mechanism all --against pipe --budget 0.1";
    for limit in ["-n 8", "-n 16"] {
        let ran = under(limit, channel).expect(1).says(&["ulimit -n"]);
        assert!(!ran.err.contains("--against"), "{ran:#?}");
    }
}

#[test]
fn too_little_memory_is_an_error_that_names_the_limit() {
    // What the tuner takes depends on the last-level cache: less than it takes on any machine.
    under("-v 60000", "copy tune --budget 0.1").expect(1).says(&["ulimit -v"]);
}

#[test]
fn a_folder_for_sockets_that_is_not_there_is_told_by_its_name() {
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: a folder for sockets that is not there: only one CPU: allow it two");
        return;
    }
    let absent = Path::new("/nonexistent/folder");
    let mut command = haul(&["channel", "bench", "--size", "64", "--against", "pipe"]);
    let ran = run(command.env("TMPDIR", absent)).expect(1);
    ran.says(&["/nonexistent/folder", "TMPDIR"]);
}
