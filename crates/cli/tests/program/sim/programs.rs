//! A user's programs, some of them faulty.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use haul_model::Kind;
use haul_sim::isa::{Operation, encode};
use rustix::process::{Pid, Signal, kill_process};

use super::elf::{self, DATA, DATA_BYTES, ENDS, LOOPS, RISC_V, START, Segment};
use super::{sim, text};
use crate::{LIMIT, finish, run};

const X86_64: u16 = 62;
/// Registers.
const A0: u32 = 10;

#[test]
fn users_program_gives_modelled_records() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::program(folder.path(), "ends.elf", &ENDS);
    let ran = run(&mut sim(&["run", text(&program), "--json"])).expect(0);
    let records = ran.records();
    let time =
        records.iter().find(|r| r.experiment == "sim.program" && r.metric == "time").unwrap();
    assert!(time.kind == Kind::Modelled && time.samples[0] > 100.0, "{time:?}");
    let speed = records.iter().find(|record| record.experiment == "sim.speed").unwrap();
    assert_eq!((speed.kind, speed.metric.as_str()), (Kind::Measured, "simulated_mips"));
    let again = run(&mut sim(&["run", text(&program), "--json"])).expect(0);
    let modelled = |records: Vec<haul_model::Record>| -> Vec<_> {
        let kept = records.into_iter().filter(|record| record.kind == Kind::Modelled);
        kept.map(|record| (record.metric, record.samples)).collect()
    };
    assert_eq!(modelled(again.records()), modelled(records), "deterministic");
    let interpreted = run(&mut sim(&["run", text(&program), "--functional", "--json"])).expect(0);
    let records = interpreted.records();
    assert_eq!((records.len(), records[0].metric.as_str()), (2, "instructions"));
    assert_eq!(
        (records[0].samples[0], &records[1].parameters["core"]),
        (3.0, &"functional".into())
    );
    run(&mut sim(&["run", text(&program), "--functional", "--window", "0-4"])).expect(2);
    let drawn = run(&mut sim(&["run", text(&program), "--window", "0-400"])).expect(0);
    assert!(drawn.out.contains("li a7, 0x5d") && drawn.out.contains("fetch 0x8000"), "{drawn:#?}");
}

#[test]
fn file_named_like_a_workload_needs_its_path() {
    let folder = tempfile::tempdir().unwrap();
    elf::program(folder.path(), "receive", &ENDS);
    let mut command = sim(&["run", "./receive", "--json"]);
    let ran = run(command.current_dir(folder.path())).expect(0);
    let records = ran.records();
    assert!(!records.is_empty());
    assert!(records.iter().all(|record| !record.parameters.contains_key("packets")), "{records:?}");
}

/// Runs a program that must be refused, and checks the message for these words.
#[track_caller]
fn refused(program: &Path, arguments: &[&str], says: &[&str]) {
    let mut all = vec!["run", text(program)];
    all.extend(arguments);
    run(&mut sim(&all)).expect(1).says(says);
}

#[test]
fn files_that_are_not_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = elf::file(RISC_V, START, &[Segment::code(&ENDS), Segment::data(DATA, DATA_BYTES)]);
    for length in [0, 3, 16, 63, 100, 170, whole.len() - 1] {
        let cut = elf::write(folder.path(), "cut.elf", &whole[..length]);
        refused(&cut, &[], &["cut.elf"]);
    }
    refused(Path::new("/nonexistent.elf"), &[], &["nonexistent.elf"]);
    refused(folder.path(), &[], &[text(folder.path())]);
    let of = |name: &str, bytes: &[u8]| elf::write(folder.path(), name, bytes);
    let code = [Segment::code(&ENDS)];
    refused(&of("x86.elf", &elf::file(X86_64, START, &code)), &[], &["machine 62", "RV64IM"]);
    let narrow = [&whole[..4], &[1], &whole[5..]].concat();
    refused(&of("narrow.elf", &narrow), &[], &["64-bit"]);
    let compressed = [&whole[..48], &[1], &whole[49..]].concat();
    refused(&of("compressed.elf", &compressed), &[], &["compressed", "-march=rv64im"]);
    let elsewhere = elf::file(RISC_V, START + 0x10_0000, &code);
    refused(&of("elsewhere.elf", &elsewhere), &[], &["elsewhere.elf"]);
    refused(&of("none.elf", &elf::file(RISC_V, START, &[])), &[], &["none.elf"]);
}

#[test]
fn impossible_segments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |name: &str, second: Segment, says: &[&str]| {
        let file = elf::file(RISC_V, START, &[Segment::code(&ENDS), second]);
        refused(&elf::write(folder.path(), name, &file), &[], says);
    };
    refuse("overlaps.elf", Segment::data(START + 4, 4096), &["overlaps.elf", "overlap"]);
    refuse("giant.elf", Segment::data(DATA, 1 << 40), &["giant.elf", "bytes"]);
    refuse("wraps.elf", Segment::data(u64::MAX - 4095, 8192), &["wraps.elf"]);
    refuse("far.elf", Segment::data(1 << 60, 4096), &["far.elf"]);
    let promised = Segment { file_bytes: 1 << 50, ..Segment::data(DATA, 1 << 50) };
    refuse("promised.elf", promised, &["promised.elf"]);
    let shrunk = Segment { file_bytes: 4096, ..Segment::data(DATA, 16) };
    refuse("shrunk.elf", shrunk, &["4096 of them in the file"]);
    let both = Segment { flags: 7, ..Segment::data(DATA, 4096) };
    refuse("both.elf", both, &["both.elf"]);
    let many = vec![Segment::data(DATA, 0); 1000];
    let many = elf::write(folder.path(), "many.elf", &elf::file(RISC_V, START, &many));
    refused(&many, &[], &["1000 program headers", "64"]);
}

/// Linkers write any offset for a segment without bytes in the file.
#[test]
fn zeroed_segment_may_have_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    // Exits with the value that it read after a store: 7, or 0 if it only reads.
    let [a1, a7] = [11, 17];
    let add = |register, value| encode::immediate(Operation::Add, register, 0, value);
    let words = [
        encode::add_upper(a1, (DATA - START) as u32),
        add(A0, 7),
        encode::store(Operation::Sd, A0, a1, 64),
        encode::immediate(Operation::Ld, A0, a1, 64),
        encode::immediate(Operation::Add, A0, A0, -7),
        add(a7, 93),
        encode::ECALL,
    ];
    let of = |offset: u64, second: Segment| {
        let mut file = elf::file(RISC_V, START, &[Segment::code(&words), second]);
        file[64 + 56 + 8..][..8].copy_from_slice(&offset.to_le_bytes());
        elf::write(folder.path(), "zeroed.elf", &file)
    };
    let length = elf::file(RISC_V, START, &[Segment::code(&words), Segment::data(DATA, 1)]).len();
    for offset in [0, 1, length as u64, length as u64 + 4096, 1 << 40, u64::MAX] {
        let zeroed = Segment::data(DATA, DATA_BYTES);
        run(&mut sim(&["run", text(&of(offset, zeroed))])).expect(0);
        // A segment without memory and without bytes in the file may be anywhere.
        let nothing = Segment::data(u64::MAX, 0);
        refused(&of(offset, nothing), &[], &["would store 8 bytes"]);
        // A segment with a byte in the file must have a valid offset.
        let promised = Segment { file_bytes: 1, ..Segment::data(DATA, DATA_BYTES) };
        if offset >= length as u64 {
            refused(&of(offset, promised), &[], &["zeroed.elf", "truncated"]);
        }
    }
    // Executable zeros are invalid instructions.
    let code = Segment { flags: 5, ..Segment::data(START, 4096) };
    let file = elf::file(RISC_V, START, &[code, Segment::data(DATA, 4096)]);
    refused(&elf::write(folder.path(), "zeros.elf", &file), &[], &["illegal instruction"]);
    let file = elf::file(RISC_V, START, &[Segment::data(START, 4096)]);
    refused(&elf::write(folder.path(), "no-code.elf", &file), &[], &["no executable segment"]);
}

#[test]
fn failing_programs_are_named_with_cause() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, words: &[u32]| elf::program(folder.path(), name, words);
    let loops = file("loops.elf", &LOOPS);
    refused(&loops, &["--limit", "5000"], &["5000 instructions", "loops forever"]);
    refused(&loops, &["--set", "instructions_max=7000"], &["7000 instructions"]);
    refused(&loops, &["--functional", "--limit", "5000"], &["5000 instructions", "loops forever"]);
    refused(&file("illegal.elf", &[0xffff_ffff]), &[], &["illegal", "0x80000000"]);
    let nothing_there =
        [encode::load_upper(A0, 0x1000), encode::immediate(Operation::Ld, A0, A0, 0)];
    refused(&file("unmapped.elf", &nothing_there), &[], &["load 8 bytes at 0x1000"]);
    let code_is_not_data = [encode::add_upper(A0, 0), encode::store(Operation::Sd, A0, A0, 0)];
    refused(&file("writes-code.elf", &code_is_not_data), &[], &["store 8 bytes at 0x80000000"]);
    let runs_on = [encode::immediate(Operation::Add, A0, 0, 1)];
    refused(&file("runs-on.elf", &runs_on), &[], &["0x80000004"]);
    let jumps_away = [encode::load_upper(A0, 0x5000), encode::immediate(Operation::Jalr, 0, A0, 0)];
    refused(&file("jumps.elf", &jumps_away), &[], &["jump to 0x5000"]);
    refused(&file("traps.elf", &[encode::EBREAK]), &[], &["ebreak", "exit (a7 = 93)"]);
    let unknown_call = [encode::immediate(Operation::Add, 17, 0, 1000), encode::ECALL];
    refused(&file("calls.elf", &unknown_call), &[], &["unknown call 1000"]);
}

#[test]
fn users_program_refuses_options_of_workloads() {
    let folder = tempfile::tempdir().unwrap();
    let ends = elf::program(folder.path(), "ends.elf", &ENDS);
    let ends = text(&ends);
    for settings in
        [["--packets", "20"], ["--set", "payload_bytes=64"], ["--set", "copying=engine"]]
    {
        let refused = run(&mut sim(&[&["run", ends], &settings[..]].concat())).expect(2);
        refused.says(&["only the workload receive", "--argument"]);
    }
    let out = folder.path().join("plan.jsonl");
    let sweep = ["sweep", "--vary", "packets=10,20", "--program", ends, "--out-file", text(&out)];
    run(&mut sim(&sweep)).expect(2).says(&["only the workload receive"]);
    let listed = run(&mut sim(&["list"])).expect(0).out;
    for name in ["packets=1000", "copying=words", "instructions_max=", "memory.latency_ns=80"] {
        assert!(listed.contains(name), "{listed}");
    }
    let facts = run(&mut sim(&["list", "--set", "packets=7", "--json"])).expect(0).machine().facts;
    assert_eq!(facts["sim_packets"], "7");
}

/// Interrupts a command that would run for hours, and expects its exit code and these words.
fn stops(arguments: &[&str], says: &[&str]) {
    let mut command = sim(&[arguments, &["--json"]].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The machine's line: from here on it handles signals.
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let began = Instant::now();
    finish(child).expect(128 + 15).says(says);
    assert!(began.elapsed() < LIMIT / 2, "{arguments:?}");
}

#[test]
fn endless_run_stops_on_signal() {
    let folder = tempfile::tempdir().unwrap();
    let loops = elf::program(folder.path(), "loops.elf", &LOOPS);
    let (loops, plan, out) = (text(&loops), folder.path().join("p"), folder.path().join("out"));
    let words = ["stopped after", "instructions", "before the program's end"];
    stops(&["run", loops], &words);
    stops(&["run", loops, "--functional"], &words);
    let sweep = ["sweep", "--vary", "memory.mshrs=1..4:1", "--program", loops, "--run"];
    stops(&[&sweep[..], &["--out-file", text(&plan)]].concat(), &["interrupted"]);
    stops(&["reproduce", "--program", loops, "--out", text(&out)], &["interrupted"]);
}

/// In every mode of the engine, in order and out of order: the copy is refused before it begins.
#[test]
fn impossible_copies_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = elf::copies(folder.path());
    let end = DATA + DATA_BYTES;
    let cases: [(u64, u64, u64, &str); 7] = [
        (DATA, DATA + 8, 64, "which overlap"),
        (DATA + 8, DATA, 64, "which overlap"),
        (DATA, DATA, 64, "which overlap"),
        (DATA, end - 64, 4096, "would copy to"),
        (end - 64, DATA, 4096, "would copy from"),
        (0x1000, DATA, 64, "would copy from 64 bytes at 0x1000"),
        (DATA, DATA + 4096, u64::MAX, "would copy"),
    ];
    let job = |source: u64, target: u64, bytes: u64| {
        [source, target, bytes].map(|value| format!("{value:#x}"))
    };
    for (policy, issue) in [
        ("sync-nlb", "in-order"),
        ("sync-wlb", "out-of-order"),
        ("async", "in-order"),
        ("async-pipelined", "out-of-order"),
    ] {
        let machine = [format!("engine.policy={policy}"), format!("core.issue={issue}")];
        let run_with = |values: [String; 3]| {
            let mut arguments = vec!["run", text(&program)];
            machine.iter().for_each(|setting| arguments.extend(["--set", setting]));
            values.iter().for_each(|value| arguments.extend(["--argument", value]));
            run(&mut sim(&arguments))
        };
        for (source, target, bytes, says) in cases {
            run_with(job(source, target, bytes)).expect(1).says(&[says, "0x8000000c"]);
        }
        // A copy up to the last byte, and a copy of 0 bytes, are valid.
        run_with(job(DATA, end - 4096, 4096)).expect(0);
        run_with(job(DATA, DATA, 0)).expect(0);
    }
}

#[test]
fn program_size_has_the_documented_limit() {
    /// The size that `haul_sim::image` documents, less code and stack.
    const ROOM: u64 = haul_sim::image::SPAN_BYTES_MAX - (4 << 20);
    let folder = tempfile::tempdir().unwrap();
    let of = |bytes: u64| {
        let segments = [Segment::code(&ENDS), Segment::data(DATA, bytes)];
        elf::write(folder.path(), "large.elf", &elf::file(RISC_V, START, &segments))
    };
    run(&mut sim(&["run", text(&of(ROOM))])).expect(0);
    refused(&of(haul_sim::image::SPAN_BYTES_MAX), &[], &["large.elf"]);
    assert!(fs::metadata(folder.path().join("large.elf")).unwrap().len() < 4096);
}
