//! Where a heap's memory comes from: blocks of DPDK's own heap, so that every process has them
//! mapped and devices reach them.
//!
//! Only the primary process takes blocks, as long as its [`crate::housekeeping`] runs: DPDK does it
//! under a lock that nobody releases when the holder dies, and a primary process that dies ends the
//! application anyway. A secondary one asks and waits, also for blocks to be freed when DPDK
//! refuses it memory.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

use haul_heap::Extents;

use crate::counter::Patience;
use crate::directory::{Directory, Transit};
use crate::dpdk::Functions;
use crate::extent::{EXTENT_PAGES_MAX, Extent, HEADER, PAGE};
use crate::inside::Inside;
use crate::leaving::Leave;
use crate::memory::SocketRange;
use crate::metadata::Metadata;
use crate::{futex, iova};

/// A heap grows by this share of what it has: few calls of DPDK, each of which takes its lock, asks
/// the kernel and every other process; and little memory that the program cannot use otherwise.
const GROWTH_SHARE: usize = 4;

/// Pages that a heap grows by at most at a time: 64 MiB.
const GROWTH_PAGES_MAX: usize = 32;

/// How long DPDK is not asked again after it had no memory, in milliseconds. It takes tens of
/// microseconds to find out, and a program at its limit asks at every allocation.
const RESPITE_MS: u64 = 10;

/// What times are counted from.
static EPOCH: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static IS_SPARING: Cell<bool> = const { Cell::new(false) };
}

/// While one lives, this thread's heaps grow by idle pages only, and DPDK is not asked for more.
pub(crate) struct Sparing;

impl Sparing {
    pub(crate) fn begin() -> Self {
        IS_SPARING.set(true);
        Self
    }
}

impl Drop for Sparing {
    fn drop(&mut self) {
        IS_SPARING.set(false);
    }
}

/// DPDK's memory on one socket, as extents.
pub(crate) struct SocketExtents {
    pub(crate) functions: &'static Functions,
    pub(crate) directory: &'static Directory,
    pub(crate) range: SocketRange,
    /// The heap's place in the directory.
    pub(crate) place: usize,
    /// What DPDK is asked for: the socket, or any where it has no huge pages and so no sockets.
    pub(crate) asked: c_int,
    /// `None` where one process has it all to itself.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) is_primary: bool,
    /// DPDK had no memory: until then it is not asked again, in milliseconds from [`EPOCH`].
    pub(crate) refused_until: AtomicU64,
}

impl SocketExtents {
    /// Pages that the heap has, or had and may have again.
    fn pages(&self) -> usize {
        let extents = self.directory.extents();
        extents.filter(|each| each.socket == self.range.socket).map(|each| each.pages).sum()
    }

    /// Says that an extent may be on its way; waits while a process leaves.
    fn set_out(&self) -> Transit<'_> {
        let set_out = || self.directory.set_out();
        match &self.metadata {
            Some(metadata) => metadata.leaving().wait(set_out),
            // One process has it all to itself.
            None => set_out(),
        }
    }

    /// Says that this process leaves, until the guard is dropped: no extent is on its way
    /// meanwhile.
    pub(crate) fn leave(&self) -> Option<Leave<'_>> {
        let leaving = self.metadata.as_ref().filter(|_| !self.is_primary)?.leaving();
        Some(leaving.begin(|| self.directory.settled().is_some()))
    }

    /// A new extent with room for `wanted` pages, and for more where there is memory.
    fn grow(&self, wanted: usize, is_idle: bool) -> Option<Extent> {
        // DPDK tries every way to get memory, each time anew.
        let now = EPOCH.get_or_init(Instant::now).elapsed().as_millis() as u64;
        if now < self.refused_until.load(Ordering::Relaxed) {
            return None;
        }
        let extent = self.grow_now(wanted, is_idle);
        if extent.is_none() {
            self.refused_until.store(now + RESPITE_MS, Ordering::Relaxed);
        }
        extent
    }

    /// Has DPDK asked again, which has memory again.
    pub(crate) fn end_respite(&self) {
        self.refused_until.store(0, Ordering::Relaxed);
    }

    fn grow_now(&self, wanted: usize, is_idle: bool) -> Option<Extent> {
        if self.metadata.as_ref().is_some_and(|metadata| !metadata.has_room(wanted * PAGE)) {
            return None;
        }
        let _transit = self.set_out();
        let mut pages = (self.pages() / GROWTH_SHARE).clamp(wanted, GROWTH_PAGES_MAX.max(wanted));
        loop {
            if let Some(extent) = self.allocate(pages) {
                return self.write_down(extent, is_idle);
            }
            if pages == wanted {
                // Where the block began too late in its first page, that is lost.
                return self.allocate(wanted + 1).and_then(|each| self.write_down(each, is_idle));
            }
            pages = (pages / 2).max(wanted);
        }
    }

    /// A block of DPDK's as long as so many pages but for its header, wherever it begins: it holds
    /// all pages but the first wholly, and of that what follows. Where DPDK's free memory ends with
    /// a page, which it does until the program's own large blocks have cut it up, nothing is lost
    /// but the header's slice. A block that is aligned to pages would cost DPDK a page more each
    /// time.
    fn allocate(&self, pages: usize) -> Option<Extent> {
        let _inside = Inside::enter();
        self.directory.counter.note_asked();
        let no_name = core::ptr::null();
        // SAFETY: DPDK is initialised, or there would be no heap; the type's name may be NULL.
        let block = unsafe {
            (self.functions.rte_malloc_socket)(no_name, pages * PAGE - HEADER, 0, self.asked)
        };
        let block = NonNull::new(block)?.as_ptr().expose_provenance();
        let extent = Extent::of(self.range.socket, block, pages);
        if extent.pages > 0 && self.is_within(&extent) {
            return Some(extent);
        }
        self.free(block);
        None
    }

    fn is_within(&self, extent: &Extent) -> bool {
        let offset = extent.address.wrapping_sub(self.range.base);
        offset < self.range.bytes && extent.bytes() <= self.range.bytes - offset
    }

    /// Frees a block of DPDK's that [`Self::allocate`] gave.
    pub(crate) fn free(&self, block: usize) {
        let _inside = Inside::enter();
        // SAFETY: callers pass a block that nobody has any more, and once.
        unsafe { (self.functions.rte_free)(core::ptr::with_exposed_provenance_mut(block)) };
    }

    fn write_down(&self, extent: Extent, is_idle: bool) -> Option<Extent> {
        if self.directory.add(extent, is_idle) {
            return Some(extent);
        }
        self.free(extent.block);
        None
    }

    /// Asks the primary process for pages; `None` when it has none, or does not answer.
    fn request(&self, wanted: usize) -> Option<Extent> {
        let counter = &self.directory.counter;
        let mut patience = Patience::new();
        let refusals = counter.refusals.load(Ordering::Relaxed);
        loop {
            let answers = counter.answers.load(Ordering::Acquire);
            // Also when patience is over: the answer may have come with its last nap.
            if let Some(pages) = self.directory.take_idle(self.range.socket, wanted) {
                return Some(pages);
            }
            let is_refused = counter.refusals.load(Ordering::Relaxed) != refusals;
            let post =
                || _ = counter.wanted[self.place].fetch_max(wanted as u32, Ordering::Relaxed);
            if is_refused || !counter.wait(&mut patience, answers, post) {
                return None;
            }
        }
    }

    /// Answers what secondary processes asked of this heap.
    pub(crate) fn answer(&self) {
        let counter = &self.directory.counter;
        let wanted = counter.wanted[self.place].swap(0, Ordering::Relaxed) as usize;
        if wanted == 0 {
            return;
        }
        if self.grow(wanted.min(EXTENT_PAGES_MAX - 1), true).is_none() {
            counter.refusals.fetch_add(1, Ordering::Relaxed);
        }
        counter.answers.fetch_add(1, Ordering::Release);
        futex::wake(&counter.answers);
    }

    /// Whether a block of so many bytes fits into what was laid aside. Of the first page of an
    /// extent a part is DPDK's, so a heap asks for one more than it needs as soon as it needs a
    /// whole one.
    pub(crate) fn has_idle(&self, bytes: usize, align: usize) -> bool {
        let bytes = bytes.max(align);
        let spare = usize::from(bytes > PAGE / 2);
        self.directory.has_idle(self.range.socket, bytes.div_ceil(PAGE) + spare)
    }

    /// Gives an extent that is idle as a whole back to DPDK, whichever heap's it was: how many
    /// bytes it had.
    pub(crate) fn give_back_one(&self) -> Option<usize> {
        let _transit = self.set_out();
        let extent = self.directory.strike_out()?;
        self.free(extent.block);
        Some(extent.cost_bytes())
    }
}

// SAFETY: DPDK gave each extent to this process's heaps alone, in the range of its socket, and maps
// it in every process before it says so; the directory hands an extent out once, until it is back.
unsafe impl Extents for SocketExtents {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let wanted = bytes.div_ceil(PAGE);
        if wanted == 0 || wanted >= EXTENT_PAGES_MAX {
            return None;
        }
        let idle = || self.directory.take_idle(self.range.socket, wanted);
        let is_attended = self.directory.counter.is_attended();
        let pages = match idle() {
            Some(pages) => pages,
            None if IS_SPARING.get() => return None,
            None if is_attended && !self.is_primary => self.request(wanted)?,
            None => self.grow(wanted, false)?,
        };
        let kept = pages.kept();
        let start = core::ptr::with_exposed_provenance_mut(pages.address + kept);
        Some((NonNull::new(start)?, pages.bytes() - kept))
    }

    fn give_back(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // DPDK gets it later, as a whole extent: from the housekeeper, or who needs it first.
        self.directory.lay_aside(start.addr().get(), bytes / PAGE).is_ok()
    }

    fn bus_address(&self, address: NonNull<u8>) -> Option<u64> {
        iova::of(self.functions, address.addr().get())
    }
}
