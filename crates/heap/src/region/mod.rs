//! The two mappings of a heap: its data, aligned to 1 GiB, and its metadata. Where they come from:
//!
//! - `header`: what the metadata begins with, and its checks;
//! - [`backing`]: huge, transparent or plain pages, and why;
//! - [`external`]: memory that the caller gives;
//! - `opened`: which pages of a private heap can be touched so far;
//! - `private`: memory of one process;
//! - `owner`: whose a file with a name is;
//! - `pool`: the second file of a shared heap, whose memory is huge pages;
//! - `shared`: a file that several processes map, by a name or by a descriptor.
//!
//! A page of 2 MiB is used only after `Region::provide` said yes, and after that it can be touched
//! without a signal, whatever ran out.

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

use backing::{Backing, Choice, Pages, PagesTold};
use external::External;
use opened::Opened;

/// What a heap is asked to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The most bytes of data; `None` chooses by the machine's memory.
    pub(crate) limit: Option<u64>,
    /// NUMA nodes that are distinguished; `None` takes those of the machine.
    pub(crate) nodes: Option<u32>,
    /// Threads that can have a cache at once, in all processes.
    pub(crate) caches: u32,
    /// The kind of pages.
    pub(crate) pages: Pages,
}

/// Why a page has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system has none to give: no page will fare better now.
    Exhausted,
    /// This page cannot be had; another may.
    Unusable,
}

/// How urgently a page is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// An allocation waits for it: as little as is safe.
    Now,
    /// It is for later: its memory is made present, so that the first touch costs nothing.
    Ahead,
}

/// Pages that were made ready: `count` from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provided {
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) backing: Backing,
    /// Slices at the start of the first page that are not the heap's.
    pub(crate) kept: usize,
}

/// Where the memory comes from.
enum Kind {
    Private(Opened),
    Shared { file: OwnedFd, pool: Option<OwnedFd>, name: Option<Name> },
    External(External),
}

/// A range of addresses that goes when this value does.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes before the start that are ours too, and that nobody touches: a page or none.
    front_bytes: usize,
}

/// The gap in the metadata. It is kept inaccessible, so that a program that locks all its memory
/// (mlockall) has nothing populated that lies behind it, which is sparse. Where the kernel cannot,
/// nothing is different.
struct Gap {
    address: usize,
}

/// What guards the mappings of files that other processes have: the metadata, and of each node the
/// pages of the pool and the others.
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
    /// Pages of the pool that were refused so far.
    refused: AtomicU64,
    /// Whether the metadata, which is private, is opened for writing as it comes into use: the
    /// kernel counts what can be written to, and metadata is sparse.
    is_gradual: bool,
    /// Of a shared heap's file; given back before its mappings go.
    guards: Guards,
    /// Accessible again on drop, before the memory goes or is the caller's again.
    _gap: Gap,
    /// Unmapped on drop; `None` where the caller owns the memory.
    _metadata_mapping: Option<Mapping>,
    _data_mapping: Option<Mapping>,
}

// SAFETY: the pointers name mappings that belong to the process, not to a thread; what lies in them
// is only touched through atomics, or by whoever owns a block.
unsafe impl Send for Region {}
// SAFETY: as above; the region's own fields change only through atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Where the data begins: a multiple of 1 GiB.
    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Where the metadata begins: a multiple of 4 KiB. Fresh metadata is all zeros past its header.
    pub(crate) fn metadata(&self) -> NonNull<u8> {
        self.metadata
    }

    /// The heap's shape, checked, and no longer read from shared memory.
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

    /// Whether metadata has to be [brought](Self::bring_metadata) before it is written to.
    pub(crate) fn is_metadata_reserved(&self) -> bool {
        self.is_gradual || self.file().is_some()
    }

    /// Whether memory of its files was gone as it was touched: what stands there is this process's
    /// own.
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

    /// The second file of a shared heap that has pages of a pool.
    pub(crate) fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Shared { pool, .. } => pool.as_ref().map(AsFd::as_fd),
            _ => None,
        }
    }

    /// The heap's name, for a heap shared by one.
    pub(crate) fn name(&self) -> Option<Name> {
        match &self.kind {
            Kind::Shared { name, .. } => *name,
            _ => None,
        }
    }

    /// The caller's memory, where that is what the heap uses.
    pub(crate) fn external(&self) -> Option<&External> {
        match &self.kind {
            Kind::External(external) => Some(external),
            _ => None,
        }
    }

    /// Which pages are used, and why not better ones.
    pub(crate) fn told(&self) -> PagesTold {
        let backing = match self.kind {
            Kind::External(_) => Backing::External,
            _ => self.choice.best(),
        };
        let from_pool = self.choice.pool.map_or(0, |(_, pages)| pages * self.geometry.nodes);
        PagesTold {
            asked: self.asked,
            backing,
            from_pool,
            refused: self.refused.load(Relaxed),
            reason: self.choice.reason,
        }
    }

    /// Whether the pool has pages that nobody uses. Reads three files of `/sys`.
    pub(crate) fn pool_has_some(&self) -> bool {
        let has_some = |size| sys::machine::pool(size).is_some_and(|pool| pool.free > 0);
        self.choice.pool.is_some_and(|(size, _)| has_some(size))
    }

    /// Whether this process has the second file open under this number. Three system calls.
    pub(crate) fn is_pool_file_here(&self, number: u32) -> bool {
        let identity = |file| sys::file::facts(file).map(|facts| facts.identity).ok();
        let here = sys::file::handle_of_own(number).ok();
        let here = here.and_then(|file| sys::file::cached_identity(file.as_fd()).ok());
        here.is_some() && here == self.pool_file().and_then(identity)
    }

    /// Whether the memory of any page is to come from a pool.
    pub(crate) fn has_pool(&self) -> bool {
        self.choice.pool.is_some()
    }

    /// Whether a page's memory is to come from a pool.
    pub(crate) fn is_of_pool(&self, page: usize) -> bool {
        self.pool_of(page).is_some()
    }

    /// Gets memory for a page that the caller has claimed, after which touching it raises no
    /// signal. With external memory other pages than the one asked for may come, and more than one;
    /// they are nobody's until now, and the caller marks them ready.
    pub(crate) fn provide(&self, page: usize, haste: Haste) -> Result<Provided, Refusal> {
        let one = |backing| Provided { first: page, count: 1, backing, kept: 0 };
        match &self.kind {
            Kind::Private(opened) => {
                opened.open(page).map_err(|_| Refusal::Exhausted)?;
                self.provide_private(page, haste).map(one)
            }
            Kind::Shared { pool: Some(pool), .. } if self.pool_of(page).is_some() => {
                self.provide_from_file(pool.as_fd(), page).map(one)
            }
            Kind::Shared { file, name, .. } => {
                self.provide_shared(file.as_fd(), name.is_some(), page, haste).map(one)
            }
            Kind::External(_) => self.provide_extent(PAGE),
        }
    }

    /// Gives the memory of a page back, which is of this kind; false where it stays. It reads as
    /// zeros when it is provided again, if it went.
    ///
    /// # Safety
    ///
    /// Nobody in any process may rely on what the page holds, and the caller must have claimed it.
    pub(crate) unsafe fn give_back(&self, page: usize, backing: Backing) -> bool {
        let address = self.page_address(page);
        match &self.kind {
            // Its other parts may be in use.
            Kind::Shared { .. } if backing == Backing::Huge1G => false,
            // SAFETY: nobody relies on the content, by the caller's promise.
            Kind::Private(_) => unsafe { sys::memory::discard_private(address, PAGE) }.is_ok(),
            // SAFETY: likewise, in every process.
            Kind::Shared { .. } => unsafe { sys::memory::discard_shared(address, PAGE) }.is_ok(),
            Kind::External(external) => {
                let start = NonNull::new(self.data.as_ptr().wrapping_add(page * PAGE));
                start.is_some_and(|start| external.extents.give_back(start, PAGE))
            }
        }
    }

    /// Whether memory is allocated in the heap's file before it is touched: in that of a heap with
    /// a name, whose file system can be full.
    pub(crate) fn is_allocated(&self) -> bool {
        matches!(&self.kind, Kind::Shared { name: Some(_), .. })
    }

    /// Gives the memory of a part of the data back, whole pages of the kernel's within it; false
    /// where it stays.
    ///
    /// # Safety
    ///
    /// As [`Region::give_back`]; none of it is of the pool.
    pub(crate) unsafe fn discard(&self, start: usize, end: usize) -> bool {
        let data = self.data.addr().get();
        let start = (data + start).next_multiple_of(sys::machine::page_bytes());
        let bytes = (data + end).saturating_sub(start);
        match &self.kind {
            _ if bytes == 0 => false,
            Kind::External(_) => false,
            // SAFETY: nobody relies on the content, by the caller's promise.
            Kind::Private(_) => unsafe { sys::memory::discard_private(start, bytes) }.is_ok(),
            // SAFETY: likewise, in every process.
            Kind::Shared { .. } => unsafe { sys::memory::discard_shared(start, bytes) }.is_ok(),
        }
    }

    /// Whether the first touch of a page of a heap of one process can bring all of it still.
    pub(crate) fn is_untouched(&self, page: usize) -> bool {
        matches!(&self.kind, Kind::Private(_))
            && sys::memory::is_untouched(self.page_address(page), PAGE)
    }

    /// Has the kernel bring small pages to a part of the data of which nothing is resident, where
    /// it would bring a huge one; false where it cannot be told so. It reads a page and drops the
    /// rest: what was mapped is the huge page of zeros, which is taken apart for that.
    ///
    /// # Safety
    ///
    /// As [`Region::discard`].
    pub(crate) unsafe fn part(&self, start: usize, bytes: usize) -> bool {
        let Kind::Private(_) = &self.kind else { return false };
        let first = self.data.as_ptr().wrapping_add(start);
        // SAFETY: the caller has it claimed with its page ready, so that it can be touched.
        let _ = unsafe { first.read_volatile() };
        // SAFETY: the caller's promise is the same.
        unsafe { self.discard(start + 1, start + bytes) }
    }

    /// The pages that can ever be provided within one node's part, as `[first, end)` counted from
    /// the data's base.
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

    /// Gets an extent of at least `bytes` of external memory, with what the provider keeps counted.
    pub(crate) fn provide_extent(&self, bytes: usize) -> Result<Provided, Refusal> {
        let external = self.external().ok_or(Refusal::Unusable)?;
        let (start, bytes) = external.extents.take(bytes).ok_or(Refusal::Exhausted)?;
        let (first, end) = external.pages();
        let offset = start.addr().get().wrapping_sub(self.data.addr().get());
        let (page, kept) = (offset / PAGE, offset % PAGE / SLICE);
        let count = (offset % PAGE + bytes) / PAGE;
        // The provider is the caller's own, so this is a slip of theirs; the extent stays with
        // them.
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
        // SAFETY: the range was mapped by this crate for this value alone, and its owner is going;
        // it cannot fail for a range that is mapped, and nothing could be done about it.
        let _ = unsafe { sys::memory::unmap(self.front(), self.front_bytes + self.bytes) };
    }
}

impl Gap {
    /// # Safety
    ///
    /// `metadata` must be the start of a heap's metadata, mapped for longer than the value lives.
    unsafe fn of(metadata: NonNull<u8>) -> Self {
        let address = metadata.addr().get() + GAP_AT;
        // SAFETY: the gap lies within the metadata, and no table does within the gap.
        let _ = unsafe { sys::memory::guard(address, GAP_BYTES) };
        Self { address }
    }
}

impl Drop for Gap {
    fn drop(&mut self) {
        // Where it was never inaccessible, the kernel does not know how.
        let _ = sys::memory::unguard(self.address, GAP_BYTES);
    }
}

impl Mapping {
    /// Reserves a range.
    fn reserve(bytes: usize, alignment: usize) -> Result<Self, Errno> {
        let start = sys::memory::reserve(bytes, alignment)?;
        Ok(Self { start, bytes, front_bytes: 0 })
    }

    /// The same, with a page before it where that can be had.
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

    /// Where what lies before the start begins.
    fn front(&self) -> usize {
        self.address() - self.front_bytes
    }
}

/// The words that the metadata begins with.
///
/// # Safety
///
/// `metadata` must be the start of a mapped and writable header that outlives `'a`.
unsafe fn header_words<'a>(metadata: NonNull<u8>) -> &'a [AtomicU64] {
    let words = crate::layout::HEADER_BYTES / size_of::<u64>();
    // SAFETY: the caller says that the header is there; it is aligned to 4 KiB, and only atomics
    // touch it while anyone else may.
    unsafe { core::slice::from_raw_parts(metadata.as_ptr().cast(), words) }
}

#[cfg(test)]
mod tests;
