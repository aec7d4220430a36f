//! The two mappings of a heap: its data, aligned to 1 GiB, and its metadata. The modules:
//!
//! - `header`: the header at the start of the metadata, and its checks;
//! - [`backing`]: the choice between huge, transparent and plain pages;
//! - [`external`]: memory of the caller;
//! - `opened`: the accessible pages of a private heap;
//! - `private`: memory of one process;
//! - `owner`: the owner check of a named file;
//! - `pool`: the second file of a shared heap, whose memory is huge pages;
//! - `shared`: a file that several processes map, by a name or by a descriptor.
//!
//! A page of 2 MiB is used only after `Region::provide` succeeded. From then on, an access to the
//! page raises no signal, even if the system runs out of memory.

use core::ptr::NonNull;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Name;
use crate::guard::Guard;
use crate::layout::{GAP_AT, GAP_BYTES, Geometry, NODES_MAX, PAGE, SLICE};
use crate::sync::{AtomicU64, Relaxed};
use crate::sys::{self, Errno};

pub(crate) mod backing;
pub(crate) mod external;
mod header;
mod opened;
mod owner;
mod pool;
mod private;
mod shared;

pub use shared::{NAMES_FOLDER, NAMES_PREFIX};

use backing::{Backing, Choice, Pages, PagesReport};
use external::External;
use opened::Opened;

/// The requested properties of a heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The most bytes of data; `None` derives it from the machine's memory.
    pub(crate) limit: Option<u64>,
    /// NUMA nodes that the heap distinguishes; `None` means all nodes of the machine.
    pub(crate) nodes: Option<u32>,
    /// Threads that can have a cache at once, in all processes.
    pub(crate) caches: u32,
    /// The kind of pages.
    pub(crate) pages: Pages,
}

/// Why a page has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system has no memory now for any page.
    Exhausted,
    /// This page has no memory; another may.
    Unusable,
}

/// How urgently a page is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// An allocation waits for the page, so only the work that safety requires is done.
    Now,
    /// The page is needed later. Its memory is made present, so that the first access causes no
    /// page fault.
    Ahead,
}

/// Pages that were made ready: `count` from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provided {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) backing: Backing,
    /// How many slices at the start of the first page the provider keeps.
    pub(crate) kept: usize,
}

/// The source of a heap's memory.
enum Kind {
    Private(Opened),
    Shared { file: OwnedFd, pool: Option<OwnedFd>, name: Option<Name> },
    External(External),
}

/// A range of addresses that is unmapped when this value is dropped.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes before `start` that belong to the mapping and are never accessed: one page or 0.
    front_bytes: usize,
}

/// The gap in the metadata. It is inaccessible, so that the kernel does not populate the sparse
/// part after it if the program locks all its memory (mlockall). On a kernel without support for
/// this, the gap has no effect.
struct Gap {
    address: usize,
}

/// The guards for mapped files that other processes have open. One guard is for the metadata.
/// Each node has one for the pages of the pool and one for the other pages.
#[derive(Default)]
struct Guards([Option<Guard>; 1 + 2 * NODES_MAX]);

/// The mappings of one heap in this process.
pub(crate) struct Region {
    metadata: NonNull<u8>,
    data: NonNull<u8>,
    geometry: Geometry,
    kind: Kind,
    choice: Choice,
    asked: Pages,
    /// How often the pool has refused a page so far.
    refused: AtomicU64,
    /// Whether a part of private metadata becomes writable only when it is first used. This is so
    /// if the kernel counts writable memory, because the metadata is sparse.
    is_gradual: bool,
    /// Guards of a shared heap's file; dropped before its mappings.
    guards: Guards,
    /// Makes the gap accessible again on drop, before the memory is unmapped or returns to the
    /// caller.
    _gap: Gap,
    /// Unmapped on drop; `None` if the caller owns the memory.
    _metadata_mapping: Option<Mapping>,
    _data_mapping: Option<Mapping>,
}

// SAFETY: the pointers point into mappings that belong to the process, not to a thread; only
// atomics, or the owner of a block, access the memory there.
unsafe impl Send for Region {}
// SAFETY: as above; the region's own fields change only through atomics.
unsafe impl Sync for Region {}

impl Region {
    /// The start of the data: a multiple of 1 GiB.
    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// The start of the metadata: a multiple of 4 KiB. New metadata contains only zeros after its
    /// header.
    pub(crate) fn metadata(&self) -> NonNull<u8> {
        self.metadata
    }

    /// The heap's shape, a checked copy that other processes cannot change.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether other processes may see this memory.
    pub(crate) fn is_shared(&self) -> bool {
        match &self.kind {
            Kind::Private(_) => false,
            Kind::Shared { .. } => true,
            Kind::External(external) => external.metadata.is_some(),
        }
    }

    /// Whether metadata must be [mapped](Self::bring_metadata) before a write to it.
    pub(crate) fn is_metadata_reserved(&self) -> bool {
        self.is_gradual || self.file().is_some()
    }

    /// Whether this process has accessed a part of the heap's files that had lost its memory. The
    /// missing parts are now private to this process.
    pub(crate) fn is_broken(&self) -> bool {
        self.guards.0.iter().flatten().any(Guard::is_broken)
    }

    /// The heap's file, for a shared heap.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Shared { file, .. } => Some(file.as_fd()),
            _ => None,
        }
    }

    /// The second file, if this is a shared heap with pages of a pool.
    pub(crate) fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Shared { pool, .. } => pool.as_ref().map(AsFd::as_fd),
            _ => None,
        }
    }

    /// The heap's name, if the heap is shared by name.
    pub(crate) fn name(&self) -> Option<Name> {
        match &self.kind {
            Kind::Shared { name, .. } => *name,
            _ => None,
        }
    }

    /// The caller's memory, if the heap uses it.
    pub(crate) fn external(&self) -> Option<&External> {
        match &self.kind {
            Kind::External(external) => Some(external),
            _ => None,
        }
    }

    /// The pages that are used, and why no better pages are used.
    pub(crate) fn pages_report(&self) -> PagesReport {
        let backing = match self.kind {
            Kind::External(_) => Backing::External,
            _ => self.choice.best(),
        };
        let from_pool = self.choice.pool.map_or(0, |(_, pages)| pages * self.geometry.nodes);
        PagesReport {
            asked: self.asked,
            backing,
            from_pool,
            refused: self.refused.load(Relaxed),
            reason: self.choice.reason,
        }
    }

    /// Whether the pool has free pages. Reads three files of `/sys`.
    pub(crate) fn pool_has_some(&self) -> bool {
        let has_some = |size| sys::machine::pool(size).is_some_and(|pool| pool.free > 0);
        self.choice.pool.is_some_and(|(size, _)| has_some(size))
    }

    /// Whether the descriptor with this number is this heap's second file in this process. Three
    /// system calls.
    pub(crate) fn is_pool_file_here(&self, number: u32) -> bool {
        let identity = |file| sys::file::facts(file).map(|facts| facts.identity).ok();
        let here = sys::file::handle_of_own(number).ok();
        let here = here.and_then(|file| sys::file::cached_identity(file.as_fd()).ok());
        here.is_some() && here == self.pool_file().and_then(identity)
    }

    /// Whether any page should get its memory from a pool.
    pub(crate) fn has_pool(&self) -> bool {
        self.choice.pool.is_some()
    }

    /// Whether a page should get its memory from a pool.
    pub(crate) fn is_of_pool(&self, page: usize) -> bool {
        self.pool_of(page).is_some()
    }

    /// Gets memory for a page that the caller has claimed. After that, an access to the page
    /// raises no signal. With external memory, the provider chooses the pages, possibly more than
    /// one. These pages have no owner yet, and the caller marks them ready.
    pub(crate) fn provide(&self, page: usize, urgency: Urgency) -> Result<Provided, Refusal> {
        let one = |backing| Provided { first: page, count: 1, backing, kept: 0 };
        match &self.kind {
            Kind::Private(opened) => {
                opened.open(page).map_err(|_| Refusal::Exhausted)?;
                self.provide_private(page, urgency).map(one)
            }
            Kind::Shared { pool: Some(pool), .. } if self.pool_of(page).is_some() => {
                self.provide_from_file(pool.as_fd(), page).map(one)
            }
            Kind::Shared { file, name, .. } => {
                self.provide_shared(file.as_fd(), name.is_some(), page, urgency).map(one)
            }
            Kind::External(_) => self.provide_extent(PAGE),
        }
    }

    /// Gives back the memory of a page with this `backing`. Returns false if the page keeps its
    /// memory. If the memory was given back, the page contains only zeros when it is provided
    /// again.
    ///
    /// # Safety
    ///
    /// No process needs the content of the page, and the caller has claimed the page.
    pub(crate) unsafe fn give_back(&self, page: usize, backing: Backing) -> bool {
        let address = self.page_address(page);
        match &self.kind {
            // Other parts of the huge page may be in use.
            Kind::Shared { .. } if backing == Backing::Huge1G => false,
            // SAFETY: no code needs the content, by the caller's promise.
            Kind::Private(_) => unsafe { sys::memory::discard_private(address, PAGE) }.is_ok(),
            // SAFETY: likewise, in every process.
            Kind::Shared { .. } => unsafe { sys::memory::discard_shared(address, PAGE) }.is_ok(),
            Kind::External(external) => {
                let start = NonNull::new(self.data.as_ptr().wrapping_add(page * PAGE));
                start.is_some_and(|start| external.extents.give_back(start, PAGE))
            }
        }
    }

    /// Whether memory must be allocated in the heap's file before an access: for a named heap,
    /// because its file system can be full.
    pub(crate) fn is_allocated(&self) -> bool {
        matches!(&self.kind, Kind::Shared { name: Some(_), .. })
    }

    /// Gives back the memory of a part of the data, in whole pages of the kernel's page size.
    /// Returns false if the part keeps its memory.
    ///
    /// # Safety
    ///
    /// The conditions of [`Region::give_back`] hold; no part of the range comes from the pool.
    pub(crate) unsafe fn discard(&self, start: usize, end: usize) -> bool {
        let data = self.data.addr().get();
        let start = (data + start).next_multiple_of(sys::machine::page_bytes());
        let bytes = (data + end).saturating_sub(start);
        match &self.kind {
            _ if bytes == 0 => false,
            Kind::External(_) => false,
            // SAFETY: no code needs the content, by the caller's promise.
            Kind::Private(_) => unsafe { sys::memory::discard_private(start, bytes) }.is_ok(),
            // SAFETY: likewise, in every process.
            Kind::Shared { .. } => unsafe { sys::memory::discard_shared(start, bytes) }.is_ok(),
        }
    }

    /// Whether the first access to a page of a private heap can still make the kernel map the
    /// whole page.
    pub(crate) fn is_untouched(&self, page: usize) -> bool {
        matches!(&self.kind, Kind::Private(_))
            && sys::memory::is_untouched(self.page_address(page), PAGE)
    }

    /// Makes the kernel use small pages, not a huge page, for a part of the data that has no
    /// resident memory. Returns false if that is not possible. The read of a small page makes the
    /// kernel map the huge page of zeros, and discarding the other bytes of the part splits the
    /// huge page.
    ///
    /// # Safety
    ///
    /// The conditions of [`Region::discard`] hold.
    pub(crate) unsafe fn part(&self, start: usize, bytes: usize) -> bool {
        let Kind::Private(_) = &self.kind else { return false };
        let first = self.data.as_ptr().wrapping_add(start);
        // SAFETY: the caller has claimed the part, and its page is ready, so it can be accessed.
        let _ = unsafe { first.read_volatile() };
        // SAFETY: the caller promises the conditions of `discard`.
        unsafe { self.discard(start + 1, start + bytes) }
    }

    /// The usable pages of a node, as `[first, end)`, counted from the data's base.
    pub(crate) fn usable_pages(&self, node: u32) -> (usize, usize) {
        if let Kind::External(external) = &self.kind {
            return external.pages();
        }
        let first = node as usize * self.geometry.node_stride_pages();
        (first, first + self.geometry.node_pages as usize)
    }

    fn page_address(&self, page: usize) -> usize {
        debug_assert!(page < self.geometry.pages(), "page {page} is not of this heap");
        self.data.addr().get() + page * PAGE
    }

    /// Gets an extent of external memory. Together with the slices that the provider keeps, it
    /// has at least `bytes` bytes.
    pub(crate) fn provide_extent(&self, bytes: usize) -> Result<Provided, Refusal> {
        let external = self.external().ok_or(Refusal::Unusable)?;
        let (start, bytes) = external.extents.take(bytes).ok_or(Refusal::Exhausted)?;
        let (first, end) = external.pages();
        let offset = start.addr().get().wrapping_sub(self.data.addr().get());
        let (page, kept) = (offset / PAGE, offset % PAGE / SLICE);
        let count = (offset % PAGE + bytes) / PAGE;
        // An invalid extent is a bug of the caller, who supplies the provider. The heap gives the
        // extent back.
        let is_inside = page >= first && count >= 1 && page.saturating_add(count) <= end;
        let is_aligned = offset.is_multiple_of(SLICE) && (offset + bytes).is_multiple_of(PAGE);
        if !is_aligned || !is_inside {
            external.extents.give_back(start, bytes);
            return Err(Refusal::Exhausted);
        }
        Ok(Provided { first: page, count, backing: Backing::External, kept })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this crate mapped the range for this value alone, and the value is being
        // dropped. Unmapping a mapped range cannot fail.
        let _ = unsafe { sys::memory::unmap(self.front(), self.front_bytes + self.bytes) };
    }
}

impl Gap {
    /// # Safety
    ///
    /// `metadata` must be the start of a heap's metadata, which stays mapped until the value is
    /// dropped.
    unsafe fn of(metadata: NonNull<u8>) -> Self {
        let address = metadata.addr().get() + GAP_AT;
        // SAFETY: the gap is within the metadata, and no table is in the gap.
        let _ = unsafe { sys::memory::guard(address, GAP_BYTES) };
        Self { address }
    }
}

impl Drop for Gap {
    fn drop(&mut self) {
        // On a kernel without support, the gap was never inaccessible.
        let _ = sys::memory::unguard(self.address, GAP_BYTES);
    }
}

impl Mapping {
    /// Reserves a range.
    fn reserve(bytes: usize, alignment: usize) -> Result<Self, Errno> {
        let start = sys::memory::reserve(bytes, alignment)?;
        Ok(Self { start, bytes, front_bytes: 0 })
    }

    /// Like [`Self::reserve`], but with a page before the range if that page is free.
    fn reserve_with_front(bytes: usize, alignment: usize) -> Result<Self, Errno> {
        let mut mapping = Self::reserve(bytes, alignment)?;
        let page = sys::machine::page_bytes();
        if sys::memory::reserve_at(mapping.address() - page, page).is_ok() {
            mapping.front_bytes = page;
        }
        Ok(mapping)
    }

    fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// The start of the mapping, including the bytes before the range.
    fn front(&self) -> usize {
        self.address() - self.front_bytes
    }
}

/// The words of the header at the start of the metadata.
///
/// # Safety
///
/// `metadata` must be the start of a mapped and writable header that outlives `'a`.
unsafe fn header_words<'a>(metadata: NonNull<u8>) -> &'a [AtomicU64] {
    let words = crate::layout::HEADER_BYTES / size_of::<u64>();
    // SAFETY: the header is mapped, as the caller promises; it is aligned to 4 KiB, and only
    // atomics access it while other threads may.
    unsafe { core::slice::from_raw_parts(metadata.as_ptr().cast(), words) }
}

#[cfg(test)]
mod tests;
