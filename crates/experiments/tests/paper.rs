//! The simulator against its own committed record: machines of the paper, run again, take the
//! cycles that the record says, to the bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use haul_experiments::sim::paper::Mode;
use haul_experiments::sim::reproduce::{Point, warm_packets};
use haul_experiments::sim::{pool, program};
use haul_model::{Line, Record};

const COMPILER: &str = "riscv64-unknown-elf-gcc";

/// The digest of the program that the record was made with, as its README has it; records made
/// since say it themselves.
const RECORDED_PROGRAM: &str = "6e006b792adf76b6";

/// How far cycles may be off where another compiler, or another lwIP, built the program. Chosen:
/// the limit of the record's own accuracy is 5 points, and this must not hide a change of the
/// machine.
const OTHER_PROGRAM_PERCENT: f64 = 5.0;

/// Machines that differ in everything that the record's do, the cheap ones of them.
fn machines() -> Vec<Point> {
    let point = |payload_bytes, mode, in_order| Point {
        payload_bytes,
        mode,
        in_order,
        overlap: true,
        channels: 2,
        latency_ns: 80,
        work: 0,
    };
    vec![
        point(512, Mode::Base, false),
        point(512, Mode::SyncNlb, true),
        point(1024, Mode::SyncWlb, false),
        point(1400, Mode::Async, false),
        Point { channels: 1, ..point(1024, Mode::Async, false) },
        Point { overlap: false, ..point(512, Mode::SyncWlb, true) },
    ]
}

/// The program of the paper's workload; `None` where its compiler is missing.
fn workload() -> Option<std::path::PathBuf> {
    if Command::new(COMPILER).arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: the record of the paper: no {COMPILER} on PATH: apt-get install \
             gcc-riscv64-unknown-elf"
        );
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim-paper");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sim-workload");
    let built = Command::new(script).arg(&folder).output().expect("the script can be run");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(folder.join("receive.elf"))
}

/// The record's runs, by what they ran.
fn recorded() -> BTreeMap<String, Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench/record/2026-11-22-sim-paper/quick.jsonl");
    let lines = haul_model::parse(&std::fs::read_to_string(path).expect("it is there"));
    let mut runs = BTreeMap::new();
    for line in lines.expect("records") {
        if let Line::Record(record) = line
            && record.experiment == "sim.run"
            && record.parameters["work"] == 0
        {
            let told = |name: &str| record.parameters[name].to_string().replace('"', "");
            let names = ["payload_bytes", "mode", "core", "overlap", "channels", "latency_ns"];
            runs.insert(names.map(told).join(" "), record);
        }
    }
    runs
}

fn name(point: &Point) -> String {
    let Point { payload_bytes, mode, overlap, channels, latency_ns, .. } = point;
    format!("{payload_bytes} {} {} {overlap} {channels} {latency_ns}", mode.name(), point.core())
}

#[test]
fn machines_of_the_record_take_the_cycles_that_it_says() {
    let Some(path) = workload() else { return };
    let image = program::read(&path).expect("a sound program");
    let digest = program::digest(&path).expect("it is there");
    let (recorded, points) = (recorded(), machines());
    let packets = |record: &Record| record.parameters["packets"].as_u64().expect("a number");
    let run = |point: &Point| {
        let packets = packets(&recorded[&name(point)]);
        point
            .task(packets, warm_packets(packets))
            .run(&image, &AtomicBool::new(false))
            .expect("it runs")
            .expect("it ends")
    };
    let mut compared = 0;
    let stop = AtomicBool::new(false);
    pool::each(&points, 2, &stop, run, |index, simulated| {
        let (what, record) = (name(&points[index]), &recorded[&name(&points[index])]);
        let cycles = simulated.cycles_per_packet.expect("there are packets");
        let recorded_program = record.parameters.get("program_digest").and_then(|it| it.as_str());
        if recorded_program.unwrap_or(RECORDED_PROGRAM) == digest {
            assert_eq!(simulated.instructions, record.parameters["instructions"], "{what}");
            assert_eq!(cycles, record.samples[0], "{what}: cycles a packet");
        } else {
            let off = (cycles / record.samples[0] - 1.0) * 100.0;
            eprintln!("{what}: another program than the record's, {off:+.2}% of its cycles");
            assert!(off.abs() <= OTHER_PROGRAM_PERCENT, "{what}: {cycles} cycles, {off:+.2}%");
        }
        compared += 1;
        true
    });
    assert_eq!(compared, points.len());
}
