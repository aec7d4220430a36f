//! Another program fills the memory file system that contains a heap's file, except for a few
//! pages. The heap then serves or refuses each request, and no access raises a signal.

use std::fs::File;
use std::io::Write;
use std::ptr::NonNull;
use std::thread;

use haul_heap::{AllocError, Heap, Node, Request};

/// The path of the other program's file.
const FILLER: &str = "/dev/shm/filler";

/// Bytes per page of the file system.
const PAGE: u64 = 4096;

/// The most pages that stay free: more than one request can need.
const PAGES_LEFT_MAX: u64 = 24;

/// Fills the file system except for some pages, and repeats this with different numbers of pages.
pub(crate) fn starve() {
    let mut refused = 0;
    for left in 0..=PAGES_LEFT_MAX {
        // Free pages of the heap stay ready, so that a request needs only metadata.
        let heap = crate::builder().decay(None).shared_named("starve").unwrap();
        let first = heap.alloc(Request::new(4 << 20)).unwrap();
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(first) }.unwrap();
        fill(left);
        refused += use_all_sizes(&heap);
        // Each thread needs a separate cache record.
        for _ in 0..4 {
            refused += thread::scope(|scope| scope.spawn(|| use_all_sizes(&heap)).join().unwrap());
        }
        heap.maintain();
        heap.validate().unwrap();
        heap.trim();
        heap.reap();
        heap.validate().unwrap();
        std::fs::remove_file(FILLER).unwrap();
        assert_eq!(use_all_sizes(&heap), 0, "after memory is free again");
        assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
        heap.validate().unwrap();
        drop(heap);
        Heap::remove_name("starve").unwrap();
    }
    assert!(refused > 0, "no request was refused, so the test shows nothing");
}

/// Another program's file. It grows as long as possible, and is then shortened by `left` pages.
fn fill(left: u64) {
    let mut file = File::create(FILLER).unwrap();
    let page = [1; PAGE as usize];
    while file.write_all(&page).is_ok() {}
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes.saturating_sub(left * PAGE) / PAGE * PAGE).unwrap();
}

/// Allocates a block of each class up to 112 KiB and a larger one, all at the same time. Returns
/// how many requests were refused.
fn use_all_sizes(heap: &Heap) -> usize {
    let mut blocks: Vec<NonNull<u8>> = Vec::new();
    let mut refused = 0;
    let sizes = (6..16).flat_map(|shift| [4, 5, 6, 7].map(|part| (part << shift) / 4));
    for size in sizes.chain([300 << 10]) {
        match heap.alloc(Request::new(size)) {
            Ok(block) => {
                // SAFETY: just allocated with this size.
                unsafe { block.write_bytes(0xA5, size) };
                blocks.push(block);
            }
            Err(AllocError::Exhausted) => refused += 1,
            Err(error) => panic!("{size} bytes: {error}"),
        }
    }
    for block in blocks {
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(block) }.unwrap();
    }
    refused
}
