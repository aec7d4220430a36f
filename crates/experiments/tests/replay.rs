//! Replays and maps in a tiny form. This program also serves as the driver: its test `drives`
//! serves the conversation of a run.

mod support;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_experiments::Experiment;
use haul_experiments::drive::Program;
use haul_experiments::heap::trace::OPERATIONS_MAX;
use haul_experiments::heap::{
    Found, Part, Peer, Replay, Trace, baseline_first, driver, map_shared, map_trace,
    operations_until,
};
use haul_heap::{Heap, Request};
use haul_model::Record;
use haul_model::picture::{self, Slice};
use haul_model::trace::{
    BLOCK_HEADER_BYTES, BlockHeader, Call, Coder, Event, HEADER_BYTES, Header, PROGRAM_BYTES,
};

use support::measured;

/// The environment variable that is set for the drivers that these tests start.
const DRIVES: &str = "HAUL_TEST_DRIVES_A_HEAP";

const BLOCK_BYTES: u32 = 1 << 16;

#[test]
fn drives() {
    if env::var_os(DRIVES).is_some() {
        driver::serve().unwrap();
    }
}

/// Writes a trace file with these events.
fn write(path: &Path, events: &[Event<'_>]) {
    let mut program = [0; PROGRAM_BYTES];
    program[..4].copy_from_slice(b"tiny");
    let header = Header {
        header_bytes: HEADER_BYTES as u32,
        block_bytes: BLOCK_BYTES,
        process: 1,
        parent: 0,
        started_unix_ns: 0,
        clock_ns: 0,
        program,
    };
    let mut file = header.to_bytes().to_vec();
    for part in events.chunks(1000) {
        let start = BlockHeader { used_bytes: 0, thread: 1, time_ns: 0 };
        let mut coder = Coder::new(&start);
        let mut room = vec![0; BLOCK_BYTES as usize - BLOCK_HEADER_BYTES];
        let mut used = 0;
        for event in part {
            used += coder.put(event, &mut room[used..]).expect("a thousand events fit a block");
        }
        file.extend(BlockHeader { used_bytes: used as u32, ..start }.to_bytes());
        file.extend(room);
    }
    std::fs::write(path, file).unwrap();
}

/// Two threads, three times: one allocates a hundred blocks, and the other resizes them and frees
/// all except every tenth. The threads alternate rarely, because each change waits for the
/// scheduler on a busy machine.
fn events() -> Vec<Event<'static>> {
    let name = Call::Name { tag: 1, name: b"kept" };
    let mut events = vec![Event { time_ns: 0, took_ns: 0, thread: 1, call: name }];
    for batch in 0..3_u64 {
        let start_ns = 1_000_000 * batch;
        let address = |index: u64| 0x10_0000 + 0x1_0000 * (100 * batch + index);
        for index in 0..100 {
            let is_kept = index % 10 == 0;
            let call = Call::Allocate {
                address: address(index),
                size: if is_kept { 4096 } else { 100 + index },
                align_log2: if is_kept { 12 } else { 0 },
                zeroed: index % 3 == 0,
                tag: u16::from(is_kept),
            };
            let time_ns = start_ns + 1000 * index;
            events.push(Event { time_ns, took_ns: 50, thread: 1, call });
        }
        for index in (0..100).filter(|index| index % 10 != 0) {
            let (old, new) = (address(index), address(index) + 0x8000);
            let time_ns = start_ns + 500_000 + 1000 * index;
            let call = Call::Reallocate { old, new, size: 5000, align_log2: 0, tag: 0 };
            events.push(Event { time_ns, took_ns: 50, thread: 2, call });
            let call = Call::Free { address: new };
            events.push(Event { time_ns: time_ns + 400, took_ns: 0, thread: 2, call });
        }
    }
    events
}

fn trace(folder: &Path) -> Trace {
    let path = folder.join("tiny.trace");
    write(&path, &events());
    Trace::read(&path, OPERATIONS_MAX, Part::All).unwrap()
}

fn replay(trace: Trace, is_merged: bool) -> Replay {
    let haul = Found { peer: Peer::Haul, library: None };
    Replay {
        trace,
        is_merged,
        heaps: baseline_first(vec![haul, Peer::Libc.find().unwrap()]),
        driver: Program {
            path: env::current_exe().unwrap(),
            arguments: ["drives", "--exact", "--nocapture"].map(Into::into).into(),
            environment: vec![(DRIVES.into(), "1".into())],
        },
        budget: Duration::from_millis(1),
        seed: 1,
        rerun: "haul heap replay tiny.trace".into(),
    }
}

#[test]
fn trace_is_replayed_by_recorded_threads_and_by_one() {
    let folder = tempfile::tempdir().unwrap();
    for (is_merged, threads) in [(false, 2), (true, 1)] {
        let config = replay(trace(folder.path()), is_merged);
        let (done, records, _) = measured(|context| config.measure(context));
        done.unwrap();
        assert!(records.iter().all(|record| record.parameters["threads"] == threads));
        for subject in ["haul", "libc"] {
            let of = |metric: &str, is_point: bool| -> Vec<&Record> {
                let is_it = |record: &&Record| {
                    record.subject == subject
                        && record.metric == metric
                        && record.parameters.contains_key("operations_done") == is_point
                };
                records.iter().filter(is_it).collect()
            };
            assert_eq!((of("time", true).len(), of("footprint", true).len()), (50, 50));
            let ([time], [peak]) = (&of("time", false)[..], &of("footprint_peak", false)[..])
            else {
                panic!("{records:#?}")
            };
            assert!(time.median().unwrap() > 0.0);
            assert_eq!(time.comparison.as_ref().unwrap().baseline, "libc");
            assert!(peak.samples.len() >= 3);
        }
        let asked: Vec<&Record> =
            records.iter().filter(|record| record.subject == "asked for").collect();
        let last = asked.last().unwrap();
        assert_eq!(last.parameters["operations_done"], 30 + 3 * 270);
        assert_eq!(last.median().unwrap(), 30.0 * 4096.0 / 1_048_576.0);
    }
}

#[test]
fn footprint_is_at_least_the_live_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.trace");
    let block = |index: u64| {
        let call = Call::Allocate {
            address: 0x1000_0000 * (index + 1),
            size: 4 << 20,
            align_log2: 0,
            zeroed: false,
            tag: 0,
        };
        Event { time_ns: 1000 * index, took_ns: 10, thread: 1, call }
    };
    write(&path, &(0..10).map(block).collect::<Vec<_>>());
    let trace = Trace::read(&path, OPERATIONS_MAX, Part::All).unwrap();
    let (done, records, _) = measured(|context| replay(trace, false).measure(context));
    done.unwrap();
    for subject in ["haul", "libc"] {
        let is_peak = |r: &&Record| r.subject == subject && r.metric == "footprint_peak";
        let peak = records.iter().find(is_peak).unwrap().median().unwrap();
        assert!((39.9..60.0).contains(&peak), "{subject}: {peak} MiB of 40 MiB");
    }
}

/// The number of calls is so large that a driver's memory for them exceeds the live bytes. The
/// largest number of live bytes is between two points of the history.
#[test]
fn footprint_is_at_least_live_bytes_at_every_point() {
    const BYTES: u64 = 700;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("busy.trace");
    let address = |index: u64| 0x1000_0000 + 0x1000 * index;
    let mut events = Vec::new();
    let mut add = |call: Call<'static>| {
        let time_ns = 100 * events.len() as u64;
        events.push(Event { time_ns, took_ns: 10, thread: 1, call });
    };
    let allocate = |index: u64, size: u64| Call::Allocate {
        address: address(index),
        size,
        align_log2: 0,
        zeroed: false,
        tag: 0,
    };
    for _ in 0..40_000 {
        add(allocate(0, BYTES));
        add(Call::Free { address: address(0) });
    }
    (1..=5_000).for_each(|index| add(allocate(index, BYTES)));
    add(allocate(6_000, 3 << 20));
    add(Call::Free { address: address(6_000) });
    (1..=5_000).for_each(|index| add(Call::Free { address: address(index) }));
    write(&path, &events);
    let trace = Trace::read(&path, OPERATIONS_MAX, Part::All).unwrap();
    let most = (5_000 * BYTES + (3 << 20)) as f64;
    assert_eq!(trace.history.peak_bytes as f64, most);
    let mut config = replay(trace, false);
    let peers = Peer::ALL.iter().filter(|peer| **peer != Peer::Dpdk);
    let own = Found { peer: Peer::Haul, library: None };
    config.heaps = baseline_first(peers.filter_map(|peer| peer.find().ok()).chain([own]).collect());
    let (done, records, warnings) = measured(|context| config.measure(context));
    done.unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let at = |subject: &str| -> Vec<(u64, f64)> {
        let points = records.iter().filter(|r| r.subject == subject && r.metric == "footprint");
        let point = |r: &Record| (r.parameters["operations_done"].as_u64().unwrap(), r.samples[0]);
        points.map(point).collect()
    };
    let asked = at("asked for");
    let largest = asked.iter().map(|(_, mib)| *mib).fold(0.0, f64::max);
    assert_eq!(largest, most / 1_048_576.0);
    for found in &config.heaps {
        let subject = found.peer.name();
        let held = at(subject);
        assert_eq!(held.len(), asked.len(), "{subject}");
        for ((done, held), (_, asked)) in held.iter().zip(&asked) {
            assert!(held >= asked, "{subject}: {held} of {asked} MiB after {done}");
        }
        let peak = held.iter().map(|(_, mib)| *mib).fold(0.0, f64::max);
        assert!(peak >= largest && peak < 8.0 * largest, "{subject}: {peak} of {largest} MiB");
    }
}

#[test]
fn bad_trace_is_reported_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.trace");
    let message = |bytes: &[u8], limit: usize, part: Part| {
        std::fs::write(&path, bytes).unwrap();
        Trace::read(&path, limit, part).unwrap_err().to_string()
    };
    assert!(message(b"", 10, Part::All).contains("bad.trace"));
    assert!(message(b"#!/bin/sh\nexit 0\n", 10, Part::All).contains("not a haul trace"));
    write(&path, &[]);
    let empty = std::fs::read(&path).unwrap();
    assert!(message(&empty, 10, Part::All).contains("has no operation;"));
    write(&path, &events()[1..5]);
    let whole = std::fs::read(&path).unwrap();
    assert!(message(&whole, 2, Part::All).contains("more than 2 operations"));
    write(&path, &events()[2..4]);
    let untagged = std::fs::read(&path).unwrap();
    assert!(message(&untagged, 10, Part::Rte).contains("on this heap"));
    for (name, what) in [("absent", "read"), (".", "not a regular file")] {
        let error = Trace::read(&folder.path().join(name), 10, Part::All).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("libhaul_record"), "{error}");
    }
    let device = Trace::read(&PathBuf::from("/dev/zero"), 10, Part::All).unwrap_err().to_string();
    assert!(device.contains("not a regular file"), "{device}");
}

/// Bytes of a metric, of everything or of one class or tag.
fn bytes(records: &[Record], by: &str, metric: &str, name: &str) -> f64 {
    let is_it = |record: &&Record| {
        record.metric == metric
            && record.parameters["by"] == by
            && (by == "heap" || record.parameters[by] == name)
    };
    records.iter().find(is_it).unwrap_or_else(|| panic!("{metric} {name}")).median().unwrap()
}

#[test]
fn map_of_trace_shows_live_bytes_by_class_and_tag() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let all = trace.history.operations.len();
    let (done, records, _) = measured(|context| map_trace(&trace, all, "again", context));
    done.unwrap();
    let kept = 30.0 * 4096.0;
    assert_eq!(bytes(&records, "tag", "live", "kept"), kept);
    assert_eq!(bytes(&records, "class", "live", "4 KiB"), kept);
    assert_eq!(bytes(&records, "heap", "live", ""), kept);
    assert_eq!(bytes(&records, "heap", "asked_for", ""), kept);
    assert_eq!(bytes(&records, "heap", "rounding", ""), 0.0);
    let parts = ["live", "cached", "free_in_spans", "free_slices"];
    let sum: f64 = parts.iter().map(|metric| bytes(&records, "heap", metric, "")).sum();
    assert_eq!(sum, bytes(&records, "heap", "ready", ""), "every byte has a place");
    let pages: Vec<&Record> = records.iter().filter(|r| r.parameters["by"] == "page").collect();
    let slices: Vec<Slice> = pages
        .iter()
        .flat_map(|page| picture::parse(page.parameters["slices"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(slices.len(), 32 * pages.len());
    let live = |slice: &Slice| match slice {
        Slice::Span { class_bytes: 4096, live, .. } => *live,
        _ => 0,
    };
    assert_eq!(slices.iter().map(live).sum::<u32>(), 30);
}

#[test]
fn map_shows_requested_moment() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    assert_eq!(operations_until(&trace, 0), 0);
    assert_eq!(operations_until(&trace, u64::MAX), trace.history.operations.len());
    let half = operations_until(&trace, 1_400_000);
    let (done, records, _) = measured(|context| map_trace(&trace, half, "again", context));
    done.unwrap();
    assert_eq!(bytes(&records, "tag", "live", "kept"), 20.0 * 4096.0);
    let (done, records, _) = measured(|context| map_trace(&trace, 0, "again", context));
    done.unwrap();
    assert_eq!(bytes(&records, "heap", "live", ""), 0.0);
}

#[test]
fn shared_heap_is_mapped_while_in_use() {
    let name = format!("haul-test-map-{}", std::process::id());
    let heap = Heap::builder().limit(64 << 20).shared_named(&name).unwrap();
    let tag = heap.tag("drawn");
    let blocks: Vec<_> =
        (0..100).map(|_| heap.alloc(Request::new(1000).aligned(8).tagged(tag)).unwrap()).collect();
    let large = heap.alloc(Request::new(1 << 20).aligned(8).tagged(tag)).unwrap();
    let (done, records, _) = measured(|context| map_shared(&name, "again", context));
    done.unwrap();
    assert!(records.iter().all(|record| record.parameters["heap"] == name.as_str()));
    assert_eq!(bytes(&records, "class", "live", "1 KiB"), 102_400.0);
    assert_eq!(bytes(&records, "class", "live", "large"), 1_048_576.0);
    assert_eq!(bytes(&records, "tag", "live", "drawn"), 102_400.0 + 1_048_576.0);
    for block in blocks.into_iter().chain([large]) {
        // SAFETY: the heap allocated it above, and nothing refers to it.
        unsafe { heap.free(block) }.unwrap();
    }
    Heap::remove_name(&name).unwrap();
    let (done, ..) = measured(|context| map_shared("haul-test-absent", "again", context));
    assert!(done.unwrap_err().to_string().contains("haul-test-absent"));
}
