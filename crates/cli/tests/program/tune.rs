//! `haul copy tune`: unwritable paths, and Ctrl-C.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::survey::wait_for_lines;
use crate::{LIMIT, finish, haul, records_of, run};

#[test]
fn tune_refuses_unwritable_path_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (out, part) in [
        (folder.path().to_path_buf(), "that is a folder"),
        (file.join("haul.toml"), "that is a file"),
    ] {
        let start = Instant::now();
        let arguments = ["copy", "tune", "--budget", "5m", "--out-file", out.to_str().unwrap()];
        run(&mut haul(&arguments)).expect(1).says(&[part, "--out-file"]);
        assert!(start.elapsed() < LIMIT / 4, "it measured first");
    }
}

#[test]
fn tune_refuses_device_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    // Through a link: if it were replaced, no system file would be harmed.
    let out = folder.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &out).unwrap();
    let arguments = ["copy", "tune", "--out-file", out.to_str().unwrap()];
    run(&mut haul(&arguments)).expect(2).says(&["null", "name a regular file by --out-file"]);
    assert!(out.is_symlink());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "something was written beside it");
}

/// The file has the result, with evidence that names the record file beside it, even if the file
/// has the default name of the records.
#[test]
fn tune_writes_thresholds_and_records_to_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.jsonl");
    let tune = |json: &[&str]| {
        let all = ["copy", "tune", "--budget", "0.5", "--out-file", out.to_str().unwrap()];
        run(haul(&all).args(json)).expect(0)
    };
    let ran = tune(&[]).says(&["this needs about", "--budget of 0.5 s"]);
    for part in ["Small shape and instruction set: ", "Copies: ", "Fills: ", "x.jsonl"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let text = fs::read_to_string(&out).unwrap();
    let tuning: haul_machine::tuning::Tuning = text.parse().unwrap();
    // The page, the last line and the file agree: if a part is kept, the file has the whole policy
    // with its evidence, otherwise it has nothing to use.
    let is_kept = ran.out.contains(": kept.");
    assert_eq!(ran.out.contains("export HAUL_TUNING="), is_kept, "{ran:#?}");
    assert_eq!(ran.out.contains("Nothing to do: the defaults"), !is_kept, "{ran:#?}");
    assert_eq!(tuning.copy.contains_key("stream_copy_min"), is_kept, "{text}");
    assert_eq!(
        tuning.choices.len(),
        if is_kept { 3 } else { 0 },
        "the whole policy or none: {text}"
    );
    assert_eq!(tuning.evidence.is_empty(), !is_kept, "{text}");
    let lines =
        haul_model::parse(&fs::read_to_string(folder.path().join("x.records.jsonl")).unwrap())
            .unwrap();
    let verdicts = haul_report::verdicts(&lines);
    let verdict = verdicts.iter().find(|row| row.question.starts_with("haul.toml")).unwrap();
    assert_eq!(verdict.action.contains("defaults stay"), !is_kept, "{verdict:?}");
    assert!(tuning.evidence.iter().all(|e| e.records == "x.records.jsonl"), "{text}");
    let records = fs::read_to_string(folder.path().join("x.records.jsonl")).unwrap();
    let records = records_of(haul_model::parse(&records).unwrap());
    assert!(records.iter().any(|record| record.experiment == "copy.tune"));
    // The library accepts the file.
    let list = run(haul(&["copy", "list", "--json"]).env("HAUL_TUNING", &out)).expect(0);
    assert_eq!(list.err, "");
    assert!(list.machine().facts["tuning"].contains("x.jsonl"), "{list:#?}");
}

#[test]
fn interrupted_tune_keeps_records_and_earlier_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("haul.toml");
    fs::write(&out, "earlier").unwrap();
    let mut command = haul(&["copy", "tune", "--out-file", out.to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let records = folder.path().join("haul.jsonl");
    wait_for_lines(&records, 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child).expect(130).says(&["interrupted", "haul.toml was not written"]);
    let text = fs::read_to_string(&records).unwrap();
    let records = records_of(haul_model::parse(&text).unwrap());
    assert!(records.iter().any(|record| record.experiment == "copy.tune"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "earlier");
}
