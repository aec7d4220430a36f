//! Free slices that a thread holds for a moment, to give their memory back or to get memory for
//! them before a request does. They will be free again, but meanwhile no search finds them.
//!
//! So a request that finds no slices waits for the holders of its process, before it fails
//! ([`Memory::search_held`]). It does not see those of other processes, nor of another attachment
//! to the heap in its own process.
//!
//! A thread that gives back the memory of slices up to the end of a page also holds the free
//! slices at the start of the next page. Otherwise another thread could take a run there, in the
//! middle of a hole, and leave two holes that are too small for such a run. If the whole next page
//! is free, another thread can still do so behind it; such a hole has room for many runs.

use core::ops::Range;

use super::{Memory, PATIENCE, PAUSES};
use crate::fault::AllocError;
use crate::layout::PAGE_SLICES;
use crate::protocol::slice::{self, Lost};
use crate::protocol::word::{CacheId, PageWord};
use crate::sync::Ordering::Acquire;
use crate::sys;

/// How often a request searches, if threads held slices during each of its searches.
const SEARCHES: usize = 3;

/// Slices that this thread holds. Before it is dropped, the thread must give back all of them but
/// `rest`, which the drop gives back.
pub(crate) struct Held<'a> {
    memory: &'a Memory,
    rest: Range<usize>,
    me: CacheId,
}

impl Memory {
    /// Claims the free slices `run` of one page for a moment. `None` if one of them is in use.
    pub(crate) fn hold(&self, run: &Range<usize>, me: CacheId) -> Option<Held<'_>> {
        self.hold_with(run, run.end..run.end, me)
    }

    /// Like [`Memory::hold`], and also claims the slices of the same hole in the next page.
    pub(crate) fn hold_hole(&self, run: &Range<usize>, me: CacheId) -> Option<Held<'_>> {
        self.hold_with(run, self.rest_of_hole(run.end), me)
    }

    fn hold_with(
        &self,
        run: &Range<usize>,
        mut rest: Range<usize>,
        me: CacheId,
    ) -> Option<Held<'_>> {
        self.holders.enter();
        while let Err(lost) = self.claim(&(run.start..rest.end), me) {
            if lost.at < run.end {
                self.holders.leave();
                return None;
            }
            // Another thread has taken a slice of the next page.
            rest.end = lost.at;
        }
        let held = Held { memory: self, rest, me };
        if !held.rest.is_empty() {
            self.count_used(&held.rest, self.pieces_of(held.rest.clone()));
        }
        Some(held)
    }

    /// The free slices from `start` on, if this is the start of a page that is ready.
    fn rest_of_hole(&self, start: usize) -> Range<usize> {
        let page = start / PAGE_SLICES;
        let is_start = start.is_multiple_of(PAGE_SLICES)
            && self.used_pages(self.node_of(start - 1)).contains(&page)
            && PageWord(self.tables.pages()[page].load(Acquire)).is_ready();
        let count = if is_start { self.masks(page).0.trailing_ones() as usize } else { 0 };
        start..start + count
    }

    /// Claims the free slices `run` for `me`. If another thread has taken one of them meanwhile,
    /// claims none, and records those that were claimed for a moment: a thread that recorded the
    /// free runs of their page at that moment did not include them.
    pub(super) fn claim(&self, run: &Range<usize>, me: CacheId) -> Result<(), Lost> {
        slice::claim(self.tables.slices(), run.clone(), me).inspect_err(|lost| {
            if lost.was_claiming && lost.at + 1 < run.end {
                self.note_free(lost.at + 1..run.end);
            }
        })
    }

    /// Repeats `search` if it finds no slices and another thread of this process held some
    /// meanwhile.
    pub(crate) fn search_held<T>(
        &self,
        mut search: impl FnMut() -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        for _ in 1..SEARCHES {
            let before = self.holders.before();
            let found = search();
            if !matches!(found, Err(AllocError::Exhausted)) || !self.holders.held_since(before) {
                return found;
            }
            self.await_holders();
        }
        search()
    }

    /// Waits until no thread holds slices, or for some tenths of a second.
    fn await_holders(&self) {
        for poll in 0..PATIENCE + PAUSES {
            if !self.holders.is_held() {
                return;
            }
            if poll < PATIENCE { sys::yield_now() } else { sys::pause() }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            self.memory.give_back(self.rest.clone(), self.me);
        }
        self.memory.holders.leave();
    }
}
