//! The metadata region as typed tables: records and arrays of atomic words, at the offsets in the
//! layout.

use core::ops::Range;
use core::ptr::NonNull;

use crate::bin::Bin;
use crate::layout::{
    CACHE_RECORD_BYTES, Geometry, Layout, NAMESPACES_AT, NODE_BYTES, ORDERS, PAGE_SLICES,
    PROCESS_MORE_AT, PROCESS_RECORD_BYTES, RESERVE, SHIFTS, SLICE, TAG_BYTES, UNIT,
};
use crate::protocol::bitmap::{Bitmap, bitmap_words};
use crate::protocol::class::CLASSES;
use crate::protocol::runs::{Runs, group_words};
use crate::protocol::word::{CacheId, NAMESPACES_MAX, PROCESSES_MAX, TAGS_MAX};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64};

/// A process that uses the heap.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ProcessRecord {
    /// A [`crate::protocol::word::ProcessWord`].
    pub(crate) state: AtomicU64,
    /// The process's start time, as in field 22 of `/proc/PID/stat`; 0 if it is not known yet.
    pub(crate) start: AtomicU64,
    /// Additional words for the module that manages the record.
    pub(crate) more: [AtomicU64; 6],
}

/// A thread's cache. All fields except `state` are hints: the slot words say which slots the
/// cache holds.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CacheRecord {
    /// A [`crate::protocol::word::CacheWord`].
    pub(crate) state: AtomicU64,
    /// Additional words for the module that manages the record.
    pub(crate) more: [AtomicU64; 7],
    /// For each class: the head of the current span, from which the cache claims slots, plus 1; 0
    /// if there is none. It is set before the cache claims the first slot of the span, so that a
    /// reaper finds the span.
    pub(crate) current: [AtomicU32; 64],
    /// For each class: the slot of the current span at which the next search begins.
    pub(crate) cursor: [AtomicU32; 64],
    /// The first slice that is claimed for later spans, plus 1; 0 if there is none. All slices
    /// from this slice to the end of its page are claimed.
    pub(crate) ahead: AtomicU32,
    /// The first slice of the large block that was freed last, plus 1, and its number of slices; 0
    /// if there is none.
    pub(crate) last_freed: [AtomicU32; 2],
    padding: [AtomicU32; 109],
    /// The bin for each class.
    pub(crate) bins: [Bin; CLASSES],
}

/// Hints about a node's pages.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct NodeHints {
    /// How many pages of the node were ever used. These are the node's first pages; later pages
    /// are untouched.
    pub(crate) frontier: AtomicU32,
    /// Additional words for the upkeep, which gives idle pages back and makes pages ready ahead
    /// of requests.
    pub(crate) more: [AtomicU32; 63],
    /// For each class: the number of spans that are kept although all their slots are free.
    pub(crate) empty_spans: [AtomicU32; 64],
    /// One bit per shift; the lowest bit is the smallest shift. The bit says whether a class with
    /// this shift ever had spans.
    pub(crate) shifts: AtomicU32,
    padding: [AtomicU32; 15],
    /// The upper half counts the slices that are not free, the lower half the pieces of free
    /// slices that can be resident. The word has a separate cache line.
    pub(crate) account: AtomicU64,
    /// How many slices of freed blocks there are for which no later request has given idle memory
    /// back. This is an estimate, because threads may overwrite each other's counts.
    pub(crate) freed: AtomicU64,
    more_padding: [AtomicU64; 54],
}

const _: () = {
    assert!(size_of::<ProcessRecord>() == PROCESS_RECORD_BYTES);
    assert!(core::mem::offset_of!(ProcessRecord, more) == PROCESS_MORE_AT);
    assert!(size_of::<CacheRecord>() == CACHE_RECORD_BYTES);
    assert!(core::mem::offset_of!(CacheRecord, bins) == 1024);
    assert!(size_of::<NodeHints>() == NODE_BYTES);
    assert!(core::mem::offset_of!(NodeHints, account).is_multiple_of(64));
};

/// The tables of one heap's metadata, in this process's mapping.
#[derive(Debug)]
pub(crate) struct Tables {
    base: NonNull<u8>,
    geometry: Geometry,
    layout: Layout,
    // Derived from the geometry, because every access to a table needs it.
    pages: usize,
    slices: usize,
    page_words: usize,
    slice_words: usize,
    node_pages: usize,
    group_words: usize,
}

// SAFETY: all words in the tables are atomic, and the mapping belongs to no thread.
unsafe impl Send for Tables {}
// SAFETY: as above: every access to the tables is atomic.
unsafe impl Sync for Tables {}

impl Tables {
    /// The tables at `base`.
    ///
    /// # Safety
    /// `geometry` is valid, `base` is aligned to 4,096, and [`Layout::bytes`] bytes from `base`
    /// on are mapped for reading and writing as long as the value lives, are accessed only by
    /// atomics, and were zero when the heap was created.
    pub(crate) unsafe fn new(base: NonNull<u8>, geometry: Geometry) -> Self {
        debug_assert!(geometry.is_valid(), "{geometry:?}");
        debug_assert!(base.addr().get().is_multiple_of(4096));
        let (pages, slices) = (geometry.pages(), geometry.slices());
        let (page_words, slice_words) = (bitmap_words(pages), bitmap_words(slices));
        let layout = Layout::of(&geometry);
        let node_pages = geometry.node_stride_pages();
        let group_words = group_words(node_pages);
        Self {
            base,
            geometry,
            layout,
            pages,
            slices,
            page_words,
            slice_words,
            node_pages,
            group_words,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Pages of the data range.
    pub(crate) fn page_count(&self) -> usize {
        self.pages
    }

    /// [`crate::protocol::word::ProcessWord`]s with their records, by process slot.
    pub(crate) fn processes(&self) -> &[ProcessRecord] {
        // SAFETY: the layout has room for this many records there, and zeroes are records.
        unsafe { self.table(self.layout.processes, PROCESSES_MAX as usize) }
    }

    /// The PID namespaces of processes. A process record's word contains the index of its
    /// namespace; index 0 is not used.
    pub(crate) fn namespaces(&self) -> &[AtomicU64] {
        // SAFETY: the first page has room for this many words after the header's words.
        unsafe { self.table(NAMESPACES_AT, NAMESPACES_MAX) }
    }

    /// The name of each tag: four words of eight bytes. The first byte is the length.
    pub(crate) fn tags(&self) -> &[[AtomicU64; TAG_BYTES / 8]] {
        // SAFETY: the layout has room for this many names there, and zeroes are a name.
        unsafe { self.table(self.layout.tags, TAGS_MAX as usize) }
    }

    /// The hints for each node.
    pub(crate) fn nodes(&self) -> &[NodeHints] {
        // SAFETY: the layout has room for one per node there, and zeroes are hints.
        unsafe { self.table(self.layout.nodes, self.geometry.nodes as usize) }
    }

    /// [`crate::protocol::word::PageWord`]s, by page.
    pub(crate) fn pages(&self) -> &[AtomicU64] {
        // SAFETY: the layout has room for one per page there.
        unsafe { self.table(self.layout.pages, self.pages) }
    }

    /// For each page, the time at which the upkeep first saw it free, and a generation that
    /// changes when the page is used.
    pub(crate) fn page_times(&self) -> &[AtomicU32] {
        // SAFETY: the layout has room for one per page there.
        unsafe { self.table(self.layout.page_times, self.pages) }
    }

    /// The bitmap of pages with a free run of `2^order` slices, with all its levels.
    pub(crate) fn order(&self, order: usize) -> Bitmap<'_> {
        assert!(order < ORDERS, "order {order}");
        let words = self.page_words;
        // SAFETY: the layout has room for one bitmap per order there, and the order was checked.
        let words = unsafe { self.table(self.layout.orders + order * words * 8, words) };
        Bitmap::new(words, self.pages)
    }

    /// The bitmap of pages with free slices that can be resident, with all its levels.
    pub(crate) fn idle(&self) -> Bitmap<'_> {
        let words = self.page_words;
        // SAFETY: the layout has room for one more bitmap after the bitmaps of the orders.
        let words = unsafe { self.table(self.layout.orders + ORDERS * words * 8, words) };
        Bitmap::new(words, self.pages)
    }

    /// The runs of free slices of a node.
    pub(crate) fn runs(&self, node: usize) -> Runs<'_> {
        let (pages, groups) = (self.node_pages, self.group_words);
        // SAFETY: the layout has room for a word for each of the node's groups there.
        let groups = unsafe { self.table(self.layout.group_runs + node * groups * 8, groups) };
        let first = node * pages * PAGE_SLICES;
        Runs::new(&self.page_runs()[node * pages..][..pages], groups, first, PAGE_SLICES)
    }

    /// For each page, a word with its free slices.
    pub(crate) fn page_runs(&self) -> &[AtomicU64] {
        // SAFETY: the layout has room for one per page there.
        unsafe { self.table(self.layout.page_runs, self.pages) }
    }

    /// The bitmap of the spans of `class` with free slots, with all its levels. A span's bit is
    /// the bit of its first slice.
    pub(crate) fn partial(&self, class: usize) -> Bitmap<'_> {
        assert!(class < CLASSES, "class {class}");
        let words = self.slice_words;
        // SAFETY: the layout has room for one bitmap per class there, and the class was checked.
        let words = unsafe { self.table(self.layout.partial + class * words * 8, words) };
        Bitmap::new(words, self.slices)
    }

    /// The words of the bitmap of `class`, and the index of the first word in its upper levels.
    /// Every search for a span reads the upper levels.
    pub(crate) fn partial_words(&self, class: usize) -> (&[AtomicU64], usize) {
        assert!(class < CLASSES, "class {class}");
        let words = self.slice_words;
        // SAFETY: as in `partial`.
        let words = unsafe { self.table(self.layout.partial + class * words * 8, words) };
        (words, self.slices.div_ceil(64))
    }

    /// [`crate::protocol::word::SliceWord`]s, by slice.
    pub(crate) fn slices(&self) -> &[AtomicU64] {
        // SAFETY: the layout has room for one per slice there.
        unsafe { self.table(self.layout.slices, self.slices) }
    }

    /// Hints: the number of free slots per span of `2^order` slices. The index is head >>
    /// `order`.
    pub(crate) fn span_free(&self, order: usize) -> &[AtomicU32] {
        // SAFETY: the layout has room for one per 2^order slices there.
        unsafe { self.table(self.layout.span_free[order], self.slices >> order) }
    }

    /// Cache records: the record of cache `i` is at index `i - 1`. The spare records follow the
    /// records that serve one thread each.
    pub(crate) fn caches(&self) -> &[CacheRecord] {
        // SAFETY: the layout has room for this many records there, and zeroes are records.
        unsafe { self.table(self.layout.caches, self.geometry.cache_records()) }
    }

    /// The record of one cache; `None` if there is no such cache.
    pub(crate) fn cache(&self, id: CacheId) -> Option<&CacheRecord> {
        self.caches().get((id as usize).wrapping_sub(1))
    }

    /// [`crate::protocol::word::SlotWord`]s of slots whose size has `shift` zero bits at its end.
    /// The index is offset >> `shift`.
    pub(crate) fn slots(&self, shift: u32) -> &[AtomicU16] {
        let index = (shift - UNIT.trailing_zeros()) as usize;
        assert!(index < SHIFTS, "shift {shift}");
        // SAFETY: the layout has room for this array there.
        unsafe { self.table(self.layout.slots[index], (self.slices * SLICE) >> shift) }
    }

    /// Which pieces of the metadata have memory, one bit per [`crate::layout::RESERVE`] bytes.
    pub(crate) fn reserved(&self) -> &[AtomicU64] {
        let words = (self.layout.reserved / RESERVE).div_ceil(64);
        // SAFETY: the layout has room for one bit per piece before this table.
        unsafe { self.table(self.layout.reserved, words) }
    }

    /// The range of a table's words, in bytes from the start of the metadata.
    pub(crate) fn range_of<T>(&self, words: &[T]) -> Range<usize> {
        let start = words.as_ptr().addr() - self.base.addr().get();
        start..start + size_of_val(words)
    }

    /// # Safety
    /// The layout has room for `count` values of `T` at `offset`; `T` is made of atomics, and
    /// zeroes are a `T`.
    unsafe fn table<T>(&self, offset: usize, count: usize) -> &[T] {
        debug_assert!(offset + count * size_of::<T>() <= self.layout.bytes);
        // SAFETY: within the mapping, as the caller and `new` promise.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: mapped, aligned (tables start at multiples of 4,096 and of their element), and
        // accessed by atomics only as long as `self` lives.
        unsafe { core::slice::from_raw_parts(start.as_ptr().cast(), count) }
    }
}
