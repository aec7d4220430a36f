//! A trace of allocations, in the recorder's format.

use std::fs;
use std::path::{Path, PathBuf};

use haul_model::trace::{
    BLOCK_HEADER_BYTES, BlockHeader, Call, Coder, Event, HEADER_BYTES, Header, PROGRAM_BYTES,
};

/// A trace of a hundred blocks of a page, every other one freed.
pub(crate) fn trace(folder: &Path) -> PathBuf {
    let header = Header {
        header_bytes: HEADER_BYTES as u32,
        block_bytes: 1 << 14,
        process: 1,
        parent: 0,
        started_unix_ns: 0,
        clock_ns: 0,
        program: [b'p'; PROGRAM_BYTES],
    };
    let start = BlockHeader { used_bytes: 0, thread: 1, time_ns: 0 };
    let mut coder = Coder::new(&start);
    let mut room = vec![0; (1 << 14) - BLOCK_HEADER_BYTES];
    let mut used = 0;
    for index in 0..100_u64 {
        let address = 0x1000 * (index + 1);
        let allocate =
            Call::Allocate { address, size: 4096, align_log2: 12, zeroed: false, tag: 0 };
        let calls = [allocate, Call::Free { address }];
        for call in calls.into_iter().take(1 + index as usize % 2) {
            let event = Event { time_ns: 1_000_000 * index, took_ns: 0, thread: 1, call };
            used += coder.put(&event, &mut room[used..]).unwrap();
        }
    }
    let path = folder.join("a trace");
    let block = BlockHeader { used_bytes: used as u32, ..start };
    fs::write(&path, [&header.to_bytes()[..], &block.to_bytes(), &room].concat()).unwrap();
    path
}
