//! The simulator against its own committed record: machines of the paper, run again, take the
//! cycles that the record says, to the bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use haul_experiments::sim::paper::Mode;
use haul_experiments::sim::pool;
use haul_experiments::sim::program::Program;
use haul_experiments::sim::reproduce::{Point, warm_packets};
use haul_model::{Line, Record};

/// The digest of the program that the record was made with, as its README has it; records made
/// since say it themselves.
const RECORDED_PROGRAM: &str = "6e006b792adf76b6";

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
