//! `bench/definitions/copy-against-libc` and `summarize`, in a tiny run, so that the definitions
//! of records keep working.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{away, run};

#[test]
fn copies_definition_feeds_its_summary() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the summary of copies: no python3 on PATH: install python3");
        return;
    }
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/definitions");
    let folder = tempfile::tempdir().unwrap();
    let (files, out) = (folder.path().join("sizes"), folder.path().join("out"));
    fs::create_dir(&files).unwrap();
    for function in ["Memcpy", "Memmove", "Memset"] {
        fs::write(files.join(format!("{function}Mine.csv")), "0.25,0.25,0.0,0.5\n").unwrap();
    }
    let mut command = Command::new(definitions.join("copy-against-libc"));
    command.arg(&files).arg(&out).args(["0.001", "fleet-l1", "classes"]);
    away(&mut command);
    command.env("HAUL", env!("CARGO_BIN_EXE_haul"));
    run(&mut command).expect(0);
    // All distributions for both readers, at least on one thread.
    let text = fs::read_to_string(out.join("fleet-l1.jsonl")).unwrap();
    let of_haul = text.lines().filter(|line| line.contains("\"subject\":\"haul\""));
    assert!(of_haul.count() >= 2 * 3, "{text}");
    let mut summary = Command::new(definitions.join("summarize"));
    summary.args(["fleet-l1", "classes"].map(|piece| out.join(format!("{piece}.jsonl"))));
    let ran = run(&mut summary);
    // A run of a millisecond may keep a promise or break it.
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:#?}");
    for row in [
        "| memcpy, the fleet's 1 files in l1, then read first: geometric mean |",
        "| memset, the fleet's in l1 x 1: worst of 2 |",
        "| memmove, haul's own in l1 x 1: worst of 0 | - |",
        "| 17-64 B through C: memset |",
        "untuned, over libc, worst | - | 1.10 |  | not measured |",
    ] {
        assert!(ran.out.contains(row), "{row}: {}", ran.out);
    }
    let unknown = [files.to_str().unwrap(), out.to_str().unwrap(), "1", "fleets"];
    let mut command = Command::new(definitions.join("copy-against-libc"));
    run(command.args(unknown)).expect(2).says(&["unknown piece fleets"]);
}
