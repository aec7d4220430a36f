use proptest::prelude::*;

use super::layout::{self, BLOCK_BYTES, EVENT_BYTES, block, head, process, thread};
use super::*;
use crate::stream::{Function, PAGE_BYTES, Read, ReadsBy, SIZE_MAX, Stream, TimeClass};

/// A file that a recorder could have written: 2 processes, 2 threads.
struct File {
    bytes: Vec<u8>,
    blocks: u32,
}

impl File {
    fn new() -> Self {
        let mut file = Self { bytes: vec![0; layout::blocks_at(2, 2)], blocks: 0 };
        file.bytes[..8].copy_from_slice(&layout::MAGIC);
        for (at, value) in [
            (head::VERSION_AT, layout::VERSION),
            (head::PROCESSES, 2),
            (head::THREADS, 2),
            (head::NEXT_PROCESS, 2),
            (head::NEXT_THREAD, 2),
        ] {
            file.put(at, value);
        }
        file.process(0, process::ID, 41);
        file.process(1, process::ID, 42);
        file.process(1, process::PARENT, 1);
        file.put_bytes(layout::HEADER_BYTES + process::PROGRAM, b"sort");
        // Three ticks in a nanosecond.
        file.put_long(layout::HEADER_BYTES + process::LATE_TICKS, 3_000_000);
        file.put_long(layout::HEADER_BYTES + process::LATE_NS, 1_000_000);
        file.thread(0, thread::PROCESS, 1);
        file.thread(1, thread::PROCESS, 2);
        file
    }

    fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put(&mut self, at: usize, value: u32) {
        self.put_bytes(at, &value.to_ne_bytes());
    }

    fn put_long(&mut self, at: usize, value: u64) {
        self.put_bytes(at, &value.to_ne_bytes());
    }

    fn process(&mut self, index: usize, field: usize, value: u32) {
        self.put(layout::HEADER_BYTES + index * layout::PROCESS_BYTES + field, value);
    }

    fn thread(&mut self, index: usize, field: usize, value: u32) {
        let threads = layout::HEADER_BYTES + 2 * layout::PROCESS_BYTES;
        self.put(threads + index * layout::THREAD_BYTES + field, value);
    }

    /// Appends a block and returns a reference to it.
    fn block(&mut self, events: &[[u64; 3]]) -> u32 {
        let at = self.bytes.len();
        self.bytes.resize(at + BLOCK_BYTES, 0);
        self.put(at + block::USED, events.len() as u32);
        for (index, words) in events.iter().enumerate() {
            let at = at + layout::BLOCK_HEADER_BYTES + index * EVENT_BYTES;
            words.iter().enumerate().for_each(|(word, value)| self.put_long(at + 8 * word, *value));
        }
        self.blocks += 1;
        self.blocks
    }

    fn with_events(events: &[Event]) -> Self {
        let mut file = Self::new();
        let words: Vec<[u64; 3]> = events.iter().map(|event| event.to_words()).collect();
        let first = file.block(&words);
        file.thread(0, thread::FIRST_BLOCK, first);
        file.thread(0, thread::CALLS, events.len() as u32);
        file
    }

    fn stream(&self, modules: &Modules) -> Stream {
        let recording = Recording::parse(&self.bytes).unwrap();
        let about = About { about: "a test".into(), ..About::default() };
        let stream = recording.stream(recording.busiest().unwrap(), modules, &about);
        assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
        stream
    }
}

const BASE: u64 = 0x7f12_3456_0000;

fn event(target: u64, source: u64, size: u32) -> Event {
    Event { kind: Kind::MEMCPY, site: 0x5555_1a31, target, source, size, since_ticks: 300 }
}

#[test]
fn stream_has_offsets_in_pages_that_calls_use() {
    // The target crosses into the next page; the source is far away; the last is the page before.
    let page = u64::from(PAGE_BYTES);
    let events = [
        event(BASE + 4000, BASE + 1000 * page + 7, 200),
        Event { kind: Kind::ZERO, ..event(BASE - page, 0, 16) },
    ];
    let mut modules = Modules::default();
    modules.add("55550000-55559000 r-xp 00000000 08:01 12 /usr/bin/sort");
    let stream = File::with_events(&events).stream(&modules);
    let first = stream.calls[0];
    assert_eq!((first.target, first.source), (PAGE_BYTES + 4000, Some(4 * PAGE_BYTES + 7)));
    assert_eq!(first.since, TimeClass::of_ns(100));
    assert_eq!((stream.calls[1].target, stream.calls[1].source), (0, None));
    assert_eq!(stream.calls[1].function, Function::Memset { zero: true });
    assert_eq!(stream.header.pages, 5, "three adjacent pages, a gap, and that of the source");
    assert_eq!(stream.sites.len(), 1);
    let site = &stream.sites[0];
    assert_eq!((site.module.as_str(), site.offset), ("sort", 0x1a31));
    assert_eq!((stream.header.program.as_str(), stream.header.about.as_str()), ("sort", "a test"));
}

#[test]
fn calls_that_do_not_fit_are_counted() {
    let events = [
        event(BASE, BASE, SIZE_MAX + 1),
        event(BASE, BASE, u32::MAX),
        event(0x1000, BASE, SIZE_MAX),
        event(0x2000_0000_1000, 0x3000_0000_1000, SIZE_MAX),
        event(0x4000_0000_1000, 0x4100_0000_1000, SIZE_MAX),
        event(0x1000, BASE, 8),
    ];
    let stream = File::with_events(&events).stream(&Modules::default());
    let sizes: Vec<u32> = stream.calls.iter().map(|call| call.size).collect();
    assert_eq!(sizes, [SIZE_MAX, 8], "an arena has 256 MiB, and the gaps need pages too");
    assert_eq!(stream.header.left_out, 4);
    assert_eq!(stream.sites[0].module, "(no file)");
}

#[test]
fn later_calls_show_reads_without_samples() {
    let events = [
        event(BASE, BASE + 4096, 64),
        // It reads the first target.
        event(BASE + 8192, BASE + 32 - 32, 16),
        // It overwrites the second.
        Event { kind: Kind::FILL, site: 9, ..event(BASE + 8192, 0, 64) },
    ];
    let stream = File::with_events(&events).stream(&Modules::default());
    assert_eq!(stream.header.reads_by, ReadsBy::LaterCalls);
    let reads: Vec<Read> = stream.calls.iter().map(|call| call.read).collect();
    assert_eq!(reads, [Read::After(TimeClass::of_ns(100)), Read::NotRead, Read::NotRead]);
    assert_eq!((stream.sites[0].sampled, stream.sites[0].read_soon), (2, 1));
}

#[test]
fn samples_show_reads_of_calls_and_sites() {
    let mut file = File::with_events(&[event(BASE, BASE, 1), event(BASE, BASE, 2)]);
    let sample = |call, read_ns| Sample { call, site: 0x5555_1a31, read_ns }.to_words();
    // The last one is of a call that was not kept.
    let samples = [sample(1, Some(40)), sample(0, None), sample(900, Some(5000))];
    let first = file.block(&samples);
    file.thread(0, thread::FIRST_SAMPLES, first);
    let stream = file.stream(&Modules::default());
    assert_eq!(stream.header.reads_by, ReadsBy::Breakpoint);
    assert_eq!(stream.calls[0].read, Read::NotRead);
    assert_eq!(stream.calls[1].read, Read::After(TimeClass::of_ns(40)));
    assert_eq!((stream.sites[0].sampled, stream.sites[0].read_soon), (3, 1));
}

#[test]
fn busiest_is_of_process_with_most_calls() {
    let mut file = File::new();
    file.thread(0, thread::CALLS, 5);
    file.thread(1, thread::CALLS, 6);
    let recording = Recording::parse(&file.bytes).unwrap();
    assert_eq!(recording.busiest(), Some(1));
    assert_eq!(recording.threads[1].process, 1);
    assert_eq!(recording.processes[1].parent, Some(0));
    assert_eq!(recording.number(1), 0, "the first of its process");
}

#[test]
fn parse_survives_damage() {
    let whole = File::with_events(&[event(BASE, BASE, 1)]).bytes;
    assert!(Recording::parse(&whole[..100]).is_err());
    assert!(Recording::parse(&[0; 8192]).is_err());
    let threads = layout::HEADER_BYTES + 2 * layout::PROCESS_BYTES;
    let blocks = layout::blocks_at(2, 2);
    for (at, value) in [
        (head::PROCESSES, u32::MAX),
        (head::THREADS, 100_000),
        (threads + thread::FIRST_BLOCK, u32::MAX),
        (threads + thread::PROCESS, 77),
        (blocks + block::USED, u32::MAX),
        (blocks + block::NEXT, 1),
        (layout::HEADER_BYTES + process::MAPS, u32::MAX),
        (layout::HEADER_BYTES + process::PARENT, 1),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        if let Ok(recording) = Recording::parse(&bytes) {
            assert!(recording.threads.iter().all(|thread| thread.events.len() <= 682));
        }
    }
}

proptest! {
    /// Whatever a process leaves in the file, its threads are streams that can be written.
    #[test]
    fn any_events_are_streams(
        events in proptest::collection::vec(any::<[u64; 3]>(), 0..40),
        samples in proptest::collection::vec(any::<[u64; 3]>(), 0..5),
        near in proptest::collection::vec((any::<u16>(), any::<u16>(), any::<u16>()), 0..40),
        damage in proptest::collection::vec((0..layout::blocks_at(2, 2), any::<u8>()), 0..8),
        maps: String,
    ) {
        let near = near.into_iter().map(|(target, source, size)| {
            event(BASE + u64::from(target), BASE + u64::from(source), size.into()).to_words()
        });
        let mut file = File::new();
        let words: Vec<[u64; 3]> = events.into_iter().chain(near).collect();
        let (calls, samples) = (file.block(&words), file.block(&samples));
        file.thread(0, thread::FIRST_BLOCK, calls);
        file.thread(1, thread::FIRST_SAMPLES, samples);
        for (at, byte) in damage {
            file.bytes[at] = byte;
        }
        let mut modules = Modules::default();
        modules.add(&maps);
        modules.add("0-ffffffffffff r-xp 0 0:0 0 /a/\u{1}");
        if let Ok(recording) = Recording::parse(&file.bytes) {
            for thread in 0..recording.threads.len() {
                let stream = recording.stream(thread, &modules, &About::default());
                prop_assert_eq!(Stream::read(&stream.write().unwrap()).unwrap(), stream);
            }
        }
    }
}
