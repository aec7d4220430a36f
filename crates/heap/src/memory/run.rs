//! Slices for a large block: the lowest free run that suffices, wherever it begins.

use core::ops::Range;

use super::{Memory, Miss, PATIENCE, Patience};
use crate::fault::AllocError;
use crate::layout::PAGE_SLICES;
use crate::protocol::page::Refused;
use crate::protocol::runs::{self, Wanted};
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{CacheId, PageWord};
use crate::sync::Ordering::Acquire;

/// The most pages that one search reads although their runs are long enough but not aligned.
/// Reading the words of each costs some 20 ns.
const TRIES: usize = 16;

/// A request for `count` slices at a multiple of `align`, a power of two, for a block of `bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRequest {
    pub(crate) count: usize,
    pub(crate) align: usize,
    pub(crate) bytes: usize,
}

impl Memory {
    /// Claims free slices of `node` for `me`, all with memory. Reads some dozens of words,
    /// however many blocks live, and claims each slice. Makes a system call only if the kind of
    /// page needs one.
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
            // A page of which the provider keeps a slice has no run of all its slices, but the
            // next page has one.
            let has_kept = self.is_external() && count.max(align) > PAGE_SLICES / 2;
            let wanted = count.div_ceil(PAGE_SLICES) + usize::from(has_kept);
            match self.open_pages(node, wanted) {
                Ok(()) => openings = openings.checked_sub(1).ok_or(AllocError::Exhausted)?,
                // Another thread is making the last page that has a run ready.
                Err(_) if is_busy && patience.poll(|| self.is_being_mapped(node, me)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Claims exactly these slices of `node`, if they match the request and are free.
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
    /// that was ever used, and tries each that may have such a run.
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

    /// Like [`Memory::take_run`], but from open pages only: opens no page and requests no extent.
    pub(crate) fn take_held_run(
        &self,
        node: usize,
        request: RunRequest,
        me: CacheId,
    ) -> Result<usize, AllocError> {
        self.take_open_run(node, request, me, TRIES).map_err(|_| AllocError::Exhausted)
    }

    /// Claims the lowest slices of open pages that match the request. Returns [`Miss::Busy`] if
    /// there may be such slices in a moment.
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

    /// Claims slices that seemed free. The error is `None` if another search may succeed.
    fn claim_run(
        &self,
        run: &Range<usize>,
        request: RunRequest,
        me: CacheId,
    ) -> Result<(), Option<Miss>> {
        let slices = self.tables.slices();
        // Slices that are noted as free but in use are mostly those allocated last.
        let is_last_free = slice::word(slices, run.end - 1).is_free();
        if !is_last_free || slice::claim(slices, run.clone(), me).is_err() {
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

    /// Records which slices of a page are free. Returns the slices that are then recorded as
    /// free.
    pub(super) fn note_runs(&self, page: usize) -> u32 {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note(page - self.first_page_of(node), || self.free_mask(page))
    }

    /// Like [`Memory::note_runs`], but for a page of which too many slices are recorded as free.
    /// Does not update the page's groups.
    pub(super) fn note_page_runs(&self, page: usize) -> u32 {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note_page(page - self.first_page_of(node), || self.free_mask(page))
    }

    /// Records that these slices of a page are free. Returns the free slices recorded then, or
    /// `None` if these were recorded already.
    pub(super) fn note_freed_runs(&self, page: usize, mask: u32) -> Option<u32> {
        let noted = runs::freed(&self.tables.page_runs()[page], mask);
        if noted.is_some() {
            let node = self.node_of(page * PAGE_SLICES);
            self.tables.runs(node).raise_groups(page - self.first_page_of(node));
        }
        noted
    }

    /// Records pages that come into use for the first time.
    pub(super) fn note_opened(&self, node: usize, pages: Range<usize>) {
        debug_assert!(pages.clone().all(|page| self.node_of(page * PAGE_SLICES) == node));
        pages.for_each(|page| _ = self.note_freed_runs(page, !0));
    }

    /// Records that a page has no free slices, so that no search finds it.
    pub(super) fn note_no_runs(&self, page: usize) {
        let node = self.node_of(page * PAGE_SLICES);
        self.tables.runs(node).note_page(page - self.first_page_of(node), || 0);
    }

    /// Which slices of a page are free, if it has memory or can get some.
    fn free_mask(&self, page: usize) -> u32 {
        // The provider chooses the external pages, so an absent one cannot get memory.
        let is_there = || PageWord(self.tables.pages()[page].load(Acquire)).is_ready();
        if self.is_external() && !is_there() { 0 } else { self.masks(page).0 }
    }

    /// The first page of a node, whether or not it can be used.
    fn first_page_of(&self, node: usize) -> usize {
        node * self.tables.geometry().node_stride_pages()
    }
}
