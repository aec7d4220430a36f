//! A page that has no memory yet, taken as a whole: by one exchange on its word, where claiming its
//! slices takes one for each.
//!
//! While a page's word says that a cache maps it, nobody's claim on a slice of it counts: who
//! claims one finds the page busy, or finds once it is ready that the claim was written over. So
//! the cache that maps it may claim all its slices by plain stores, if they were free when it had
//! mapped it ([`slice::claim_mapped`]). What it needs only later it has claimed ahead, where others
//! cannot get it: so only the first pages of a node are taken like this.

use core::ops::Range;

use super::Memory;
use crate::layout::PAGE_SLICES;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{CacheId, PageWord};
use crate::region::Haste;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

/// The part of a node's pages that can be taken as a whole: a full heap lacks at most so much
/// because threads claimed it ahead.
const PART: usize = 8;

impl Memory {
    /// Claims a page of `node` for `me` that has no memory, and gives it some: its slices. None
    /// where a page with memory seems to have a free run of `2^order` slices, where others are at
    /// it, and beyond the first pages.
    pub(crate) fn take_page(&self, node: usize, order: usize, me: CacheId) -> Option<Range<usize>> {
        let page = self.absent_page(node, order)?;
        let slices = page * PAGE_SLICES..(page + 1) * PAGE_SLICES;
        let is_taken = self.map(page, me, Haste::Now).is_ok_and(|ready| {
            let pieces = self.pieces_of(slices.clone());
            let is_claimed = slice::claim_mapped(
                &self.tables.pages()[page],
                ready,
                self.tables.slices(),
                &slices,
                me,
            );
            if is_claimed {
                self.count_used(&slices, pieces);
            }
            is_claimed
        });
        if !is_taken {
            self.note_page(page);
            return None;
        }
        // Who frees slices that are noted as free sets no bit, and one was cleared.
        self.note_page_runs(page);
        Some(slices)
    }

    /// A page without memory, which no search for a run of `2^order` slices leads to any more.
    fn absent_page(&self, node: usize, order: usize) -> Option<usize> {
        let pages = self.pages_of(node);
        let end = pages.start + pages.len() / PART;
        if self.is_external() {
            return None;
        }
        let bitmap = self.order(order);
        let found = if bitmap.is_empty() { None } else { bitmap.next(pages.start, pages.end) };
        if let Some(page) = found {
            let word = PageWord(self.tables.pages()[page].load(Acquire));
            let is_mine = page < end && word == PageWord::ABSENT && bitmap.clear(page);
            step!("page.whole.after_clear");
            return is_mine.then_some(page);
        }
        let frontier = &self.tables.nodes()[node].frontier;
        let first = frontier.load(Relaxed);
        if pages.start + first as usize >= end {
            return None;
        }
        let new = pages.start + first as usize;
        if !self.reserve_pages(new..new + 1) {
            return None;
        }
        frontier.compare_exchange(first, first + 1, AcqRel, Relaxed).ok()?;
        step!("page.whole.after_frontier");
        self.prepare(node, first as usize + 1);
        Some(new)
    }
}
