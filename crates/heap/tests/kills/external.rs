//! Processes share a heap in external memory, and one of them dies while it gives pages back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use haul_heap::{EXTENT_BYTES, Extents, External, Heap, Request};

use crate::victim::{self, End, shared_words};

/// Pages of the range.
const RANGE_PAGES: usize = 8;

/// The size of a block: half a page.
const BLOCK: usize = EXTENT_BYTES / 2;

/// Hands out pages one by one. All processes share the record of the pages that are handed out.
struct Provider {
    base: usize,
    is_given: &'static [AtomicU64],
}

// SAFETY: the pages are shared memory that is never unmapped. Each page has one user at a time,
// and the words of `is_given` record this for all processes.
unsafe impl Extents for Provider {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let take = |page: &AtomicU64| page.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        let page =
            (bytes <= EXTENT_BYTES).then(|| self.is_given.iter().position(take)).flatten()?;
        let start = NonNull::new((self.base + page * EXTENT_BYTES) as *mut u8)?;
        Some((start, EXTENT_BYTES))
    }

    fn give_back(&self, start: NonNull<u8>, _bytes: usize) -> bool {
        let page = (start.as_ptr().addr() - self.base) / EXTENT_BYTES;
        assert_eq!(
            self.is_given[page].swap(0, SeqCst),
            1,
            "the heap gave back page {page}, which it did not have"
        );
        true
    }
}

/// A heap in shared memory, which is never unmapped.
fn heap() -> Heap {
    let words = shared_words((RANGE_PAGES + 1) * EXTENT_BYTES / 8);
    let start = words.as_ptr().expose_provenance().next_multiple_of(EXTENT_BYTES);
    let is_given = shared_words(RANGE_PAGES);
    let extents: &Provider = Box::leak(Box::new(Provider { base: start, is_given }));
    let bytes = RANGE_PAGES * EXTENT_BYTES;
    let metadata_bytes = External::metadata_bytes(start, bytes, 64).unwrap();
    let metadata = NonNull::from(shared_words(metadata_bytes / 8)).cast();
    let base = NonNull::new(start as *mut u8).unwrap();
    let external = External { base, bytes, extents, metadata: Some((metadata, metadata_bytes)) };
    // SAFETY: the range and the metadata are shared memory of this test that is never unmapped,
    // and the metadata contained only zeros at first.
    unsafe { Heap::builder().caches(64).external(external) }.unwrap()
}

/// How many blocks fit. All pages are free again afterwards.
fn room(heap: &Heap) -> usize {
    let blocks: Vec<_> =
        std::iter::from_fn(|| heap.alloc(Request::new(BLOCK).aligned(BLOCK)).ok()).collect();
    for block in &blocks {
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(*block) }.unwrap();
    }
    blocks.len()
}

#[test]
fn death_while_giving_a_page_back_loses_no_other_page() {
    // After the provider's call and before the heap records the page, the page belongs neither to
    // the provider nor to the heap.
    let labels = [
        ("maintain.release.after_claim", 0),
        ("maintain.release.after_draining", 0),
        ("maintain.release.after_absent", 1),
        ("maintain.release.after_give_back", 0),
        ("maintain.release.before_free", 0),
    ];
    for (label, lost) in labels {
        let heap = heap();
        assert_eq!(room(&heap), RANGE_PAGES * 2, "{label}");
        assert_eq!(victim::kill_at(label, 3, || _ = heap.trim()), End::Killed, "{label}");
        let reaped = heap.reap();
        assert_eq!((reaped.processes, reaped.damaged), (1, 0), "{label}: {reaped:?}");
        heap.validate().unwrap_or_else(|damage| panic!("{label}: {damage}"));
        assert_eq!(room(&heap), (RANGE_PAGES - lost) * 2, "{label}");
    }
}
