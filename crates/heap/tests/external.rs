//! A heap over the caller's memory, whose extents begin where the caller lets them.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Mutex;

use haul_heap::{EXTENT_BYTES, EXTENT_STEP, Extents, External, Heap, Node};

/// Bytes of the range: extents are taken from its end, as DPDK does it.
const RANGE: usize = 64 << 20;

/// An allocator that keeps the first `kept` bytes of each extent for itself.
struct Provider {
    kept: usize,
    /// Where the next extent ends, and where the range begins.
    end: Mutex<usize>,
    start: usize,
}

impl Extents for Provider {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let mut end = self.end.lock().unwrap();
        let start = end.checked_sub(bytes.next_multiple_of(EXTENT_BYTES))?;
        if start < self.start {
            return None;
        }
        let usable = *end - start - self.kept;
        *end = start;
        NonNull::new((start + self.kept) as *mut u8).map(|start| (start, usable))
    }

    fn give_back(&self, _start: NonNull<u8>, _bytes: usize) -> bool {
        false
    }
}

/// A heap over ordinary memory, which is never freed.
fn heap(kept: usize) -> (Heap, usize) {
    let layout = Layout::from_size_align(RANGE, EXTENT_BYTES).unwrap();
    // SAFETY: the layout's size is not 0.
    let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    let start = base.as_ptr().expose_provenance();
    let end = Mutex::new(start + RANGE);
    let extents = Box::leak(Box::new(Provider { kept, end, start }));
    let external = External { base, bytes: RANGE, extents, metadata: None };
    (Heap::builder().caches(16).external(external).unwrap(), start)
}

#[test]
fn no_block_lies_in_what_the_provider_keeps() {
    for kept in [0, EXTENT_STEP, 5 * EXTENT_STEP] {
        let (heap, start) = heap(kept);
        let mut blocks = BTreeSet::new();
        for size in [64, 4096, 100_000, 300_000].into_iter().cycle().take(400) {
            let Ok(block) = heap.alloc(size, 64, Node::ANY) else { break };
            let first = block.as_ptr().addr() - start;
            let in_page = first % EXTENT_BYTES;
            assert!(in_page >= kept, "a block at {in_page} of a page, {kept} are kept");
            assert!(in_page + size <= EXTENT_BYTES, "{size} bytes at {in_page} cross a page");
            assert!(blocks.insert(first), "handed out twice");
            // SAFETY: the block has `size` bytes and is this test's.
            unsafe { block.write_bytes(0xA5, size) };
        }
        assert!(blocks.len() > 200, "{} blocks", blocks.len());
        heap.validate().unwrap();
        let stats = heap.stats(Node::ANY);
        assert!(stats.ready_bytes > 0);
        assert_eq!(stats.ready_bytes % (EXTENT_BYTES - kept) as u64, 0);
        assert_eq!(stats.live.blocks, blocks.len() as u64);
        for first in blocks {
            let block = NonNull::new((start + first) as *mut u8).unwrap();
            // SAFETY: allocated above, and not used again.
            unsafe { heap.free(block) }.unwrap();
        }
        assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
        heap.validate().unwrap();
    }
}

#[test]
fn what_the_provider_keeps_is_no_block() {
    let (heap, _) = heap(EXTENT_STEP);
    let block = heap.alloc(64, 64, Node::ANY).unwrap();
    let page = block.as_ptr().addr() & !(EXTENT_BYTES - 1);
    let kept = NonNull::new(page as *mut u8).unwrap();
    assert!(heap.usable_size(kept).is_err());
    // SAFETY: no live block is there, and a heap frees none by a wrong pointer.
    assert!(unsafe { heap.free(kept) }.is_err());
    heap.validate().unwrap();
}
