//! Pages from committed records, and of every experiment that no other page has.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use haul_model::{Kind, Line, Record};

/// A kind of page, and the record that it is made from.
const RECORDED: [(&str, &str); 16] = [
    ("sizes of copies", "2026-11-24-zen4-avx512-2cpu-copy/sizes.jsonl.gz"),
    ("classes by their reader", "2026-11-24-zen4-avx512-2cpu-copy/then-read.jsonl.gz"),
    ("heaps that grow", "2026-11-24-zen4-avx512-2cpu-heap/growth.jsonl.gz"),
    ("latency of a heap", "2026-11-24-zen4-avx512-2cpu-heap/latency.jsonl.gz"),
    ("the drop-in", "2026-11-24-zen4-avx512-2cpu-heap/drop-in.jsonl.gz"),
    ("transfers on a busy machine", "2026-11-24-zen4-avx512-2cpu-channel/busy.jsonl.gz"),
    ("flow through a guest", "2026-11-25-emerald-rapids-2cpu-forward/pvp-64.jsonl.gz"),
    ("packets to a guest", "2026-11-25-emerald-rapids-2cpu-forward/enqueue-512.jsonl.gz"),
    ("packets from a guest", "2026-11-25-emerald-rapids-2cpu-forward/dequeue-1500.jsonl.gz"),
    ("packets round and round", "2026-11-25-emerald-rapids-2cpu-forward/loopback-64.jsonl.gz"),
    ("load without loss", "2026-11-25-emerald-rapids-2cpu-forward-peers/ndr.jsonl.gz"),
    ("sizes of packets", "2026-11-25-emerald-rapids-2cpu-forward-peers/sweep.jsonl.gz"),
    ("a capture replayed", "2026-11-25-emerald-rapids-2cpu-forward-peers/pcap-64.jsonl.gz"),
    ("sweep of a NIC by its clock", "2026-11-25-pcie-sweep/clock.jsonl.gz"),
    ("speed of the simulator", "2026-11-22-sim-paper/speed.jsonl"),
    ("what the simulated server computes", "2026-11-22-sim-paper/functional.jsonl"),
];

/// Each kind and its records.
pub(crate) fn all() -> Vec<(&'static str, Vec<Line>)> {
    RECORDED.iter().map(|(kind, path)| (*kind, lines(path))).collect()
}

/// The lines of a file below `bench/record`.
pub(crate) fn lines(path: &str) -> Vec<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/record");
    let bytes = fs::read(root.join(path)).unwrap();
    let mut text = String::new();
    match path.ends_with(".gz") {
        true => MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap(),
        false => (&bytes[..]).read_to_string(&mut text).unwrap(),
    };
    haul_model::parse(&text).unwrap()
}

/// The bursts of a watched program: two queues, and the traffic on the link.
pub(crate) fn watched() -> Vec<Line> {
    let one = |subject: &str, metric: &str, unit: &str, samples: &[f64]| {
        let mut record = Record::new("run-9", "pcie.burst", subject, metric, unit)
            .with("port", 0)
            .with("device", "0000:3b:00.0")
            .with("port_driver", "net_ice");
        record.samples = samples.to_vec();
        record
    };
    let mut records = Vec::new();
    for (direction, batches) in
        [("rx", "0:51234,1:900,2:120,4:80,8:64,16:31,32:8801"), ("tx", "1:903,4:80,31:20,32:8800")]
    {
        for queue in [0, 1] {
            let rates: Vec<f64> = (0..40).map(|at| 6e6 + 1e5 * f64::from(at * 7 % 13)).collect();
            let record = one("dpdk-22.11.11", "packets", "packets/s", &rates);
            let record = record.with("queue", queue).with("direction", direction);
            records.push(record.with("batches", batches));
        }
    }
    for (metric, rate) in [
        ("inbound_read", 1.2e9),
        ("inbound_write", 1.3e9),
        ("outbound_read", 0.0),
        ("outbound_write", 9e6),
        ("to_host", 1.6e9),
        ("to_device", 1.4e9),
    ] {
        let mut record = one("haul", metric, "bytes/s", &[rate, rate * 1.01, rate * 0.99])
            .with("nic", "ice")
            .with("usable_bytes_per_s", 14.8e9);
        record.kind = Kind::Modelled;
        records.push(record);
        records.push(one("intel-iio", metric, "bytes/s", &[rate * 1.02, rate * 1.03, rate]));
    }
    records.into_iter().map(Line::from).collect()
}

/// A record of each experiment that none of these lines has: a page shows it as a table.
pub(crate) fn of_no_page<'a>(pages: impl Iterator<Item = &'a Line>) -> Vec<Line> {
    let known: BTreeSet<&str> = pages
        .filter_map(|line| match line {
            Line::Record(record) => Some(record.experiment.as_str()),
            Line::Machine(_) => None,
        })
        .collect();
    let names = include_str!("../../../model/src/experiment/name.rs");
    let all: BTreeSet<&str> = names.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert!(all.len() > 40 && all.contains("copy.size"), "{all:?}");
    let missing = all.difference(&known).filter(|name| !name.ends_with('.'));
    let record = |(number, name): (usize, &&str)| {
        let mut record = Record::new("run-9", name, "haul", "time", "ns")
            .with("size_bytes", 1_u64 << (number % 30))
            .with("align_bytes", 4096)
            .with("threads", 1)
            .with("what", "a reason of some length, as a channel gives one for what it chooses");
        record.samples = vec![10.0, 11.0, 12.5];
        Line::from(record)
    };
    missing.enumerate().map(record).collect()
}
