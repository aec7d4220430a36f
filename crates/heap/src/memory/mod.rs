//! Runs of slices: which are free, how one is found and claimed with its pages ready, and given
//! back.
//!
//! A span lies within one page, at a multiple of its length: the lowest page that has such a run,
//! by the bitmap of its length. A large block lies anywhere: the lowest free slices that are
//! enough, within a page or across several. Pages that were never used lie above a node's frontier,
//! and are in no bitmap until they are needed: see `open`.
//!
//! From the bottom up:
//!
//! - `resident`: which free slices have memory, and how it is given back;
//! - `whole`: a page that has no memory yet, taken as a whole;
//! - `run`: slices for a large block;
//! - `open`: how a node's pages come into the bitmaps;
//! - `reserve`: metadata of a heap in a file.

use core::ops::Range;

use crate::crowd::Crowd;
use crate::fault::AllocError;
use crate::layout::{ORDERS, PAGE_SLICES, SLICE};
use crate::looks::Looks;
use crate::protocol::bitmap::Bitmap;
use crate::protocol::page::{self, Refused};
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{Cache, CacheId, CacheWord, Page, PageWord};
use crate::region::{Haste, Refusal, Region};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys;
use crate::tables::Tables;

mod open;
mod reserve;
mod resident;
mod run;
mod whole;

pub(crate) use run::Request;

/// How often a thread that holds a slice for a moment is waited for.
const PATIENCE: usize = 1000;

/// Where in a node's further hints it stands how many pages of the pool were refused, to any
/// process.
pub(crate) const REFUSED: usize = 3;

/// The mappings of a heap and the tables in them.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) tables: Tables,
    /// Whether the metadata has to be reserved before it is written to: it is a file's, or the
    /// kernel counts what can be written to.
    is_reserved: bool,
    /// Classes that can have spans, as far as this process knows, a bit each.
    known: AtomicU64,
    /// When all slots of a class may be searched again.
    pub(crate) looks: Looks,
    /// Who builds spans, of the threads of which there are many.
    pub(crate) crowd: Crowd,
}

/// Pauses of the wait for a page that another thread makes ready, a tenth of a millisecond each: a
/// tenth of a second in all. Getting the memory of one page took 8 ms under a hypervisor.
const PAUSES: usize = 1000;

/// Pages that other threads get memory for, and that hold what is asked for: where there are so
/// many, another thread waits for one of them and opens none. Else each thread of a herd would have
/// a page of its own. Some may be those of threads that died at it.
const BUSY_MAX: usize = 4;

/// After so many polls the waiter asks whether anybody works on it still; twice in a row nobody
/// ends the wait. Each poll yields the processor, which can take long.
const GLANCE: usize = 32;

/// The wait for what another thread works on.
#[derive(Default)]
struct Patience {
    looks: usize,
    is_doubted: bool,
}

impl Patience {
    /// Waits a moment; false where that was long enough, or nobody works on it after all.
    fn goes_on(&mut self, is_at_it: impl Fn() -> bool) -> bool {
        self.looks += 1;
        if self.looks.is_multiple_of(GLANCE) {
            let was_doubted = core::mem::replace(&mut self.is_doubted, !is_at_it());
            if was_doubted && self.is_doubted {
                return false;
            }
        }
        match self.looks {
            looks if looks <= PATIENCE => sys::give_way(),
            looks if looks <= PATIENCE + PAUSES && is_at_it() => sys::pause(),
            _ => return false,
        }
        true
    }
}

/// Why a page that seemed to have a run gave none.
enum Miss {
    /// Others were faster, or one of them is getting its memory: the next page may do. So many
    /// pages were met.
    Busy(usize),
    /// It has no such run.
    Full,
    /// Its memory cannot be had; another page's may.
    Unusable,
    /// The system has no memory for it.
    Refused,
}

impl Memory {
    pub(crate) fn new(region: Region) -> Self {
        // SAFETY: the region checked its geometry and mapped the metadata that it needs at a
        // multiple of 4,096, zeroed past the header; it stays mapped as long as `self.region`
        // lives.
        let tables = unsafe { Tables::new(region.metadata(), *region.geometry()) };
        let is_reserved = region.is_metadata_reserved();
        let (looks, crowd) = (Looks::new(), Crowd::new());
        Self { region, tables, is_reserved, known: AtomicU64::new(0), looks, crowd }
    }

    /// Notes that slices became free, so that they are found, whatever was noted of them.
    pub(crate) fn note_free(&self, run: Range<usize>) {
        for page in run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES) {
            self.note_page(page);
        }
    }

    /// Gives claimed slices back that nothing was made of, and that count as used.
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

    /// The pages of a node that can ever be used.
    pub(crate) fn pages_of(&self, node: usize) -> Range<usize> {
        let (first, end) = self.region.usable_pages(node as u32);
        first..end.min(self.tables.page_count())
    }

    /// The pages of a node that were ever used, and perhaps some more.
    pub(crate) fn used_pages(&self, node: usize) -> Range<usize> {
        let pages = self.pages_of(node);
        let frontier = self.tables.nodes()[node].frontier.load(Acquire) as usize;
        pages.start..pages.end.min(pages.start + frontier)
    }

    /// Pages with a free run of `2^order` slices.
    pub(crate) fn order(&self, order: usize) -> Bitmap<'_> {
        self.tables.order(order)
    }

    /// Makes a page's memory ready for `me`, who has claimed slices of it and must look whether
    /// they still are ([`slice::is_claimed`]) before anything is made of them.
    pub(crate) fn make_ready(&self, page: usize, me: CacheId, haste: Haste) -> Result<(), Refused> {
        let word = &self.tables.pages()[page];
        // Which pages come is the provider's choice: one that is not there belongs to somebody
        // else.
        if self.is_external() && !PageWord(word.load(Acquire)).is_ready() {
            return Err(Refused::Unusable);
        }
        page::make_ready(word, me, || self.provide(page, haste, me))
    }

    /// Takes hold of a page without memory and has the kernel give it some: what its word is to say
    /// next.
    fn map(&self, page: usize, me: CacheId, haste: Haste) -> Result<PageWord, Refused> {
        page::map(&self.tables.pages()[page], me, || self.provide(page, haste, me))
    }

    fn provide(&self, page: usize, haste: Haste, me: CacheId) -> Result<PageWord, Refused> {
        let provided = self.region.provide(page, haste).map_err(|refusal| match refusal {
            Refusal::Exhausted => Refused::Exhausted,
            Refusal::Unusable => Refused::Unusable,
        })?;
        if haste == Haste::Ahead || self.region.is_allocated() {
            self.note_provided(page, me);
        }
        Ok(PageWord::ready(provided.backing as u8))
    }

    /// Claims `count` free slices of one page of `node` for `me`, the first at a multiple of
    /// `align` slices (both at most a page, `align` a power of two), with memory behind them all.
    /// Reads a few words of a bitmap and claims each slice; a system call only where the kind of
    /// page needs one.
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
            let mut is_worth_waiting = || patience.goes_on(|| self.is_being_mapped(node, me));
            if busy >= BUSY_MAX && is_worth_waiting() {
                continue;
            }
            // A page of which a slice is kept has no run of all its slices; the next one has.
            let is_whole = order_of(count, align) == ORDERS - 1;
            let wanted = 1 + usize::from(is_whole && self.is_external());
            match self.open_pages(node, wanted) {
                Ok(()) => openings = openings.checked_sub(1).ok_or(AllocError::Exhausted)?,
                // The last page that has a run is being made ready by another.
                Err(_) if busy > 0 && is_worth_waiting() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether another cache that somebody has maps a page of the node. A word that a peer
    /// scribbled seldom names one. O(pages that were ever used).
    fn is_being_mapped(&self, node: usize, me: CacheId) -> bool {
        let pages = &self.tables.pages()[self.used_pages(node)];
        pages.iter().any(|word| match PageWord(word.load(Relaxed)).decode() {
            Page::Mapping(cache) if cache != me => self.tables.cache(cache).is_some_and(|record| {
                CacheWord(record.state.load(Relaxed)).decode() != Cache::Free
            }),
            _ => false,
        })
    }

    /// How often one request opens pages of a node at most: each time there is one fewer, but where
    /// a peer scribbles over how many were.
    fn openings(&self, node: usize) -> usize {
        self.pages_of(node).len()
    }

    /// The lowest open page that has such a run; [`Miss::Busy`] where some may have it in a moment.
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

    /// Clears a page's bit for `order`, unless a run came free meanwhile.
    fn note_full(&self, page: usize, order: usize) {
        self.order(order).clear(page);
        step!("page.full.after_clear");
        // Who frees slices that are noted as free sets no bit.
        if longest_order(self.note_page_runs(page)) > order {
            self.order(order).set(page);
        }
    }

    /// Clears all bits of a page that did not come, unless it came meanwhile.
    pub(crate) fn note_unusable(&self, page: usize) {
        (0..ORDERS).for_each(|order| _ = self.order(order).clear(page));
        self.note_no_runs(page);
        if PageWord(self.tables.pages()[page].load(Acquire)).is_ready() {
            self.note_page(page);
        }
        if self.region.is_of_pool(page) {
            // After the bits, so that who sees the count notes them again.
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
                // `align` is a power of two, and a division takes as long as the rest of the turn.
                at = (at + taken + align) & !(align - 1);
                continue;
            }
            let run = first + at..first + at + count;
            if slice::claim(slices, run.clone(), me).is_err() {
                losses += 1;
                if losses > PATIENCE {
                    return Err(Miss::Busy(1));
                }
                continue;
            }
            step!("page.take.after_claim");
            let ready = || self.make_ready(page, me, Haste::Now);
            let kept = page::keep_claims(slices, &run, me, ready);
            return match kept.and_then(|had| self.supply(&run, had, count * SLICE, me)) {
                Ok(()) => Ok(run.start),
                Err(Refused::Busy) => {
                    // It is being mapped, and who noted its free runs meanwhile did not see these.
                    self.note_free(run);
                    Err(Miss::Busy(1))
                }
                Err(Refused::Unusable) => Err(Miss::Unusable),
                Err(Refused::Exhausted) => Err(Miss::Refused),
            };
        }
        Err(Miss::Full)
    }

    /// Claims these very slices with memory behind them, or none: the last ones of a block of so
    /// many bytes.
    pub(crate) fn claim_ready(
        &self,
        run: Range<usize>,
        bytes: usize,
        me: CacheId,
    ) -> Result<(), Refused> {
        let slices = self.tables.slices();
        if !self.open_up_to(run.end.div_ceil(PAGE_SLICES)) {
            return Err(Refused::Exhausted);
        }
        slice::claim(slices, run.clone(), me).map_err(|_| Refused::Busy)?;
        self.keep_ready(&run, bytes, me)
    }

    /// Sees to the memory of slices that `me` has just claimed, the last ones of a block of so many
    /// bytes; where they cannot be kept, they are given back and noted.
    fn keep_ready(&self, run: &Range<usize>, bytes: usize, me: CacheId) -> Result<(), Refused> {
        let mut pages = run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES);
        let mut last = pages.start;
        let result = page::keep_claims(self.tables.slices(), run, me, || {
            pages.try_for_each(|page| {
                last = page;
                self.make_ready(page, me, Haste::Now)
            })
        });
        if result.is_err() {
            // Who noted the free runs meanwhile did not see these.
            self.note_free(run.clone());
        }
        if result == Err(Refused::Unusable) {
            // Else each such request would ask for it again.
            self.note_unusable(last);
        }
        self.supply(run, result?, bytes, me)
    }
}

/// The order of the bitmap in which pages stand that have a run of `count` slices at a multiple of
/// `align`.
fn order_of(count: usize, align: usize) -> usize {
    count.max(align).next_power_of_two().trailing_zeros() as usize
}

/// One more than the order of the longest aligned free run in a page, of which those slices are
/// free whose bit is set; 0 where none is.
fn longest_order(mask: u32) -> usize {
    let (mut runs, mut order) = (mask, 0);
    while runs != 0 {
        // Bit i of `runs`: a free run of 2^order at i, a multiple of 2^order.
        let aligned = [0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 0x0000_0001];
        order += 1;
        let Some(mask) = aligned.get(order - 1) else { break };
        runs = runs & runs >> (1 << (order - 1)) & mask;
    }
    order
}

#[cfg(all(test, not(miri)))]
mod tests;
