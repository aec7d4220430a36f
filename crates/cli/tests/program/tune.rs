//! `haul copy tune`: places that cannot be written, and Ctrl-C.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::survey::wait_for_lines;
use crate::{finish, haul, records_of, run};

#[test]
fn a_place_that_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (out, part) in [
        (folder.path().to_path_buf(), "a folder stands there"),
        (file.join("haul.toml"), "a file stands there"),
    ] {
        let start = Instant::now();
        let arguments = ["copy", "tune", "--out", out.to_str().unwrap()];
        run(&mut haul(&arguments)).expect(1).says(&[part, "--out"]);
        assert!(start.elapsed().as_secs() < 5, "it measured first");
    }
}

#[test]
fn broken_off_it_keeps_its_records_and_an_earlier_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("haul.toml");
    fs::write(&out, "earlier").unwrap();
    let mut command = haul(&["copy", "tune", "--out", out.to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let records = folder.path().join("haul.jsonl");
    wait_for_lines(&records, 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child).expect(1).says(&["interrupted"]);
    let text = fs::read_to_string(&records).unwrap();
    let records = records_of(haul_model::parse(&text).unwrap());
    assert!(records.iter().any(|record| record.experiment == "copy.tune"));
    assert_eq!(fs::read_to_string(&out).unwrap(), "earlier");
}
