//! Puts a node's pages into the bitmaps: unused pages in ascending order, external pages when the
//! provider hands them out, and any page again when slices in it become free.

use core::ops::Range;

use super::{Memory, PATIENCE, longest_order};
use crate::fault::AllocError;
use crate::layout::{ORDERS, PAGE, PAGE_SLICES};
use crate::protocol::runs::mask_of;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{PageWord, Slice, SliceWord};
use crate::region::Provided;
use crate::region::backing::Backing;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;

/// The largest number of pages that are put into the bitmaps together if fewer were requested:
/// half of the bits of a word. When pages were put into the bitmaps one at a time, growth in
/// blocks of 128 KiB needed 97 ns per block.
const PAGES_OPENED_MAX: usize = 32;

/// For this many pages after the opened ones, the kernel maps metadata in advance. One page of 4
/// KiB contains the slice words for the minimum. With the maximum, one allocation waits some 6
/// us.
const PAGES_PREPARED_MIN: usize = 16;
const PAGES_PREPARED_MAX: usize = 96;

/// The number of page words per page of metadata, in the smallest page size of a kernel. The
/// kernel maps the next page of page words together with the slice words for the same data pages.
const PAGE_WORDS: usize = 4096 / size_of::<PageWord>();

/// The index, in a node's additional hints, of a counter: the number of pages for which the
/// kernel has mapped metadata in advance.
const PREPARED: usize = 2;

impl Memory {
    /// Puts at least `wanted` pages of a node that were never used into the bitmaps. If fewer are
    /// left, puts all of them in, and returns an error if none is left.
    pub(crate) fn open_pages(&self, node: usize, wanted: usize) -> Result<(), AllocError> {
        if self.is_external() {
            return self.open_external(wanted);
        }
        let pages = self.pages_of(node);
        let frontier = &self.tables.nodes()[node].frontier;
        let first = frontier.load(Relaxed) as usize;
        // The number grows with the heap, to an eighth of the used pages, so that opening pages
        // costs little per page.
        let many = (first / 8).min(PAGES_OPENED_MAX);
        let count = wanted.max(many).min(pages.len().saturating_sub(first));
        if count == 0 {
            return Err(AllocError::Exhausted);
        }
        let next = (first + count) as u32;
        if !self.reserve_pages(pages.start + first..pages.start + first + count) {
            return Err(AllocError::Exhausted);
        }
        if frontier.compare_exchange(first as u32, next, AcqRel, Relaxed).is_ok() {
            step!("page.open.after_frontier");
            let opened = pages.start + first..pages.start + first + count;
            // The bits are set before the free slices are recorded, because every thread that
            // finds no bit opens pages itself. (1,000 threads that began at the same time opened
            // 490 pages of 2 MiB.) No thread used these pages before. If a thread has used a page
            // meanwhile, a thread that follows the bit detects this.
            (0..ORDERS).for_each(|order| self.order(order).set_all(opened.clone()));
            self.note_opened(node, opened);
            self.prepare(node, first + count);
        }
        Ok(())
    }

    /// Makes the kernel map the slice words for a node's pages below page `end`, and for some
    /// pages above it. Otherwise the first access to a page of slice words would cause two page
    /// faults, because a thread reads the words before it writes them. The faults needed 12 ns of
    /// 80 per block of 128 KiB.
    pub(super) fn prepare(&self, node: usize, end: usize) {
        let done = &self.tables.nodes()[node].more[PREPARED];
        let from = done.load(Relaxed) as usize;
        let pages = self.pages_of(node);
        if end <= from || from >= pages.len() {
            return;
        }
        let to = (end + end.clamp(PAGES_PREPARED_MIN, PAGES_PREPARED_MAX)).min(pages.len());
        let slices = (pages.start + from) * PAGE_SLICES..(pages.start + to) * PAGE_SLICES;
        self.bring(&self.tables.slices()[slices]);
        if from / PAGE_WORDS != to / PAGE_WORDS {
            self.bring(&self.tables.pages()[pages.start + to - 1..pages.start + to]);
        }
        done.store(to as u32, Relaxed);
    }

    /// Moves the frontier of a node to page `end` if it is lower. This is necessary before a
    /// slice of these pages is claimed, because a search for slices in use ends at the frontier.
    /// Returns false if there is no memory for the pages' metadata.
    pub(super) fn open_up_to(&self, end: usize) -> bool {
        let node = self.node_of((end - 1) * PAGE_SLICES);
        let pages = self.pages_of(node);
        let frontier = &self.tables.nodes()[node].frontier;
        let next = end - pages.start;
        let first = frontier.load(Relaxed) as usize;
        if first >= next || self.region.external().is_some() {
            return true;
        }
        if !self.reserve_pages(pages.start + first..pages.start + next) {
            return false;
        }
        let old = frontier.fetch_max(next as u32, AcqRel) as usize;
        step!("page.open_up_to.after_frontier");
        (old..next).for_each(|page| self.note_page(pages.start + page));
        true
    }

    pub(super) fn is_external(&self) -> bool {
        self.region.external().is_some()
    }

    /// Gets an extent of at least `wanted` pages from the provider, which chooses the location.
    fn open_external(&self, wanted: usize) -> Result<(), AllocError> {
        let extent = self.region.provide_extent(wanted * PAGE);
        let Provided { first, count, backing, kept } = extent.map_err(|_| AllocError::Exhausted)?;
        self.note_external(first + count);
        let mut opened = 0;
        for page in first..first + count {
            if !self.mark_outside(page, if page == first { kept } else { 0 }) {
                // A dead process holds a slice. Or a thread holds a slice for a moment, because
                // it has not detected yet that the page was given back. SAFETY: the page was just
                // provided, and no other thread knows it.
                unsafe { self.region.give_back(page, Backing::External) };
                continue;
            }
            step!("page.open_external.after_outside");
            self.tables.pages()[page].store(PageWord::ready(backing as u8).0, Release);
            step!("page.open_external.after_ready");
            self.note_page(page);
            opened += 1;
        }
        // If no page could be opened, the call must fail, because the provider would return the
        // same pages again and again.
        if opened > 0 { Ok(()) } else { Err(AllocError::Exhausted) }
    }

    /// Marks the first `kept` slices of a new page as the provider's, and the others as the
    /// heap's. Returns false if a slice is in use. The provider may have kept other slices of the
    /// page before. A thread that has not detected yet that the page was given back may hold a
    /// slice for a moment. No thread keeps a slice before the page is ready.
    fn mark_outside(&self, page: usize, kept: usize) -> bool {
        let slices = &self.tables.slices()[page * PAGE_SLICES..][..PAGE_SLICES];
        slices.iter().enumerate().all(|(index, slice)| {
            (0..PATIENCE).any(|_| {
                let old = SliceWord(slice.load(Acquire));
                let generation = old.generation().wrapping_add(1);
                let new = match (index < kept, old.decode()) {
                    (true, Slice::Outside) => return true,
                    (true, Slice::Free) => SliceWord::outside(generation),
                    (false, Slice::Outside) => SliceWord::free(generation),
                    (false, _) => return true,
                    (true, _) => {
                        sys::yield_now();
                        return false;
                    }
                };
                slice.compare_exchange(old.0, new.0, AcqRel, Relaxed).is_ok()
            })
        })
    }

    /// Moves the frontier to `end` if it is lower. For external memory, the frontier only limits
    /// searches.
    fn note_external(&self, end: usize) {
        let start = self.pages_of(0).start;
        let frontier = &self.tables.nodes()[0].frontier;
        frontier.fetch_max(end.saturating_sub(start) as u32, AcqRel);
        step!("page.open_external.after_frontier");
    }

    /// Records the free slices of a page: its bits in the bitmaps, its runs, and whether it has
    /// idle memory. This also repairs the hints that a dead thread left.
    pub(crate) fn note_page(&self, page: usize) {
        let mask = self.note_runs(page);
        self.note_orders(page, mask);
        if self.masks(page).1 != 0 {
            self.note_idle(page);
        }
    }

    /// Records that slices became free, so that searches find them, and whether they can have
    /// memory: `pieces` of them can be resident. Reads only the hints.
    pub(crate) fn note_freed(&self, run: &Range<usize>, pieces: usize) {
        for page in run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES) {
            let freed = mask_of(run, page * PAGE_SLICES, PAGE_SLICES);
            // If these slices are already recorded as free, the bits are already set: a thread
            // that clears a bit of the page records the page's free slices again.
            if let Some(mask) = self.note_freed_runs(page, freed) {
                self.note_orders(page, mask);
            }
            if pieces > 0 {
                self.note_idle(page);
            }
        }
    }

    /// Sets a page's bits for the orders of its free runs. `mask` contains the free slices.
    fn note_orders(&self, page: usize, mask: u32) {
        for order in 0..longest_order(mask) {
            let bitmap = self.order(order);
            if !bitmap.is_set(page) {
                bitmap.set(page);
                step!("page.note.between");
            }
        }
    }

    /// Records that a page has idle memory.
    pub(super) fn note_idle(&self, page: usize) {
        if !self.tables.idle().is_set(page) {
            self.tables.idle().set(page);
            step!("page.note.after_idle");
        }
    }

    /// Two bit masks: the free slices of a page, and those free slices that can be resident.
    pub(super) fn masks(&self, page: usize) -> (u32, u32) {
        let slices = &self.tables.slices()[page * PAGE_SLICES..][..PAGE_SLICES];
        let (mut mask, mut idle) = (0, 0);
        // Slices are freed from the first one on, so the last one is read first: otherwise a hole
        // that is freed meanwhile would seem to begin in its middle.
        for index in (0..PAGE_SLICES).rev() {
            let word = slice::word(slices, index);
            mask |= u32::from(word.is_free()) << index;
            idle |= u32::from(word.is_free() & (word.resident() > 0)) << index;
        }
        (mask, idle)
    }
}
