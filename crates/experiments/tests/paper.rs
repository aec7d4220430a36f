//! The simulator against its own committed record: some machines of the paper run again, and take
//! exactly the recorded cycles.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use haul_experiments::sim::paper::Mode;
use haul_experiments::sim::pool;
use haul_experiments::sim::program::Program;
use haul_experiments::sim::reproduce::{Point, warm_packets};
use haul_model::{Line, Record};

/// The digest of the record's program, from its README. Later records contain their digest.
const RECORDED_PROGRAM: &str = "6e006b792adf76b6";

/// Machines that differ in every property in which the record's machines differ. Of all such sets
/// of machines, these have the shortest runs.
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

/// The record's runs, by their machines.
fn recorded() -> BTreeMap<String, Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../bench/record/2026-11-22-sim-paper/quick.jsonl");
    let lines = haul_model::parse(&std::fs::read_to_string(path).expect("it exists"));
    let mut runs = BTreeMap::new();
    for line in lines.expect("records") {
        if let Line::Record(record) = line
            && record.experiment == "sim.run"
            && record.parameters["work"] == 0
        {
            let shown = |name: &str| record.parameters[name].to_string().replace('"', "");
            let names = ["payload_bytes", "mode", "core", "overlap", "channels", "latency_ns"];
            runs.insert(names.map(shown).join(" "), record);
        }
    }
    runs
}

fn name(point: &Point) -> String {
    let Point { payload_bytes, mode, overlap, channels, latency_ns, .. } = point;
    format!("{payload_bytes} {} {} {overlap} {channels} {latency_ns}", mode.name(), point.core())
}

#[test]
fn recorded_machines_take_recorded_cycles() {
    let program = Program::named("receive").expect("haul holds it");
    let (image, digest) = (program.image().expect("a sound program"), program.digest());
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
        let recorded_program = record.text("program_digest");
        assert_eq!(recorded_program.unwrap_or(RECORDED_PROGRAM), digest, "another program");
        assert_eq!(simulated.instructions, record.parameters["instructions"], "{what}");
        assert_eq!(cycles, record.samples[0], "{what}: cycles a packet");
        compared += 1;
        true
    });
    assert_eq!(compared, points.len());
}
