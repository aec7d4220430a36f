use proptest::prelude::*;

use super::*;
use crate::trace::{BLOCK_HEADER_BYTES, Coder, PROGRAM_BYTES};

fn at(time_ns: u64, thread: u32, call: Call<'static>) -> Event<'static> {
    Event { time_ns, took_ns: 0, thread, call }
}

fn malloc(address: u64, size: u64) -> Call<'static> {
    Call::Allocate { address, size, align_log2: 0, zeroed: false, tag: 0 }
}

fn realloc(old: u64, new: u64, size: u64) -> Call<'static> {
    Call::Reallocate { old, new, size, align_log2: 0, tag: 0 }
}

fn free(address: u64) -> Call<'static> {
    Call::Free { address }
}

fn history(events: &[Event<'_>]) -> History {
    let mut builder = Builder::new(1000);
    for event in events {
        builder.add(event).unwrap();
    }
    builder.build()
}

/// Kind, block and size of each operation.
fn steps(history: &History) -> Vec<(Kind, u32, u64)> {
    history.operations.iter().map(|o| (o.kind, o.block, o.size)).collect()
}

#[test]
fn reused_address_is_a_new_block() {
    let history = history(&[
        at(10, 1, malloc(0x100, 8)),
        at(20, 1, malloc(0x200, 16)),
        at(30, 1, free(0x100)),
        at(40, 1, malloc(0x100, 32)),
        at(50, 1, free(0x200)),
    ]);
    assert_eq!(
        steps(&history),
        [
            (Kind::Allocate, 0, 8),
            (Kind::Allocate, 1, 16),
            (Kind::Free, 0, 8),
            (Kind::Allocate, 0, 32),
            (Kind::Free, 1, 16),
        ]
    );
    assert_eq!((history.blocks, history.live, history.peak_bytes), (2, 1, 48));
    assert_eq!(history.oddities, Oddities::default());
}

#[test]
fn events_of_several_threads_are_sorted_by_time() {
    // The consumer's block may precede the producer's block in the file.
    let taken = history(&[
        at(200, 2, free(0x100)),
        at(100, 1, malloc(0x100, 8)),
        at(300, 1, malloc(0x100, 8)),
        at(300, 2, malloc(0x300, 8)),
    ]);
    assert_eq!(taken.oddities, Oddities::default());
    assert_eq!((taken.threads, taken.live), (vec![2, 1], 2));
    let times: Vec<u64> = taken.operations.iter().map(|o| o.time_ns).collect();
    assert!(times.is_sorted());
}

#[test]
fn allocation_counts_at_end_and_free_at_start() {
    // Thread 2 gets the address that thread 1's slow realloc has freed.
    let moved = Event { took_ns: 100, ..at(100, 1, realloc(0x100, 0x900, 64)) };
    let history = history(&[at(10, 1, malloc(0x100, 8)), moved, at(150, 2, malloc(0x100, 24))]);
    assert_eq!(
        steps(&history),
        [(Kind::Allocate, 0, 8), (Kind::Allocate, 1, 24), (Kind::Reallocate, 0, 64)]
    );
    assert_eq!(history.oddities, Oddities::default());
    assert_eq!(history.peak_bytes, 88);
}

#[test]
fn equal_times_keep_order_of_thread() {
    let history = history(&[
        at(10, 1, malloc(0x100, 8)),
        at(10, 1, free(0x100)),
        at(10, 1, malloc(0x100, 8)),
        at(10, 1, realloc(0x100, 0x100, 9)),
        at(10, 1, free(0x100)),
    ]);
    assert_eq!((history.operations.len(), history.live), (5, 0));
    assert_eq!(history.oddities, Oddities::default());
}

#[test]
fn oddities_are_counted_without_error() {
    let history = history(&[
        at(10, 1, free(0x500)),
        at(20, 1, realloc(0x600, 0x700, 64)),
        at(30, 1, malloc(0x700, 8)),
        at(40, 1, malloc(0, 1 << 60)),
        at(50, 1, realloc(0x700, 0, 1 << 60)),
        at(60, 1, Call::Lost { count: 12 }),
        at(70, 1, free(0)),
        at(80, 1, Call::Usable { address: 0x700, size: 24 }),
        at(90, 1, free(0x700)),
    ]);
    let oddities = Oddities { unknown: 2, unfreed: 1, failed: 2, lost: 12, damaged: 0 };
    assert_eq!(history.oddities, oddities);
    assert_eq!(
        steps(&history),
        [(Kind::Allocate, 0, 64), (Kind::Free, 0, 64), (Kind::Allocate, 0, 8), (Kind::Free, 0, 8)]
    );
}

#[test]
fn tags_are_named_with_late_or_missing_names() {
    let tagged =
        |address, tag| Call::Allocate { address, size: 1, align_log2: 0, zeroed: true, tag };
    let history = history(&[
        at(10, 1, tagged(16, 9)),
        at(20, 1, tagged(32, 3)),
        at(30, 1, realloc(32, 48, 2)),
        at(40, 1, Call::Name { tag: 9, name: b"mbuf\x07" }),
        at(50, 1, Call::Name { tag: 9, name: b"other" }),
    ]);
    assert_eq!(history.tags, ["untagged", "mbuf\u{fffd}", "tag 3"]);
    let tags: Vec<u16> = history.operations.iter().map(|o| o.tag).collect();
    assert_eq!(tags, [1, 2, 2], "a reallocation keeps its block's tag");
}

#[test]
fn add_rejects_operations_above_limit() {
    let mut builder = Builder::new(2);
    assert_eq!(builder.add(&at(1, 1, malloc(16, 1))), Ok(()));
    assert_eq!(builder.add(&at(2, 1, malloc(32, 1))), Ok(()));
    assert_eq!(builder.add(&at(3, 1, malloc(48, 1))), Err(TraceError::TooLong { limit: 2 }));
}

/// A file of two blocks, with an allocation and its free in each.
fn file() -> Vec<u8> {
    let header = Header {
        header_bytes: 128,
        block_bytes: 256,
        process: 1,
        parent: 0,
        started_unix_ns: 0,
        clock_ns: 0,
        program: [0; PROGRAM_BYTES],
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(128, 0);
    for thread in 1..=2 {
        let start = BlockHeader { used_bytes: 0, thread, time_ns: 5 };
        let mut coder = Coder::new(&start);
        let mut room = [0; 256 - BLOCK_HEADER_BYTES];
        let address = u64::from(thread) << 8;
        let mut used = coder.put(&at(10, thread, malloc(address, 8)), &mut room).unwrap();
        used += coder.put(&at(20, thread, free(address)), &mut room[used..]).unwrap();
        bytes.extend(BlockHeader { used_bytes: used as u32, ..start }.to_bytes());
        bytes.extend(room);
    }
    bytes
}

#[test]
fn parse_reads_whole_file() {
    let (header, history) = History::parse(&file(), 1000).unwrap();
    assert_eq!((header.block_bytes, history.operations.len()), (256, 4));
    assert_eq!(history.oddities, Oddities::default());
    // The last block's unused end may be missing, and an unused block may follow.
    let whole = file();
    let (_, short) = History::parse(&whole[..whole.len() - 200], 1000).unwrap();
    assert_eq!(short, history);
    let (_, long) = History::parse(&[&whole[..], &[0; 700]].concat(), 1000).unwrap();
    assert_eq!(long, history);
}

#[test]
fn damaged_block_does_not_affect_other_blocks() {
    let mut bytes = file();
    bytes[128] = b'X';
    let (_, history) = History::parse(&bytes, 1000).unwrap();
    assert_eq!((history.operations.len(), history.oddities.damaged), (2, 1));
    let whole = file();
    let first_event = 128 + 256 + BLOCK_HEADER_BYTES;
    for length in first_event..first_event + 8 {
        let (_, history) = History::parse(&whole[..length], 1000).unwrap();
        assert_eq!(history.oddities.damaged, 1, "cut off at {length}");
        assert!(history.operations.len() >= 2);
    }
}

proptest! {
    #[test]
    fn parse_accepts_or_rejects_any_bytes(at in 0_usize..640, bytes: Vec<u8>) {
        let mut file = file();
        for (place, byte) in file.iter_mut().skip(at).zip(bytes) {
            *place = byte;
        }
        let _ = History::parse(&file, 1000);
    }

    /// A replay can execute the history of any events: no block is allocated while it is live, or
    /// freed before it is allocated.
    #[test]
    fn any_events_give_replayable_history(
        events in prop::collection::vec((0_u64..50, 0_u64..20, 0_u32..4, 0_u8..3, 0_u64..6, 0_u64..6), 0..200),
    ) {
        let mut builder = Builder::new(1000);
        for (time_ns, took_ns, thread, kind, one, other) in events {
            let call = match kind {
                0 => malloc(one, other),
                1 => realloc(one, other, 7),
                _ => free(one),
            };
            builder.add(&Event { time_ns, took_ns, thread, call }).unwrap();
        }
        let history = builder.build();
        let mut live = vec![false; history.blocks as usize];
        for operation in &history.operations {
            let is_live = &mut live[operation.block as usize];
            match operation.kind {
                Kind::Allocate | Kind::AllocateZeroed => prop_assert!(!std::mem::replace(is_live, true)),
                Kind::Reallocate => prop_assert!(*is_live),
                Kind::Free => prop_assert!(std::mem::replace(is_live, false)),
            }
            prop_assert!(usize::from(operation.thread) < history.threads.len());
            prop_assert!(usize::from(operation.tag) < history.tags.len());
        }
        prop_assert_eq!(live.iter().filter(|live| **live).count(), history.live as usize);
    }
}
