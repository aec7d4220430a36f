//! Runs of slices: finds a free run, claims it, makes its pages ready, and gives a run back.
//!
//! A span is within one page, at a multiple of its length. A bitmap for each span length finds
//! the lowest page with a free run for the span. A large block gets the lowest run that is long
//! enough, in one page or several. The pages above a node's frontier were never used. They are in
//! no bitmap until they are needed: see `open`.
//!
//! From the bottom up:
//!
//! - `resident`: gives back the memory of free slices;
//! - `whole`: claims all slices of a page without memory in one step;
//! - `run`: finds slices for a large block;
//! - `hold`: holds free slices for a moment;
//! - `open`: puts a node's pages into the bitmaps;
//! - `reserve`: gets memory for the metadata of a heap in a file.

use core::ops::Range;

use crate::crowd::Crowd;
use crate::fault::AllocError;
use crate::layout::{ORDERS, PAGE_SLICES, SLICE};
use crate::protocol::bitmap::Bitmap;
use crate::protocol::holders::Holders;
use crate::protocol::page::{self, Refused};
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{Cache, CacheId, CacheWord, Page, PageWord};
use crate::region::{Refusal, Region, Urgency};
use crate::searches::Searches;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys;
use crate::tables::Tables;

mod hold;
mod open;
mod reserve;
mod resident;
mod run;
mod whole;

pub(crate) use run::RunRequest;

/// How many polls a thread waits for another thread that holds a slice for a moment.
const PATIENCE: usize = 1000;

/// The index, in a node's additional hints, of a counter: the number of pages for which the pool
/// refused memory to any process.
pub(crate) const REFUSED: usize = 3;

/// The mappings of a heap and the tables in them.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) tables: Tables,
    /// Whether memory for the metadata must be requested before a write: the metadata is in a
    /// file, or the kernel counts writable memory.
    is_reserved: bool,
    /// One bit per class: this process knows that the class can have spans.
    known: AtomicU64,
    /// Limits how often all slots of a class are searched.
    pub(crate) searches: Searches,
    /// Limits the builders of spans in a process of many threads.
    pub(crate) crowd: Crowd,
    /// The threads of this process that hold free slices for a moment.
    pub(crate) holders: Holders,
}

/// The largest number of pauses while another thread makes a page ready. Each is a tenth of a
/// millisecond, all together a tenth of a second. Getting the memory of one page needed 8 ms
/// under a hypervisor.
const PAUSES: usize = 1000;

/// If other threads are getting memory for this many pages with the requested run, a thread waits
/// for one of these pages instead of opening another. Otherwise each of many threads would open a
/// page. The limit is above 1, because some of these pages may belong to threads that died
/// meanwhile.
const BUSY_MAX: usize = 4;

/// The number of polls after which the waiting thread checks whether another thread still works
/// on the page. The wait ends after two consecutive checks without such a thread. Each poll
/// yields the processor, which can take long.
const POLLS_PER_CHECK: usize = 32;

/// A wait for another thread's work.
#[derive(Default)]
struct Patience {
    polls: usize,
    is_doubted: bool,
}

impl Patience {
    /// Waits a moment. Returns false if the wait has reached its limit, or if no other thread
    /// works on the page.
    fn poll(&mut self, is_worked_on: impl Fn() -> bool) -> bool {
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS_PER_CHECK) {
            let was_doubted = core::mem::replace(&mut self.is_doubted, !is_worked_on());
            if was_doubted && self.is_doubted {
                return false;
            }
        }
        match self.polls {
            polls if polls <= PATIENCE => sys::yield_now(),
            polls if polls <= PATIENCE + PAUSES && is_worked_on() => sys::pause(),
            _ => return false,
        }
        true
    }
}

/// Why a page did not provide a run that its bit announced.
enum Miss {
    /// Other threads were faster, or another thread is getting the page's memory. The next page
    /// may have a run. Contains the number of such pages.
    Busy(usize),
    /// The page has no such run.
    Full,
    /// Memory for this page is not available, but memory for another page may be.
    Unusable,
    /// The system has no memory for the page.
    Refused,
}

impl Memory {
    pub(crate) fn new(region: Region) -> Self {
        // SAFETY: the region checked its geometry and mapped the metadata that it needs at a
        // multiple of 4,096, zeroed past the header; it stays mapped as long as `self.region`
        // lives.
        let tables = unsafe { Tables::new(region.metadata(), *region.geometry()) };
        let is_reserved = region.is_metadata_reserved();
        Self {
            region,
            tables,
            is_reserved,
            known: AtomicU64::new(0),
            searches: Searches::new(),
            crowd: Crowd::new(),
            holders: Holders::new(),
        }
    }

    /// Records that slices became free, so that searches find them, even if the hints were wrong.
    pub(crate) fn note_free(&self, run: Range<usize>) {
        for page in run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES) {
            self.note_page(page);
        }
    }

    /// Gives back claimed slices that contain no block or span and that are counted as used.
    pub(crate) fn give_back(&self, run: Range<usize>, me: CacheId) {
        let pieces = self.pieces_of(run.clone());
        slice::unclaim(self.tables.slices(), run.clone(), me);
        self.count_freed(&run, pieces);
        self.note_freed(&run, pieces);
    }

    /// The node that a slice belongs to.
    pub(crate) fn node_of(&self, slice: usize) -> usize {
        (slice * SLICE) >> self.tables.geometry().node_shift()
    }

    /// The usable pages of a node.
    pub(crate) fn pages_of(&self, node: usize) -> Range<usize> {
        let (first, end) = self.region.usable_pages(node as u32);
        first..end.min(self.tables.page_count())
    }

    /// The pages of a node that were ever used, and possibly some more.
    pub(crate) fn used_pages(&self, node: usize) -> Range<usize> {
        let pages = self.pages_of(node);
        let frontier = self.tables.nodes()[node].frontier.load(Acquire) as usize;
        pages.start..pages.end.min(pages.start + frontier)
    }

    /// Pages with a free run of `2^order` slices.
    pub(crate) fn order(&self, order: usize) -> Bitmap<'_> {
        self.tables.order(order)
    }

    /// Whether a page has memory.
    pub(crate) fn is_page_ready(&self, page: usize) -> bool {
        PageWord(self.tables.pages()[page].load(Acquire)).is_ready()
    }

    /// Makes a page's memory ready for `me`, which has claimed slices of it. Before `me` uses the
    /// slices, it must check that they are still claimed ([`slice::is_claimed`]).
    pub(crate) fn make_ready(
        &self,
        page: usize,
        me: CacheId,
        urgency: Urgency,
    ) -> Result<(), Refused> {
        let word = &self.tables.pages()[page];
        // The provider decides which external pages the heap may use, so an absent page may have
        // another user.
        if self.is_external() && !PageWord(word.load(Acquire)).is_ready() {
            return Err(Refused::Unusable);
        }
        page::make_ready(word, me, || self.provide(page, urgency, me))
    }

    /// Claims a page without memory and gets memory for it from the kernel. Returns the new page
    /// word, which the caller must store.
    fn map(&self, page: usize, me: CacheId, urgency: Urgency) -> Result<PageWord, Refused> {
        page::map(&self.tables.pages()[page], me, || self.provide(page, urgency, me))
    }

    fn provide(&self, page: usize, urgency: Urgency, me: CacheId) -> Result<PageWord, Refused> {
        let provided = self.region.provide(page, urgency).map_err(|refusal| match refusal {
            Refusal::Exhausted => Refused::Exhausted,
            Refusal::Unusable => Refused::Unusable,
        })?;
        if urgency == Urgency::Ahead || self.region.is_allocated() {
            self.note_provided(page, me);
        }
        Ok(PageWord::ready(provided.backing as u8))
    }

    /// Claims `count` consecutive free slices in one page of `node` for `me`, and gets memory for
    /// all of them. The first slice is at a multiple of `align` slices. `count` and `align` are
    /// at most a page, and `align` is a power of two. Reads a few words of a bitmap and claims
    /// each slice. Makes a system call only if the kind of page requires one.
    pub(crate) fn take_in_page(
        &self,
        node: usize,
        count: usize,
        align: usize,
        me: CacheId,
    ) -> Result<usize, AllocError> {
        let (mut openings, mut patience) = (self.openings(node), Patience::default());
        loop {
            let busy = match self.take_in_open_page(node, count, align, me) {
                Ok(head) => return Ok(head),
                Err(Miss::Refused) => return Err(AllocError::Exhausted),
                Err(Miss::Busy(pages)) => pages,
                Err(_) => 0,
            };
            let mut is_worth_waiting = || patience.poll(|| self.is_being_mapped(node, me));
            if busy >= BUSY_MAX && is_worth_waiting() {
                continue;
            }
            // If the provider keeps a slice of the first page, that page does not have all its
            // slices, but the next page has.
            let is_whole = order_of(count, align) == ORDERS - 1;
            let wanted = 1 + usize::from(is_whole && self.is_external());
            match self.open_pages(node, wanted) {
                Ok(()) => openings = openings.checked_sub(1).ok_or(AllocError::Exhausted)?,
                // Another thread is making the last page with such a run ready.
                Err(_) if busy > 0 && is_worth_waiting() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a page word of the node says that another cache is mapping the page, and that
    /// cache is in use. A corrupted word seldom names a cache in use. O(pages that were ever
    /// used).
    fn is_being_mapped(&self, node: usize, me: CacheId) -> bool {
        let pages = &self.tables.pages()[self.used_pages(node)];
        pages.iter().any(|word| match PageWord(word.load(Relaxed)).decode() {
            Page::Mapping(cache) if cache != me => self.tables.cache(cache).is_some_and(|record| {
                CacheWord(record.state.load(Relaxed)).decode() != Cache::Free
            }),
            _ => false,
        })
    }

    /// How often one request may open pages of a node. Each opening leaves fewer pages, unless a
    /// peer corrupts the frontier.
    fn openings(&self, node: usize) -> usize {
        self.pages_of(node).len()
    }

    /// Claims a run of `count` slices in the lowest open page with such a run. Returns
    /// [`Miss::Busy`] if a page may soon have such a run.
    fn take_in_open_page(
        &self,
        node: usize,
        count: usize,
        align: usize,
        me: CacheId,
    ) -> Result<usize, Miss> {
        let order = order_of(count, align);
        let bitmap = self.order(order);
        let pages = self.pages_of(node);
        let (mut page, mut busy) = (pages.start, 0);
        while let Some(found) = bitmap.next(page, pages.end) {
            match self.take_from(found, count, align, me) {
                Ok(head) => return Ok(head),
                Err(Miss::Refused) => return Err(Miss::Refused),
                Err(Miss::Full) => self.note_full(found, order),
                Err(Miss::Unusable) => self.note_unusable(found),
                Err(Miss::Busy(_)) => busy += 1,
            }
            page = found + 1;
        }
        Err(if busy > 0 { Miss::Busy(busy) } else { Miss::Full })
    }

    /// Clears a page's bit for `order`, unless a run of this order became free meanwhile.
    fn note_full(&self, page: usize, order: usize) {
        self.order(order).clear(page);
        step!("page.full.after_clear");
        // The record of free slices may have been wrong. A thread that freed slices which were
        // already recorded as free has set no bit.
        if longest_order(self.note_page_runs(page)) > order {
            self.order(order).set(page);
        }
    }

    /// Clears all bits of a page for which there was no memory, unless it got memory meanwhile.
    pub(crate) fn note_unusable(&self, page: usize) {
        (0..ORDERS).for_each(|order| _ = self.order(order).clear(page));
        self.note_no_runs(page);
        if self.is_page_ready(page) {
            self.note_page(page);
        }
        if self.region.is_of_pool(page) {
            // The count changes after the bits are cleared, so that a thread that reads the new
            // count sets the bits again.
            let node = self.node_of(page * PAGE_SLICES);
            self.tables.nodes()[node].more[REFUSED].fetch_add(1, AcqRel);
        }
    }

    fn take_from(
        &self,
        page: usize,
        count: usize,
        align: usize,
        me: CacheId,
    ) -> Result<usize, Miss> {
        let slices = self.tables.slices();
        let first = page * PAGE_SLICES;
        let (mut at, mut losses) = (0, 0);
        while at + count <= PAGE_SLICES {
            let taken = (0..count).rev().find(|i| !slice::word(slices, first + at + i).is_free());
            if let Some(taken) = taken {
                // `align` is a power of two, so a mask replaces a division, which would take as
                // long as the rest of the iteration.
                at = (at + taken + align) & !(align - 1);
                continue;
            }
            let run = first + at..first + at + count;
            if self.claim(&run, me).is_err() {
                losses += 1;
                if losses > PATIENCE {
                    return Err(Miss::Busy(1));
                }
                continue;
            }
            step!("page.take.after_claim");
            let ready = || self.make_ready(page, me, Urgency::Now);
            let kept = page::keep_claims(slices, &run, me, ready);
            return match kept.and_then(|had| self.supply(&run, had, count * SLICE, me)) {
                Ok(()) => Ok(run.start),
                Err(Refused::Busy) => {
                    // Another thread is mapping the page. A thread that recorded the page's free
                    // runs meanwhile did not include these slices.
                    self.note_free(run);
                    Err(Miss::Busy(1))
                }
                Err(Refused::Unusable) => Err(Miss::Unusable),
                Err(Refused::Exhausted) => Err(Miss::Refused),
            };
        }
        Err(Miss::Full)
    }

    /// Claims all slices of `run` and gets memory for them; on an error claims none. They become
    /// the last slices of a block of `bytes` bytes.
    pub(crate) fn claim_ready(
        &self,
        run: Range<usize>,
        bytes: usize,
        me: CacheId,
    ) -> Result<(), Refused> {
        if !self.open_up_to(run.end.div_ceil(PAGE_SLICES)) {
            return Err(Refused::Exhausted);
        }
        self.claim(&run, me).map_err(|_| Refused::Busy)?;
        self.keep_ready(&run, bytes, me)
    }

    /// Gets memory for slices that `me` has just claimed as the last slices of a block of `bytes`
    /// bytes. If that fails, gives the slices back and records them as free.
    fn keep_ready(&self, run: &Range<usize>, bytes: usize, me: CacheId) -> Result<(), Refused> {
        let mut pages = run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES);
        let mut last = pages.start;
        let result = page::keep_claims(self.tables.slices(), run, me, || {
            pages.try_for_each(|page| {
                last = page;
                self.make_ready(page, me, Urgency::Now)
            })
        });
        if result.is_err() {
            // A thread that recorded the free runs meanwhile did not include these slices.
            self.note_free(run.clone());
        }
        if result == Err(Refused::Unusable) {
            // Otherwise each later request would try the page again.
            self.note_unusable(last);
        }
        self.supply(run, result?, bytes, me)
    }
}

/// The order of the bitmap that shows the pages with a run of `count` slices at a multiple of
/// `align`.
fn order_of(count: usize, align: usize) -> usize {
    count.max(align).next_power_of_two().trailing_zeros() as usize
}

/// One more than the order of the longest aligned free run in a page; 0 if no slice is free. The
/// set bits of `mask` are the free slices.
fn longest_order(mask: u32) -> usize {
    let (mut runs, mut order) = (mask, 0);
    while runs != 0 {
        // Bit i of `runs` means: there is a free run of 2^order slices at i, and i is a multiple
        // of 2^order.
        let aligned = [0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 0x0000_0001];
        order += 1;
        let Some(mask) = aligned.get(order - 1) else { break };
        runs = runs & runs >> (1 << (order - 1)) & mask;
    }
    order
}

#[cfg(all(test, not(miri)))]
mod tests;
