use proptest::prelude::*;

use super::*;
use crate::trace::BLOCK_HEADER_BYTES;

const START: BlockHeader = BlockHeader { used_bytes: 0, thread: 7, time_ns: 1000 };

/// A block with these events.
fn encoded(events: &[Event<'_>]) -> Vec<u8> {
    let mut block = START.to_bytes().to_vec();
    let mut coder = Coder::new(&START);
    for event in events {
        let mut room = [0; EVENT_BYTES_MAX];
        let length = coder.put(event, &mut room).expect("an event fits its limit");
        block.extend(&room[..length]);
    }
    let used_bytes = (block.len() - BLOCK_HEADER_BYTES) as u32;
    block[..BLOCK_HEADER_BYTES].copy_from_slice(&BlockHeader { used_bytes, ..START }.to_bytes());
    block
}

fn read(block: &[u8]) -> Vec<Result<Event<'_>, TraceError>> {
    let header = BlockHeader::parse(block, 1 << 20).unwrap().unwrap();
    Events::new(&header, block).collect()
}

fn malloc(time_ns: u64, address: u64, size: u64) -> Event<'static> {
    let call = Call::Allocate { address, size, align_log2: 0, zeroed: false, tag: 0 };
    Event { time_ns, took_ns: 40, thread: 7, call }
}

#[test]
fn common_events_need_at_most_five_bytes() {
    let mut events = Vec::new();
    for index in 0..100 {
        events.push(malloc(1000 + 200 * index, 0x5555_0000_0000 + 64 * index, 48));
        let call = Call::Free { address: 0x5555_0000_0000 + 64 * index };
        events.push(Event { time_ns: 1100 + 200 * index, took_ns: 0, thread: 7, call });
    }
    let block = encoded(&events);
    let each = (block.len() - BLOCK_HEADER_BYTES) as f64 / 200.0;
    assert!(each <= 5.0, "{each} bytes an event");
    let read: Vec<_> = read(&block).into_iter().map(Result::unwrap).collect();
    assert_eq!(read, events);
}

#[test]
fn put_writes_earlier_time_as_last_time() {
    let block = encoded(&[malloc(5000, 16, 1), malloc(4000, 32, 1)]);
    let times: Vec<u64> = read(&block).into_iter().map(|event| event.unwrap().time_ns).collect();
    assert_eq!(times, [5000, 5000]);
}

#[test]
fn put_without_room_changes_nothing() {
    let mut coder = Coder::new(&START);
    let event = Event { thread: 8, ..malloc(2000, 0x7fff_0000_1234, 1 << 40) };
    let mut room = [0; EVENT_BYTES_MAX];
    let length = coder.put(&event, &mut room).unwrap();
    for short in 0..length {
        let mut coder = Coder::new(&START);
        assert_eq!(coder.put(&event, &mut room[..short]), None);
        assert_eq!(coder.put(&event, &mut room), Some(length), "after a failure");
    }
}

#[test]
fn damage_is_reported_and_ends_block() {
    let first = malloc(2000, 0x1000, 48);
    let whole = encoded(&[first, malloc(3000, 0x2000, 48)]);
    let bytes = encoded(&[first]).len();
    for (byte, what) in [(0x00, "kind"), (0x80, "kind"), (0x08 | FREE, "kind"), (0xff, "kind")] {
        let mut block = whole.clone();
        block[bytes] = byte;
        let events = read(&block);
        assert_eq!(events.len(), 2, "{byte:#x}");
        assert_eq!(events[0], Ok(first));
        let message = events[1].clone().unwrap_err().to_string();
        assert!(message.contains(what) && message.contains("damaged at byte"), "{message}");
    }
    for cut in bytes + 1..whole.len() {
        let events = read(&whole[..cut]);
        assert!(events.len() == 2 && events[1].is_err(), "cut off at {cut}");
    }
}

#[test]
fn events_reject_numbers_out_of_bounds() {
    let of = |bytes: &[u8]| {
        let header = BlockHeader { used_bytes: bytes.len() as u32, ..START };
        let block = [&header.to_bytes()[..], bytes].concat();
        Events::new(&header, &block).next().unwrap().unwrap_err().to_string()
    };
    assert!(of(&[ALLOCATE | ALIGNED, 0, 0, 64, 0, 0]).contains("alignment"));
    assert!(of(&[ALLOCATE | ALIGNED, 0, 0, 0, 0, 0]).contains("alignment"));
    assert!(of(&[ALLOCATE | TAGGED, 0, 0, 0x80, 0x20, 0, 0]).contains("a tag is not"));
    assert!(of(&[NAME, 1, 64]).contains("longer than 63"));
    assert!(of(&[NAME, 1, 5, b'a']).contains("does not end"));
    assert!(of(&[THREAD, 0xff, 0xff, 0xff, 0xff, 0x7f]).contains("thread"));
    let forever = [&[FREE][..], &[0xff; 9], &[1, 0]].concat();
    assert!(of(&forever).contains("a time is beyond"));
}

fn any_call() -> impl Strategy<Value = Call<'static>> {
    let number = || prop_oneof![any::<u64>(), 0_u64..5000, Just(0)];
    prop_oneof![
        (number(), number(), 0_u8..64, any::<bool>(), 0..TAGS_MAX).prop_map(
            |(address, size, align_log2, zeroed, tag)| Call::Allocate {
                address,
                size,
                align_log2,
                zeroed,
                tag
            }
        ),
        (number(), number(), number(), 0_u8..64, 0..TAGS_MAX).prop_map(
            |(old, new, size, align_log2, tag)| Call::Reallocate {
                old,
                new,
                size,
                align_log2,
                tag
            }
        ),
        number().prop_map(|address| Call::Free { address }),
        (number(), number()).prop_map(|(address, size)| Call::Usable { address, size }),
        (1..TAGS_MAX, 0_usize..=NAME_BYTES_MAX)
            .prop_map(|(tag, length)| Call::Name { tag, name: &[b'n'; NAME_BYTES_MAX][..length] }),
        number().prop_map(|count| Call::Lost { count }),
    ]
}

proptest! {
    #[test]
    fn events_round_trip(calls in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 20, 0_u32..3, any_call()), 0..50)) {
        let mut time_ns = START.time_ns;
        let events: Vec<Event<'_>> = calls
            .into_iter()
            .map(|(since, took_ns, thread, call)| {
                // Notes have no time of their own, and only allocations have a duration.
                let is_note = matches!(call, Call::Name { .. } | Call::Lost { .. });
                let is_timed = matches!(call, Call::Allocate { .. } | Call::Reallocate { .. });
                time_ns += if is_note { 0 } else { since };
                Event { time_ns, took_ns: if is_timed { took_ns } else { 0 }, thread, call }
            })
            .collect();
        let block = encoded(&events);
        let read: Vec<_> = read(&block).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(read, events);
    }

    #[test]
    fn events_accept_or_reject_any_bytes(bytes: Vec<u8>) {
        let header = BlockHeader { used_bytes: bytes.len() as u32, ..START };
        let block = [&header.to_bytes()[..], &bytes].concat();
        for event in Events::new(&header, &block).flatten() {
            prop_assert!(event.time_ns.checked_add(event.took_ns).is_some());
        }
    }
}
