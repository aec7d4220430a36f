//! Any bytes as a trace file: the result is an error, or a history that can be replayed. Any bytes
//! as events: the readable events do not change when they are written and read again.
#![no_main]

use haul_model::trace::{
    BLOCK_HEADER_BYTES, BlockHeader, Coder, EVENT_BYTES_MAX, Event, Events, History, Kind,
};
use libfuzzer_sys::fuzz_target;

/// This is far more than a fuzzer's input contains.
const OPERATIONS_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, history)) = History::parse(bytes, OPERATIONS_MAX) {
        assert!(!header.program_name().contains(char::is_control));
        replay(&history);
    }
    let start = BlockHeader { used_bytes: bytes.len() as u32, thread: 1, time_ns: 0 };
    let block = [&start.to_bytes()[..], bytes].concat();
    let events: Vec<Event<'_>> = Events::new(&start, &block).map_while(Result::ok).collect();
    assert_round_trip(&start, &events);
});

/// Asserts that no block begins twice or ends before it begins, and that every index is valid.
fn replay(history: &History) {
    let mut live = vec![false; history.blocks as usize];
    for operation in &history.operations {
        let is_live = &mut live[operation.block as usize];
        let was_live = std::mem::replace(is_live, operation.kind != Kind::Free);
        let begins = matches!(operation.kind, Kind::Allocate | Kind::AllocateZeroed);
        assert_eq!(was_live, !begins);
        assert!(usize::from(operation.thread) < history.threads.len());
        assert!(usize::from(operation.tag) < history.tags.len());
    }
    assert!(history.operations.is_sorted_by_key(|operation| operation.time_ns));
    assert_eq!(live.iter().filter(|live| **live).count(), history.live as usize);
}

fn assert_round_trip(start: &BlockHeader, events: &[Event<'_>]) {
    let mut coder = Coder::new(start);
    let mut block = start.to_bytes().to_vec();
    for event in events {
        let mut room = [0; EVENT_BYTES_MAX];
        let length = coder.put(event, &mut room).expect("an event fits its limit");
        block.extend(&room[..length]);
    }
    let used_bytes = (block.len() - BLOCK_HEADER_BYTES) as u32;
    let header = BlockHeader { used_bytes, ..*start };
    let again: Vec<Event<'_>> =
        Events::new(&header, &block).map(|event| event.expect("what haul wrote")).collect();
    assert_eq!(again, events);
}
