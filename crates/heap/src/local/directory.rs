//! A map from thread numbers to the threads' caches, for one heap.

use core::ptr::NonNull;
use core::sync::atomic::AtomicPtr;

use super::common::{COMMONS, Common};
use super::{THREADS_MAX, entry_offset};
use crate::bin::Bin;
use crate::layout::NODES_MAX;
use crate::protocol::word::{CacheId, SlotWord};
use crate::sync::{
    AtomicU16, AtomicU32,
    Ordering::{Relaxed, Release},
};
use crate::sys::{
    Errno,
    memory::{self, Source},
};

/// A thread's cache on a node, in the form that the fast path reads.
#[repr(C)]
pub(crate) struct Entry {
    /// The origin of the cache's bins; null if the thread has no cache yet.
    bins: AtomicPtr<Bin>,
    /// The slot word that means "held by this cache".
    cached: AtomicU16,
    /// The cache's node.
    node: AtomicU16,
    /// Used only in the entry for number 0, which belongs to no thread: whether the process has
    /// joined the heap.
    mark: AtomicU32,
}

impl Entry {
    /// Whether the thread has no cache yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.bins.load(Relaxed).is_null()
    }

    /// The cache's bin for the class with the span form `form`; `None` if the thread has no cache
    /// yet.
    ///
    /// # Safety
    /// `form` is the form of a class's span, and the cache's heap lives as long as `self`.
    #[inline(always)]
    pub(crate) unsafe fn bin(&self, form: usize) -> Option<&Bin> {
        let origin = self.bins.load(Relaxed);
        // SAFETY: the pointer is not null, so it was set to the origin of a cache's bins; the
        // caller promises the other conditions.
        (!origin.is_null()).then(|| unsafe { Bin::of_form(origin, form) })
    }

    /// The slot word that means "held by this cache".
    #[inline(always)]
    pub(crate) fn cached(&self) -> SlotWord {
        SlotWord(self.cached.load(Relaxed))
    }

    /// The cache.
    pub(crate) fn id(&self) -> CacheId {
        self.cached().0
    }

    pub(crate) fn node(&self) -> usize {
        self.node.load(Relaxed).into()
    }

    pub(crate) fn set(&self, bins: &[Bin], id: CacheId, node: usize) {
        self.cached.store(SlotWord::cached(id).0, Relaxed);
        self.node.store(node as u16, Relaxed);
        self.bins.store(Bin::origin(bins).cast_mut(), Release);
    }
}

/// Bytes of a directory's row.
const ROW_BYTES: usize = THREADS_MAX * size_of::<Entry>();

/// A table of caches, with a column for each thread number. Row 0 is for the node on which the
/// thread runs; each node has one of the other rows. The [`Common`] caches of each node follow
/// the rows. The table is private to the process, and empty in a child of fork. Before the rows
/// is space for other data that every call reads. A child gets a copy of that data.
pub(crate) struct Directory {
    start: NonNull<Entry>,
    rows: usize,
}

/// Bytes before the entries. It is the largest page size of a kernel (aarch64), because the
/// kernel wipes whole pages in a child. Unused bytes need addresses, but no memory.
pub(crate) const FRONT_BYTES: usize = 64 << 10;

// SAFETY: the mapping belongs to the process; its entries are atomic.
unsafe impl Send for Directory {}
// SAFETY: as above.
unsafe impl Sync for Directory {}

impl Directory {
    /// An empty directory for `nodes` nodes. Three system calls.
    pub(crate) fn new(nodes: usize) -> Result<Self, Errno> {
        let rows = nodes.min(NODES_MAX) + 1;
        let bytes = Self::bytes(rows);
        let front = memory::reserve(FRONT_BYTES + bytes, 4096)?;
        // SAFETY: within the range that was just reserved.
        let start = unsafe { front.byte_add(FRONT_BYTES) };
        let directory = Self { start: start.cast(), rows };
        // SAFETY: the range was just reserved for the directory alone.
        unsafe { memory::map_at(front.addr().get(), FRONT_BYTES + bytes, Source::Anonymous) }?;
        memory::wipe_on_fork(start.addr().get(), bytes)?;
        Ok(directory)
    }

    /// The [`FRONT_BYTES`] before the entries. They are zero; this type does not write to them.
    pub(crate) fn front(&self) -> NonNull<u8> {
        // SAFETY: this many bytes are mapped there.
        unsafe { self.start.byte_sub(FRONT_BYTES) }.cast()
    }

    /// The start of the entries.
    pub(crate) fn start(&self) -> *const Entry {
        self.start.as_ptr()
    }

    /// The word that says whether this process has joined the heap. It is private to the process,
    /// and reads as 0 in a child of fork.
    pub(crate) fn mark(&self) -> &AtomicU32 {
        // Number 0 belongs to no thread.
        &self.entry(0, 0).mark
    }

    /// This thread's entry in a row of the directory that starts at `start`. A thread that has
    /// not registered has the number 0, and the entries for number 0 stay empty.
    ///
    /// # Safety
    /// `start` is the start of a directory that lives as long as `'a` and contains the row.
    #[inline(always)]
    pub(crate) unsafe fn own_entry<'a>(start: *const Entry, row: usize) -> &'a Entry {
        // SAFETY: the caller promises the row, and a number is below THREADS_MAX.
        let entry = unsafe { start.byte_add(row * ROW_BYTES + entry_offset()) };
        // SAFETY: mapped as long as `'a`; zeroes are an entry; all access is atomic.
        unsafe { &*entry }
    }

    pub(crate) fn entry(&self, row: usize, number: usize) -> &Entry {
        assert!(row < self.rows && number < THREADS_MAX, "row {row}, thread {number}");
        // SAFETY: within the mapping, by the check.
        let entry = unsafe { self.start.add(row * THREADS_MAX + number) };
        // SAFETY: mapped for as long as `self` lives; zeroes are an entry; all access is atomic.
        unsafe { entry.as_ref() }
    }

    /// The common caches on a node.
    pub(crate) fn commons(&self, node: usize) -> &[Common] {
        assert!(node + 1 < self.rows, "node {node}");
        let offset = self.rows * ROW_BYTES + node * COMMONS * size_of::<Common>();
        // SAFETY: within the mapping, by the check.
        let start = unsafe { self.start.byte_add(offset) };
        // SAFETY: mapped for as long as `self` lives, and aligned, because the sizes of rows and
        // commons are multiples of their alignment; zeroes are commons; all access is atomic.
        unsafe { core::slice::from_raw_parts(start.cast().as_ptr(), COMMONS) }
    }

    fn bytes(rows: usize) -> usize {
        rows * ROW_BYTES + (rows - 1) * COMMONS * size_of::<Common>()
    }
}

const _: () = {
    assert!(ROW_BYTES.is_multiple_of(4096) && align_of::<Common>() <= 4096);
    assert!((COMMONS * size_of::<Common>()).is_multiple_of(4096));
};

impl Drop for Directory {
    fn drop(&mut self) {
        let bytes = FRONT_BYTES + Self::bytes(self.rows);
        // SAFETY: mapped by `new` for this value alone, which is no longer borrowed. Unmapping a
        // mapped range cannot fail.
        let _ = unsafe { memory::unmap(self.front().addr().get(), bytes) };
    }
}
