//! Claims a page without memory as a whole: with one compare-and-swap of the page word, instead
//! of one for each slice.
//!
//! While the page word says that a cache is mapping the page, no claim on its slices is valid. A
//! thread that claims a slice meanwhile finds the page busy, or finds after the mapping that its
//! claim was overwritten. So the cache that maps the page may claim all slices with plain stores,
//! if the slices are free after the mapping ([`slice::claim_mapped`]). The slices that it does
//! not need yet are claimed ahead, so no other cache can get them. Therefore only the first pages
//! of a node are claimed as a whole.

use core::ops::Range;

use super::Memory;
use crate::layout::PAGE_SLICES;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{CacheId, PageWord};
use crate::region::Urgency;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

/// One in this many of a node's pages can be claimed as a whole. So at most this part of a full
/// heap is unusable because threads claimed it ahead.
const PART: usize = 8;

impl Memory {
    /// Claims a page of `node` without memory for `me`, and gets memory for it. Returns its
    /// slices. Returns `None` if a page with memory seems to have a free run of `2^order` slices,
    /// if other threads are claiming the page, or if the page is not one of the first pages.
    pub(crate) fn take_page(&self, node: usize, order: usize, me: CacheId) -> Option<Range<usize>> {
        let page = self.absent_page(node, order)?;
        let slices = page * PAGE_SLICES..(page + 1) * PAGE_SLICES;
        let is_taken = self.map(page, me, Urgency::Now).is_ok_and(|ready| {
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
        // A bit of the page was cleared. The slices must not stay recorded as free, because a
        // thread that frees slices which are recorded as free sets no bit.
        self.note_page_runs(page);
        Some(slices)
    }

    /// Gets a page without memory, and ensures that no other search for a run of `2^order` slices
    /// finds it.
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
