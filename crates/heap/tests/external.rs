//! A heap in external memory. The extents begin at any multiple of the step.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use haul_heap::{
    AllocError, EXTENT_BYTES, EXTENT_STEP, Extents, External, Heap, Iova, Node, Request,
};

/// The size of the range in bytes. The provider hands out extents from its end, like DPDK.
const RANGE: usize = 64 << 20;

/// A provider that keeps the first `kept` bytes of each extent for itself.
struct Provider {
    kept: usize,
    /// The end of the next extent. The next field is the start of the range.
    end: Mutex<usize>,
    start: usize,
    /// Pages that were given back.
    idle: Mutex<BTreeSet<usize>>,
}

// SAFETY: extents are ordinary memory that is never freed. Each page has one user at a time: it
// is handed out again only after it was given back.
unsafe impl Extents for Provider {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let kept = |page| page + self.kept;
        let idle = || self.idle.lock().unwrap().pop_first();
        if let Some(page) = (bytes <= EXTENT_BYTES).then(idle).flatten() {
            let start = NonNull::new(kept(page) as *mut u8);
            return start.map(|start| (start, EXTENT_BYTES - self.kept));
        }
        let mut end = self.end.lock().unwrap();
        let start = end.checked_sub(bytes.next_multiple_of(EXTENT_BYTES))?;
        if start < self.start {
            return None;
        }
        let usable = *end - start - self.kept;
        *end = start;
        NonNull::new(kept(start) as *mut u8).map(|start| (start, usable))
    }

    fn give_back(&self, start: NonNull<u8>, bytes: usize) -> bool {
        let start = start.as_ptr().addr();
        let mut idle = self.idle.lock().unwrap();
        (0..bytes / EXTENT_BYTES).all(|page| idle.insert(start + page * EXTENT_BYTES))
    }

    fn bus_address(&self, address: NonNull<u8>) -> Option<u64> {
        let offset = address.addr().get().wrapping_sub(self.start);
        assert!(offset < RANGE, "the heap asked for an address outside the provider's range");
        Some(offset as u64)
    }
}

/// A heap in ordinary memory, which is never freed.
fn heap(kept: usize) -> (Heap, &'static Provider) {
    let layout = Layout::from_size_align(RANGE, EXTENT_BYTES).unwrap();
    // SAFETY: the layout's size is not 0.
    let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    let start = base.as_ptr().expose_provenance();
    let end = Mutex::new(start + RANGE);
    let idle = Mutex::default();
    let extents: &Provider = Box::leak(Box::new(Provider { kept, end, start, idle }));
    let external = External { base, bytes: RANGE, extents, metadata: None };
    // SAFETY: the range is memory of this test that is never freed; the metadata belongs to the
    // heap.
    let heap = unsafe { Heap::builder().caches(64).external(external) };
    (heap.unwrap(), extents)
}

#[test]
fn no_block_lies_in_slices_kept_by_the_provider() {
    for kept in [0, EXTENT_STEP, 5 * EXTENT_STEP] {
        let (heap, provider) = heap(kept);
        let start = provider.start;
        let mut blocks = BTreeSet::new();
        for size in [64, 4096, 100_000, 300_000].into_iter().cycle().take(400) {
            let Ok(block) = heap.alloc(Request::new(size)) else { break };
            let first = block.as_ptr().addr() - start;
            let in_page = first % EXTENT_BYTES;
            assert!(in_page >= kept, "a block at {in_page} of a page, {kept} are kept");
            assert!(in_page + size <= EXTENT_BYTES, "{size} bytes at {in_page} cross a page");
            assert!(blocks.insert(first), "handed out twice");
            // SAFETY: the test owns the block, which has `size` bytes.
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
fn pointer_into_kept_slices_is_refused() {
    let (heap, _) = heap(EXTENT_STEP);
    let block = heap.alloc(Request::new(64)).unwrap();
    let page = block.as_ptr().addr() & !(EXTENT_BYTES - 1);
    let kept = NonNull::new(page as *mut u8).unwrap();
    // SAFETY: no live block is there.
    assert!(unsafe { heap.usable_size(kept) }.is_err());
    // SAFETY: as above; a wrong pointer frees nothing.
    assert!(unsafe { heap.free(kept) }.is_err());
    heap.validate().unwrap();
}

/// A provider may use the address as an index, so a call of a safe function must not pass an
/// address outside the provider's range to it.
#[test]
fn iova_asks_the_provider_about_its_own_range_only() {
    let (heap, provider) = heap(0);
    let last = provider.start + RANGE - 1;
    let at = |address: usize| NonNull::new(address as *mut u8).unwrap();
    assert_eq!(heap.iova(at(provider.start)), Iova::Provided(0));
    assert_eq!(heap.iova(at(last)), Iova::Provided(RANGE as u64 - 1));
    for address in [1, provider.start - 1, last + 1, usize::MAX] {
        assert_eq!(heap.iova(at(address)), Iova::Virtual(address as u64));
    }
    assert_eq!(heap.contiguous(at(last - 99), 4096), 100);
    assert_eq!(heap.contiguous(at(usize::MAX), 4096), 1, "nothing follows the last address");
    assert!(heap.alloc_contiguous(Request::new(100_000)).is_ok());
}

#[test]
fn trim_gives_free_pages_back_and_they_are_reused() {
    let (heap, provider) = heap(EXTENT_STEP);
    let mut least = usize::MAX;
    for round in 0..4 {
        let blocks: Vec<_> = (0..80).map(|_| heap.alloc(Request::new(60_000)).unwrap()).collect();
        let ready = heap.stats(Node::ANY).ready_bytes;
        assert_eq!(heap.trim(), 0, "round {round}");
        for block in blocks {
            // SAFETY: allocated above, and not used again.
            unsafe { heap.free(block) }.unwrap();
        }
        let pages = heap.trim() as usize;
        assert_eq!(pages, provider.idle.lock().unwrap().len(), "round {round}");
        assert_eq!(pages * (EXTENT_BYTES - EXTENT_STEP), ready as usize);
        assert_eq!(heap.stats(Node::ANY).ready_bytes, 0);
        heap.validate().unwrap();
        least = least.min(*provider.end.lock().unwrap());
    }
    assert!(least >= provider.start + RANGE / 2, "the provider's returned pages were not reused");
}

#[test]
fn threads_allocate_and_trim_concurrently() {
    let (heap, _) = heap(EXTENT_STEP);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let heap = &heap;
            scope.spawn(move || {
                for round in 0..300 {
                    let size = 70_000 * (1 + (round + thread) % 3);
                    let held: Vec<_> =
                        (0..8).filter_map(|_| heap.alloc(Request::new(size)).ok()).collect();
                    for block in held {
                        // SAFETY: this thread owns the block, which has `size` bytes.
                        unsafe { block.write_bytes(thread as u8, size) };
                        // SAFETY: as above, and it is not used again.
                        unsafe { heap.free(block) }.unwrap();
                    }
                    heap.trim();
                }
            });
        }
    });
    heap.validate().unwrap();
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    // `maintain` empties the caches of the ended threads. A thread may end a moment after its
    // closure, or leave its cache to a thread of another test.
    let start = Instant::now();
    while heap.stats(Node::ANY).ready_bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "pages were lost");
        heap.maintain();
        heap.trim();
    }
}

#[test]
fn span_of_a_whole_page_gets_a_page_without_kept_slices() {
    let (heap, provider) = heap(EXTENT_STEP);
    let count = 8;
    let blocks: Vec<_> = (0..count).map(|_| heap.alloc(Request::new(256 << 10)).unwrap()).collect();
    let taken = provider.start + RANGE - *provider.end.lock().unwrap();
    assert!(taken <= 2 * EXTENT_BYTES, "{taken} bytes for {count} blocks of 256 KiB");
    assert_eq!(blocks.len(), count);
    let large = heap.alloc(Request::new(5 << 20)).unwrap();
    let taken = provider.start + RANGE - *provider.end.lock().unwrap();
    assert!(taken <= 6 * EXTENT_BYTES, "{taken} bytes, with a block of 5 MiB");
    // SAFETY: the test owns the block, which has this many bytes.
    unsafe { large.write_bytes(1, 5 << 20) };
    heap.validate().unwrap();
}

#[test]
fn alloc_held_uses_held_pages_only() {
    let (heap, provider) = heap(EXTENT_STEP);
    let end = || *provider.end.lock().unwrap();
    let held = |size| heap.alloc_held(Request::new(size));
    assert_eq!(held(1 << 20), Err(AllocError::Exhausted), "the heap holds no page yet");
    assert_eq!(end(), provider.start + RANGE);
    // The block needs six pages, because the first page lacks a slice.
    let grown = heap.alloc(Request::new(10 << 20)).unwrap();
    // SAFETY: allocated above, and not used again.
    unsafe { heap.free(grown) }.unwrap();
    let before = end();
    let page = held(EXTENT_BYTES).unwrap();
    let large = held(5 << 20).unwrap();
    assert_eq!(held(5 << 20), Err(AllocError::Exhausted), "not that many adjacent pages are left");
    let half = held(EXTENT_BYTES / 2).unwrap();
    assert_eq!(end(), before, "the heap grew");
    // SAFETY: allocated here.
    assert_eq!(unsafe { heap.usable_size(large) }, Ok(5 << 20));
    assert_eq!(heap.stats(Node::ANY).live.blocks, 3);
    for (size, align) in [(0_usize.wrapping_sub(1), 64), (1 << 20, 48)] {
        assert!(heap.alloc_held(Request::new(size).aligned(align)).is_err());
    }
    heap.validate().unwrap();
    for block in [page, large, half] {
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(block) }.unwrap();
    }
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
}

#[test]
fn resize_keeps_the_block_in_place() {
    let (heap, _) = heap(0);
    let block = heap.alloc(Request::new(3 << 20)).unwrap();
    // SAFETY: the test owns the block.
    let resize = |size, align| unsafe { heap.resize(block, size, align) };
    // SAFETY: as above.
    let usable = || unsafe { heap.usable_size(block) };
    assert_eq!(resize(1 << 20, 64), Ok(true));
    assert_eq!(usable(), Ok(1 << 20));
    assert_eq!(resize(2 << 20, 64), Ok(true), "the slices that were cut off are free");
    let behind = heap.alloc_held(Request::new(1 << 20)).unwrap();
    assert!(behind > block, "the lowest free run");
    assert_eq!(resize(4 << 20, 64), Ok(false), "another block follows");
    assert_eq!(resize(usize::MAX, 64), Ok(false));
    assert_eq!(resize(1 << 20, 48), Ok(false), "48 is no alignment");
    assert_eq!(usable(), Ok(2 << 20), "nothing changed");
    for block in [block, behind] {
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(block) }.unwrap();
    }
    // SAFETY: the pointer names no live block, so this call is an error.
    assert!(unsafe { heap.resize(block, 64, 64) }.is_err(), "it was freed");
}
