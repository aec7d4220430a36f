//! The source of a heap's memory. The memory consists of blocks of DPDK's own heap, so that every
//! process has them mapped and devices reach them.
//!
//! Only the primary process allocates blocks, as long as its [`crate::housekeeping`] runs: DPDK
//! allocates under a lock that is never released if its holder dies, and the death of the primary
//! process ends the application anyway. A secondary process sends a request and waits. If DPDK
//! refuses memory to a secondary process, that process also requests the return of blocks and
//! waits for it.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

use haul_heap::Extents;

use crate::directory::{Directory, Transit};
use crate::dpdk::Functions;
use crate::extent::{EXTENT_PAGES_MAX, Extent, HEADER, PAGE};
use crate::inside::Inside;
use crate::leaving::Leave;
use crate::mailbox::Patience;
use crate::memory::SocketRange;
use crate::metadata::Metadata;
use crate::{futex, iova};

/// A heap grows by its memory divided by this number. A larger step needs fewer calls of DPDK,
/// each of which takes a lock and asks the kernel and every other process, but occupies more
/// memory that the program cannot use otherwise.
const GROWTH_SHARE: usize = 4;

/// The largest number of pages by which a heap grows at a time: 64 MiB.
const GROWTH_PAGES_MAX: usize = 32;

/// The back-off after DPDK refused memory, in milliseconds. A refusal takes tens of microseconds,
/// and a program at its limit would ask at every allocation.
const BACKOFF_MS: u64 = 10;

/// The origin of all times.
static EPOCH: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static IS_GROWTH_OFF: Cell<bool> = const { Cell::new(false) };
}

/// While this guard lives, this thread's heaps grow only by idle pages, and do not ask DPDK for
/// more.
pub(crate) struct NoGrowth;

impl NoGrowth {
    pub(crate) fn begin() -> Self {
        IS_GROWTH_OFF.set(true);
        Self
    }
}

impl Drop for NoGrowth {
    fn drop(&mut self) {
        IS_GROWTH_OFF.set(false);
    }
}

/// DPDK's memory on one socket, as extents.
pub(crate) struct SocketExtents {
    pub(crate) functions: &'static Functions,
    pub(crate) directory: &'static Directory,
    pub(crate) range: SocketRange,
    /// The heap's index in the directory.
    pub(crate) index: usize,
    /// The socket of requests to DPDK. The socket is any socket if DPDK has no huge pages and
    /// therefore no sockets.
    pub(crate) dpdk_socket: c_int,
    /// `None` if there is only one process.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) is_primary: bool,
    /// The end of the back-off after DPDK refused memory, in milliseconds from [`EPOCH`].
    pub(crate) refused_until: AtomicU64,
}

impl SocketExtents {
    /// The number of the heap's pages, idle ones included.
    fn pages(&self) -> usize {
        let extents = self.directory.extents();
        extents.filter(|each| each.socket == self.range.socket).map(|each| each.pages).sum()
    }

    /// Marks that an extent may be in transit. Waits while a process leaves.
    fn begin_transit(&self) -> Transit<'_> {
        let begin = || self.directory.begin_transit();
        match &self.metadata {
            Some(metadata) => metadata.leaving().wait(begin),
            // There is only one process.
            None => begin(),
        }
    }

    /// Announces that this process leaves, until the guard is dropped. No extent is in transit
    /// meanwhile.
    pub(crate) fn leave(&self) -> Option<Leave<'_>> {
        let leaving = self.metadata.as_ref().filter(|_| !self.is_primary)?.leaving();
        Some(leaving.begin(|| self.directory.transit_epoch().is_some()))
    }

    /// Allocates a new extent of at least `wanted` pages, and of more pages if there is memory.
    fn grow(&self, wanted: usize, is_idle: bool) -> Option<Extent> {
        // DPDK tries every source of memory at each call, so it is not asked during the back-off.
        let now = EPOCH.get_or_init(Instant::now).elapsed().as_millis() as u64;
        if now < self.refused_until.load(Ordering::Relaxed) {
            return None;
        }
        let extent = self.grow_now(wanted, is_idle);
        if extent.is_none() {
            self.refused_until.store(now + BACKOFF_MS, Ordering::Relaxed);
        }
        extent
    }

    /// Ends the back-off, because DPDK has memory again.
    pub(crate) fn end_backoff(&self) {
        self.refused_until.store(0, Ordering::Relaxed);
    }

    fn grow_now(&self, wanted: usize, is_idle: bool) -> Option<Extent> {
        if self.metadata.as_ref().is_some_and(|metadata| !metadata.has_room(wanted * PAGE)) {
            return None;
        }
        let _transit = self.begin_transit();
        let mut pages = (self.pages() / GROWTH_SHARE).clamp(wanted, GROWTH_PAGES_MAX.max(wanted));
        loop {
            if let Some(extent) = self.allocate(pages) {
                return self.record(extent, is_idle);
            }
            if pages == wanted {
                // Asks for one page more, because the block may begin too late in its first page.
                return self.allocate(wanted + 1).and_then(|each| self.record(each, is_idle));
            }
            pages = (pages / 2).max(wanted);
        }
    }

    /// Allocates a block of DPDK with the size of `pages` pages without its header, at any
    /// address. The block contains the end of its first page, and all other pages completely.
    /// DPDK's free memory ends at a page boundary until the program's own large blocks have
    /// divided it. Until then only the slice of the header is lost. A block that is aligned to
    /// pages would cost DPDK one page more.
    fn allocate(&self, pages: usize) -> Option<Extent> {
        let _inside = Inside::enter();
        self.directory.mailbox.note_dpdk_use();
        let no_name = core::ptr::null();
        // SAFETY: DPDK is initialised, or there would be no heap; the type's name may be NULL.
        let block = unsafe {
            (self.functions.rte_malloc_socket)(no_name, pages * PAGE - HEADER, 0, self.dpdk_socket)
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

    /// Frees a block of DPDK from [`Self::allocate`].
    pub(crate) fn free(&self, block: usize) {
        let _inside = Inside::enter();
        // SAFETY: callers pass a block once, when no thread uses it any more.
        unsafe { (self.functions.rte_free)(core::ptr::with_exposed_provenance_mut(block)) };
    }

    fn record(&self, extent: Extent, is_idle: bool) -> Option<Extent> {
        if self.directory.add(extent, is_idle) {
            return Some(extent);
        }
        self.free(extent.block);
        None
    }

    /// Asks the primary process for pages. Returns `None` if the primary process has no pages or
    /// does not answer.
    fn request(&self, wanted: usize) -> Option<Extent> {
        let mailbox = &self.directory.mailbox;
        let mut patience = Patience::new();
        let refusals = mailbox.refusals.load(Ordering::Relaxed);
        loop {
            let answers = mailbox.answers.load(Ordering::Acquire);
            // The idle pages are also checked when the patience is over, because the answer may
            // have arrived in the last wait.
            if let Some(pages) = self.directory.take_idle(self.range.socket, wanted) {
                return Some(pages);
            }
            let is_refused = mailbox.refusals.load(Ordering::Relaxed) != refusals;
            let post =
                || _ = mailbox.wanted[self.index].fetch_max(wanted as u32, Ordering::Relaxed);
            if is_refused || !mailbox.wait(&mut patience, answers, post) {
                return None;
            }
        }
    }

    /// Answers the requests of secondary processes to this heap.
    pub(crate) fn answer(&self) {
        let mailbox = &self.directory.mailbox;
        let wanted = mailbox.wanted[self.index].swap(0, Ordering::Relaxed) as usize;
        if wanted == 0 {
            return;
        }
        if self.grow(wanted.min(EXTENT_PAGES_MAX - 1), true).is_none() {
            mailbox.refusals.fetch_add(1, Ordering::Relaxed);
        }
        mailbox.answers.fetch_add(1, Ordering::Release);
        futex::wake(&mailbox.answers);
    }

    /// Whether a block of this size fits into idle pages. Part of an extent's first page belongs to
    /// DPDK, so a heap asks for one page more than it needs if it needs a whole page.
    pub(crate) fn has_idle(&self, bytes: usize, align: usize) -> bool {
        let bytes = bytes.max(align);
        let spare = usize::from(bytes > PAGE / 2);
        self.directory.has_idle(self.range.socket, bytes.div_ceil(PAGE) + spare)
    }

    /// Gives a completely idle extent of any heap back to DPDK. Returns the number of the
    /// extent's bytes.
    pub(crate) fn give_back_one(&self) -> Option<usize> {
        let _transit = self.begin_transit();
        let extent = self.directory.remove_idle()?;
        self.free(extent.block);
        Some(extent.cost_bytes())
    }
}

// SAFETY: DPDK allocated each extent for the heaps alone, in the range of its socket, and maps it
// in every process before it returns; the directory gives an extent to only one heap until the
// extent is idle again.
unsafe impl Extents for SocketExtents {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let wanted = bytes.div_ceil(PAGE);
        if wanted == 0 || wanted >= EXTENT_PAGES_MAX {
            return None;
        }
        let idle = || self.directory.take_idle(self.range.socket, wanted);
        let has_server = self.directory.mailbox.has_server();
        let pages = match idle() {
            Some(pages) => pages,
            None if IS_GROWTH_OFF.get() => return None,
            None if has_server && !self.is_primary => self.request(wanted)?,
            None => self.grow(wanted, false)?,
        };
        let kept = pages.kept();
        let start = core::ptr::with_exposed_provenance_mut(pages.address + kept);
        Some((NonNull::new(start)?, pages.bytes() - kept))
    }

    fn give_back(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // The housekeeper, or the first thread that needs the memory, returns the whole extent to
        // DPDK later.
        self.directory.mark_idle(start.addr().get(), bytes / PAGE).is_ok()
    }

    fn bus_address(&self, address: NonNull<u8>) -> Option<u64> {
        iova::of(self.functions, address.addr().get())
    }
}
