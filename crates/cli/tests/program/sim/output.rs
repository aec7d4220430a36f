//! A program's output is shown, however its run ends.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use haul_sim::isa::{Operation, encode};
use rustix::process::{Pid, Signal, kill_process};

use super::elf::{self, ENDS, LOOPS};
use super::{sim, text};
use crate::patience::tries;
use crate::{finish, run};

/// Registers.
const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;
const A7: u32 = 17;

/// A full line, and a part of one.
const TEXTS: [&str; 2] = ["first line\n", "and a part"];

/// Each abnormal end, with its message.
fn abnormal() -> Vec<(&'static str, Vec<u32>, &'static str)> {
    let add = |register, value| encode::immediate(Operation::Add, register, 0, value);
    vec![
        ("loads", vec![encode::immediate(Operation::Ld, A0, 0, 8)], "load 8 bytes at 0x8"),
        ("stores", vec![encode::store(Operation::Sd, A0, 0, 8)], "store 8 bytes at 0x8"),
        ("illegal", vec![0xffff_ffff], "illegal instruction"),
        ("jumps", vec![encode::immediate(Operation::Jalr, 0, 0, 8)], "jump to 0x8"),
        ("breaks", vec![encode::EBREAK], "ebreak"),
        ("calls", vec![add(A7, 1000), encode::ECALL], "unknown call 1000"),
        ("loops", LOOPS.to_vec(), "5000 instructions"),
        // Memory that cannot be read is not written, but the output before it was.
        ("unread", vec![add(A1, 8), add(A2, 4), add(A7, 64), encode::ECALL], "4 bytes at 0x8"),
        ("fails", vec![add(A7, 93), add(A0, 3), encode::ECALL], "exit code 3"),
    ]
}

#[test]
fn failing_program_shows_its_output() {
    let folder = tempfile::tempdir().unwrap();
    for (name, then, says) in abnormal() {
        let program = elf::writes(folder.path(), name, &TEXTS, &then);
        for core in [&["--set", "core.issue=in-order"][..], &[], &["--functional"]] {
            let words = [&["run", text(&program), "--limit", "5000"][..], core].concat();
            let ran = run(&mut sim(&words)).expect(1);
            assert!(ran.out.contains("it wrote: first line\nand a part\n"), "{name}: {ran:#?}");
            ran.says(&[says]);
            // If the command prints records, the program's output goes to standard error.
            let ran = run(&mut sim(&[&words[..], &["--json"]].concat())).expect(1);
            let ran = ran.says(&["it wrote: first line\nand a part", says]);
            assert!(!ran.out.contains("first line"), "{name}: {ran:#?}");
        }
    }
    let ends = elf::writes(folder.path(), "ends", &TEXTS, &ENDS);
    for words in [&[][..], &["--functional"]] {
        let ran = run(&mut sim(&[&["run", text(&ends), "--json"], words].concat())).expect(0);
        let ran = ran.says(&["it wrote: first line\nand a part"]);
        assert!(!ran.records().is_empty());
    }
    let silent = elf::program(folder.path(), "silent", &LOOPS);
    let ran = run(&mut sim(&["run", text(&silent), "--limit", "5000"])).expect(1);
    assert!(!ran.out.contains("wrote") && !ran.err.contains("wrote"), "{ran:#?}");
}

#[test]
fn failing_task_shows_its_programs_output() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.jsonl");
    for (name, then, says) in abnormal() {
        let program = elf::writes(folder.path(), name, &TEXTS, &then);
        let sweep = ["sweep", "--vary", "memory.mshrs=1,2", "--set", "instructions_max=5000"];
        let files = ["--program", text(&program), "--out-file", text(&plan)];
        run(&mut sim(&[&sweep[..], &files].concat())).expect(0);
        let wrote = "it had written: first line\nand a part";
        run(&mut sim(&["task", text(&plan), "1"])).expect(1).says(&[says, wrote]);
        run(&mut sim(&[&sweep[..], &files, &["--run"]].concat())).expect(1).says(&[says, wrote]);
    }
}

/// Stops an endless run this time after its begin. Its program writes its output first.
fn stopped_after(time: Duration, program: &Path, words: &[&str]) -> Result<(), String> {
    let mut command = sim(&[&["run", text(program), "--json"], words].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The machine's line: from here on it handles signals.
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    std::thread::sleep(time);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = finish(child).expect(128 + 2);
    let parts = ["stopped after", "it wrote: first line\nand a part"];
    let has_all = parts.iter().all(|part| ran.err.contains(part));
    if has_all { Ok(()) } else { Err(format!("{ran:#?}")) }
}

#[test]
fn interrupted_program_shows_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let loops = elf::writes(folder.path(), "loops", &TEXTS, &LOOPS);
    for words in [&[][..], &["--functional"]] {
        tries(&[0.5, 2.0, 8.0], |time| stopped_after(time, &loops, words));
    }
}
