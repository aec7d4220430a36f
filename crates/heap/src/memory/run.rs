//! Finds slices for a large block: the lowest free run that is long enough, in one page or
//! several.

use core::ops::Range;

use super::{Memory, Miss, PATIENCE, Patience};
use crate::fault::AllocError;
use crate::layout::PAGE_SLICES;
use crate::protocol::page::Refused;
use crate::protocol::runs::{self, Wanted};
use crate::protocol::step::step;
use crate::protocol::word::CacheId;

/// The largest number of pages that one search reads without success because their runs are long
/// enough but not aligned. Reading the words for a page needs some 20 ns.
const TRIES: usize = 16;

/// A request for `count` slices at a multiple of `align`, a power of two, for a block of `bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRequest {
    pub(crate) count: usize,
    pub(crate) align: usize,
    pub(crate) bytes: usize,
}

impl Memory {
    /// Claims free slices of `node` for `me`, and gets memory for all of them. Reads some dozens
    /// of words, independently of the number of live blocks, and claims each slice. Makes a
    /// system call only if the kind of page requires one.
    pub(crate) fn take_run(
        &self,
        node: usize,
        request: RunRequest,
        me: CacheId,
    ) -> Result<usize, AllocError> {
        let (mut openings, mut patience) = (self.openings(node), Patience::default());
        let RunRequest { count, align, .. } = request;
        loop {
            let is_busy = match self.take_open_run(node, request, me, TRIES) {
                Ok(head) => return Ok(head),
                Err(Miss::Refused) => return Err(AllocError::Exhausted),
                Err(miss) => matches!(miss, Miss::Busy(_)),
            };
            // If the provider keeps a slice of the first page, that page does not have all its
            // slices, but the next page has.
            let has_kept = self.is_external() && count.max(align) > PAGE_SLICES / 2;
            let wanted = count.div_ceil(PAGE_SLICES) + usize::from(has_kept);
            match self.open_pages(node, wanted) {
                Ok(()) => openings = openings.checked_sub(1).ok_or(AllocError::Exhausted)?,
                // Another thread is making the last page with such a run ready.
                Err(_) if is_busy && patience.poll(|| self.is_being_mapped(node, me)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Claims the slices `run` of `node`, if they match the request and are free.
    pub(crate) fn take_this_run(
        &self,
        node: usize,
        run: Range<usize>,
        request: RunRequest,
        me: CacheId,
    ) -> Option<usize> {
        let pages = self.used_pages(node);
        let is_one = run.len() == request.count
            && run.start & (request.align - 1) == 0
            && run.start >= pages.start * PAGE_SLICES
            && run.end <= pages.end * PAGE_SLICES;
        (is_one && self.claim_run(&run, request, me).is_ok()).then_some(run.start)
    }

    /// Like [`Memory::take_run`], but as a last resort: records the free slices of every page
    /// that was ever used, and tries each page that may have such a run.
    pub(crate) fn take_any_run(
        &self,
        node: usize,
        request: RunRequest,
        me: CacheId,
    ) -> Result<usize, AllocError> {
        self.used_pages(node).for_each(|page| _ = self.note_runs(page));
        match self.take_open_run(node, request, me, usize::MAX) {
            Ok(head) => Ok(head),
            Err(_) => self.take_run(node, request, me),
        }
    }

    /// Like [`Memory::take_run`], but takes slices only from open pages: opens no page and
    /// requests no extent.
    pub(crate) fn take_held_run(
        &self,
        node: usize,
        request: RunRequest,
        me: CacheId,
    ) -> Result<usize, AllocError> {
        self.take_open_run(node, request, me, TRIES).map_err(|_| AllocError::Exhausted)
    }

    /// Claims the lowest run of slices in open pages that matches the request. Returns
    /// [`Miss::Busy`] if there may be such slices in a moment.
    fn take_open_run(
        &self,
        node: usize,
        request: RunRequest,
        me: CacheId,
        tries: usize,
    ) -> Result<usize, Miss> {
        let (first, pages) = (self.first_page_of(node), self.used_pages(node));
        let RunRequest { count, align, .. } = request;
        let (start, end) = (pages.start - first, pages.end - first);
        let (from, end) = (start * PAGE_SLICES, end * PAGE_SLICES);
        let mut wanted = Wanted { count, align, from, end, tries };
        let (mut miss, mut losses) = (Miss::Full, 0);
        let runs = self.tables.runs(node);
        while let Some(found) = runs.find(&wanted) {
            if found + count > end {
                // The words are corrupt.
                break;
            }
            let head = first * PAGE_SLICES + found;
            let run = head..head + count;
            let claimed = match runs.is_noted(&(found..found + count)) {
                true => self.claim_run(&run, request, me),
                false => Err(None),
            };
            match claimed {
                Ok(()) => return Ok(head),
                Err(Some(Miss::Refused)) => return Err(Miss::Refused),
                Err(None) if losses < PATIENCE => losses += 1,
                Err(_) => {
                    miss = Miss::Busy(1);
                    wanted.from = (found / PAGE_SLICES + 1) * PAGE_SLICES;
                }
            }
        }
        Err(miss)
    }

    /// Claims slices that are recorded as free. The error is `None` if another search may
    /// succeed.
    fn claim_run(
        &self,
        run: &Range<usize>,
        request: RunRequest,
        me: CacheId,
    ) -> Result<(), Option<Miss>> {
        if self.claim(run, me).is_err() {
            let pages = run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES);
            pages.for_each(|page| _ = self.note_page_runs(page));
            return Err(None);
        }
        step!("run.take.after_claim");
        self.keep_ready(run, request.bytes, me).map_err(|refused| match refused {
            Refused::Busy => Some(Miss::Busy(1)),
            Refused::Exhausted => Some(Miss::Refused),
            // Later searches skip the page.
            Refused::Unusable => None,
        })
    }

    /// Records which slices of a page are free. Returns a mask of the slices that are now
    /// recorded as free.
    pub(super) fn note_runs(&self, page: usize) -> u32 {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note(page - self.first_page_of(node), || self.free_mask(page))
    }

    /// Like [`Memory::note_runs`], but for a page with too many slices recorded as free. Does not
    /// update the page's groups.
    pub(super) fn note_page_runs(&self, page: usize) -> u32 {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note_page(page - self.first_page_of(node), || self.free_mask(page))
    }

    /// Records that the slices in `mask` are free. Returns a mask of all slices that are now
    /// recorded as free, or `None` if the slices in `mask` were already recorded.
    pub(super) fn note_freed_runs(&self, page: usize, mask: u32) -> Option<u32> {
        let noted = runs::freed(&self.tables.page_runs()[page], mask);
        if noted.is_some() {
            let node = self.node_of(page * PAGE_SLICES);
            self.tables.runs(node).raise_groups(page - self.first_page_of(node));
        }
        noted
    }

    /// Records that all slices are free in pages that are used for the first time.
    pub(super) fn note_opened(&self, node: usize, pages: Range<usize>) {
        debug_assert!(pages.clone().all(|page| self.node_of(page * PAGE_SLICES) == node));
        pages.for_each(|page| _ = self.note_freed_runs(page, !0));
    }

    /// Records that a page has no free slices, so that no search finds it.
    pub(super) fn note_no_runs(&self, page: usize) {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note_page(page - self.first_page_of(node), || 0);
    }

    /// A mask of the free slices in a page that has memory or can get some; 0 for another page.
    fn free_mask(&self, page: usize) -> u32 {
        // The provider decides which external pages the heap may use, so an absent page cannot
        // get memory.
        if self.is_external() && !self.is_page_ready(page) { 0 } else { self.masks(page).0 }
    }

    /// The first page of a node, even if it is not usable.
    fn first_page_of(&self, node: usize) -> usize {
        node * self.tables.geometry().node_stride_pages()
    }
}
