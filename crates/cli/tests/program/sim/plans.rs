//! Plans: run in parts, joined, edited by hand, truncated, and on a full disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::{self, COUNTS, ENDS};
use super::{sim, text};
use crate::run;
use crate::survey::on_a_small_disk;

/// A plan of three tasks.
pub(super) fn plan(folder: &Path) -> PathBuf {
    let program = elf::program(folder, "ends.elf", &ENDS);
    let plan = folder.join("plan.jsonl");
    let vary = ["--vary", "memory.latency_ns=80..110:15"];
    let rest = ["--program", text(&program), "--out-file", text(&plan)];
    run(&mut sim(&[&["sweep"], &vary[..], &rest].concat())).expect(0);
    plan
}

/// The record files of a plan, by name, with their contents.
pub(super) fn record_files(plan: &Path) -> Vec<(String, String)> {
    let folder = format!("{}.d", plan.display());
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .filter(|(name, _)| name.ends_with(".jsonl"))
        .collect();
    files.sort();
    files
}

#[test]
fn plan_runs_in_parts_and_joins() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    let plan = text(&plan);
    run(&mut sim(&["task", plan, "1"])).expect(0);
    run(&mut sim(&["task", plan, "1"])).expect(0);
    run(&mut sim(&["task", plan, "3"])).expect(1).says(&["0 to 2"]);
    run(&mut sim(&["task", plan, "-1"])).expect(2);
    run(&mut sim(&["task", plan, "99999999999999999999"])).expect(2);
    let ran =
        run(&mut sim(&["collect", plan, "--json"])).expect(1).says(&["2 of 3", "0 (not done)"]);
    assert_eq!(ran.records().len(), 2, "the finished work is kept");
    run(&mut sim(&["task", plan, "0"])).expect(0);
    run(&mut sim(&["task", plan, "2"])).expect(0);
    let records = run(&mut sim(&["collect", plan, "--json"])).expect(0).records();
    let times: Vec<f64> =
        records.iter().filter(|record| record.metric == "time").map(|r| r.samples[0]).collect();
    assert!(times.len() == 3 && times[0] < times[1] && times[1] < times[2], "{times:?}");
}

#[test]
fn edited_plan_is_refused_with_line_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path());
    let whole = fs::read_to_string(&path).unwrap();
    run(&mut sim(&["task", text(&path), "0"])).expect(0);
    let lines: Vec<&str> = whole.lines().collect();
    let swapped = [lines[0], lines[2], lines[1], lines[3]].join("\n");
    let twice = [lines[0], lines[1], lines[2], lines[2], lines[3]].join("\n");
    let digest = lines[2].split('"').nth(5).unwrap();
    for (edited, says) in [
        (whole.replace("\"latency_ns\":95", "\"latency_ns\":96"), "line 3 was changed"),
        (whole.replace("\"index\":1", "\"index\":7"), "line 3 was changed"),
        (whole.replace(digest, "0123456789abcdef"), "line 3 was changed"),
        (swapped, "line 2 was changed"),
        (twice, "line 4 was changed"),
        (lines[..3].join("\n"), "2 tasks of 3"),
        (whole[..whole.len() - 30].into(), "line 4 is not a task"),
        (whole.replace("\"mshrs\":8", "\"mshrs\":\"8\""), "line 2 is not a task"),
        (whole.replace("\"mshrs\":8", "\"speed\":8"), "line 2 is not a task"),
        (whole.replace("\"tasks\":3", "\"tasks\":18446744073709551615"), "3 tasks of"),
        (whole.replace("plan/2", "plan/3"), "plan/3"),
        (whole.replacen('{', "[", 1), "line 1"),
        (String::new(), "empty"),
        ("\0\0\0\n".into(), "line 1"),
    ] {
        fs::write(&path, &edited).unwrap();
        for command in [&["collect", text(&path)][..], &["task", text(&path), "1"]] {
            run(&mut sim(command)).expect(1).says(&["plan.jsonl", says]);
        }
    }
    fs::write(&path, b"\xff\xfe").unwrap();
    run(&mut sim(&["collect", text(&path)])).expect(1).says(&["plan.jsonl"]);
    run(&mut sim(&["collect", text(folder.path())])).expect(1).says(&[text(folder.path())]);
    run(&mut sim(&["collect", "/nonexistent.jsonl"])).expect(1).says(&["nonexistent.jsonl"]);
    // The earlier records still exist once the plan is complete again.
    fs::write(&path, &whole).unwrap();
    let ran = run(&mut sim(&["collect", text(&path), "--json"])).expect(1);
    assert_eq!(ran.records().len(), 2);
}

#[test]
fn damaged_records_are_named_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = plan(folder.path());
    let do_all = || (0..3).for_each(|index| task(&path, index));
    do_all();
    let files = record_files(&path);
    let first = Path::new(&format!("{}.d", path.display())).join(&files[0].0);
    let (whole, other) = (files[0].1.clone(), files[1].1.clone());
    let half = &whole[..whole.len() / 2];
    let one_line = &whole[..=whole.find('\n').unwrap()];
    for damaged in [half, one_line, "", "\0\0\0\0", &other, &format!("{whole}{whole}")] {
        fs::write(&first, damaged).unwrap();
        let ran = run(&mut sim(&["collect", text(&path), "--json"])).expect(1);
        assert_eq!(ran.says(&["1 of 3", "0 (its record file is damaged)"]).records().len(), 4);
        do_all();
        assert_eq!(record_files(&path), files, "a byte changed");
    }
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    run(&mut sim(&["collect", text(&path)])).expect(1).says(&["1 of 3", text(&first)]);
    run(&mut sim(&["task", text(&path), "0"])).expect(1).says(&["plan.jsonl"]);
    fs::remove_dir(&first).unwrap();
    // A file that a killed worker may leave there is not a record.
    fs::write(first.with_extension("jsonl.1.tmp"), half).unwrap();
    do_all();
    run(&mut sim(&["collect", text(&path)])).expect(0);
}

fn task(plan: &Path, index: usize) {
    run(&mut sim(&["task", text(plan), &index.to_string()])).expect(0);
}

#[test]
fn sweep_with_failing_task_runs_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "counts.elf", &COUNTS);
    let plan = folder.path().join("plan.jsonl");
    let ran = run(&mut sim(&[
        "sweep",
        "--vary",
        "instructions_max=100,1000000",
        "--program",
        text(&program),
        "--argument",
        "1000",
        "--out-file",
        text(&plan),
        "--run",
        "--threads",
        "1",
        "--json",
    ]));
    let ran = ran.expect(1).says(&["100 instructions", "loops forever"]);
    assert_eq!(ran.records().len(), 2, "{ran:#?}");
    let ran = run(&mut sim(&["collect", text(&plan), "--json"])).expect(1).says(&["0 (not done)"]);
    assert_eq!(ran.records().len(), 2);
}

#[test]
fn program_with_failure_code_gives_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    // `li a7, 93; ecall`: exits with a0.
    let program = elf::program(folder.path(), "says.elf", &[ENDS[0], ENDS[2]]);
    let ran = |code: &str| run(&mut sim(&["run", text(&program), "--argument", code]));
    ran("0").expect(0);
    ran("3").expect(1).says(&["exit code 3", "means nothing"]);
    let recorded = run(&mut sim(&["run", text(&program), "--argument", "3", "--json"]));
    assert!(recorded.expect(1).records().is_empty());
    let plan = folder.path().join("plan.jsonl");
    let sweep = |code: &str| {
        let vary = ["sweep", "--vary", "memory.mshrs=1,2", "--argument", code, "--run"];
        let place = ["--program", text(&program), "--out-file", text(&plan), "--threads", "1"];
        run(&mut sim(&[&vary[..], &place].concat()))
    };
    sweep("3").expect(1).says(&["exit code 3", "means nothing"]);
    assert!(record_files(&plan).is_empty());
    sweep("0").expect(0);
    assert_eq!(record_files(&plan).len(), 2);
}

#[test]
fn impossible_sweeps_leave_no_plan() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "ends.elf", &ENDS);
    let out = folder.path().join("plan.jsonl");
    for (vary, says) in [
        ("memory.mshrs=0..8:1", "memory.mshrs=0"),
        ("memory.speed=1,2", "no such setting"),
        ("memory.mshrs=1..8", "has no step; write memory.mshrs=1..8:1 "),
        ("memory.mshrs=1..999999999:1", "is not a range"),
        ("memory.mshrs=8..1:1", "is not a range"),
        ("memory.mshrs=1..8:0", "is not a range"),
        ("memory.mshrs", "NAME=VALUE"),
        ("memory.latency_ns=-80,80", "-80"),
    ] {
        let program = ["--program", text(&program), "--out-file", text(&out)];
        run(&mut sim(&[&["sweep", "--vary", vary], &program[..]].concat())).expect(2).says(&[says]);
        assert!(!out.exists(), "{vary}");
    }
}

#[test]
fn file_size_limit_is_reported_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "ends.elf", &ENDS);
    let out = folder.path().join("plan.jsonl");
    // 8 blocks of 512 B: less than a plan of 900 tasks.
    let script = "ulimit -f 8 && exec \"$HAUL\" sim sweep --vary memory.latency_ns=80..980:1 \
                  --program \"$PROGRAM\" --out-file \"$PLAN\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("HAUL", env!("CARGO_BIN_EXE_haul"));
    command.env("PROGRAM", &program).env("PLAN", &out).stdin(Stdio::null());
    run(&mut command).expect(1).says(&["plan.jsonl", "File too large"]);
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["ends.elf"]);
}

#[test]
fn full_disk_loses_no_finished_task() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "ends.elf", &ENDS);
    let sweep = format!(
        "$HAUL sim sweep --vary memory.latency_ns=80..110:15 --program {} --out-file $DISK/plan.jsonl",
        program.display()
    );
    let script = format!(
        "{sweep} && $HAUL sim task $DISK/plan.jsonl 0 && cat /dev/zero > $DISK/other 2>/dev/null; \
         $HAUL sim task $DISK/plan.jsonl 1; echo task $? >&2; \
         {sweep} --run; echo sweep $? >&2; \
         $HAUL sim reproduce --packets 20 --program {} --out $DISK/paper; echo reproduce $? >&2; \
         rm $DISK/other; $HAUL sim collect $DISK/plan.jsonl --json; echo collect $? >&2; \
         {sweep} --run --json",
        program.display()
    );
    let Some((ran, ..)) = on_a_small_disk(256, &script) else { return };
    let ran = ran.expect(0).says(&[
        "plan.jsonl",
        "No space left",
        "task 1",
        "sweep 1",
        "disk/paper",
        "reproduce 1",
        "2 of 3 tasks",
        "collect 1",
    ]);
    let records = ran.out.lines().filter(|line| line.starts_with("{\"schema\":\"haul.record/1\""));
    assert_eq!(records.count(), 2 + 6, "{ran:#?}");
    let full = ["sweep", "--vary", "memory.mshrs=1..3:1", "--program", text(&program)];
    run(&mut sim(&[&full[..], &["--out-file", "/dev/full/plan"]].concat()))
        .expect(1)
        .says(&["/dev/full/plan"]);
}
