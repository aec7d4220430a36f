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

use super::{Memory, PATIENCE};
use crate::fault::AllocError;
use crate::layout::PAGE_SLICES;
use crate::protocol::slice::{self, Lost};
use crate::protocol::word::CacheId;
use crate::sys;

/// How often a request searches, if threads held slices during each of its searches.
const SEARCHES: usize = 3;

/// The longest wait between two searches, in nanoseconds. Giving back 2 MiB needs some hundred
/// microseconds and getting them some milliseconds, but a thread can lose the processor.
const WAIT_NS: u64 = 100_000_000;

/// Slices that this thread holds. Before it is dropped, the thread must give back all of them but
/// `rest`, which the drop gives back.
pub(crate) struct Held<'a> {
    memory: &'a Memory,
    rest: Range<usize>,
    /// How many pieces of `rest` can be resident.
    pieces: usize,
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
        let mut held = Held { memory: self, rest, pieces: 0, me };
        held.count_rest();
        Some(held)
    }

    /// The free slices from `start` on, if this is the start of a page that is ready.
    fn rest_of_hole(&self, start: usize) -> Range<usize> {
        let page = start / PAGE_SLICES;
        let is_start = start.is_multiple_of(PAGE_SLICES)
            && self.used_pages(self.node_of(start - 1)).contains(&page)
            && self.is_page_ready(page);
        let count = if is_start { self.masks(page).0.trailing_ones() as usize } else { 0 };
        start..start + count
    }

    /// Claims the free slices `run` for `me`. If another thread has taken one of them meanwhile,
    /// claims none, and records those that were claimed for a moment: a thread that recorded the
    /// free runs of their page at that moment did not include them.
    pub(super) fn claim(&self, run: &Range<usize>, me: CacheId) -> Result<(), Lost> {
        slice::claim(self.tables.slices(), run.clone(), me).inspect_err(|lost| {
            if lost.was_claiming && lost.at + 1 < run.end {
                // A search that found none of them meanwhile is repeated.
                self.holders.enter();
                self.note_free(lost.at + 1..run.end);
                self.holders.leave();
            }
        })
    }

    /// Repeats `search`, a search of all nodes that a request may use, if it finds no slices and
    /// another thread of this process held some meanwhile.
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

    /// Waits until no thread holds slices, or for [`WAIT_NS`].
    fn await_holders(&self) {
        let (start, mut polls) = (sys::now_ns(), 0);
        while self.holders.is_held() && sys::now_ns().saturating_sub(start) < WAIT_NS {
            if polls < PATIENCE {
                sys::yield_now()
            } else {
                sys::pause()
            }
            polls += 1;
        }
    }
}

impl Held<'_> {
    /// Counts the slices of `rest` as used. If another thread has given back the memory of their
    /// page before they were claimed, gives them back instead.
    fn count_rest(&mut self) {
        let (memory, rest) = (self.memory, self.rest.clone());
        if rest.is_empty() {
            return;
        }
        let slices = memory.tables.slices();
        let is_mine = memory.is_page_ready(rest.start / PAGE_SLICES)
            && slice::is_claimed(slices, rest.clone(), self.me);
        if is_mine {
            self.pieces = memory.pieces_of(rest.clone());
            memory.count_used(&rest, self.pieces);
        } else {
            slice::unclaim(slices, rest.clone(), self.me);
            memory.note_free(rest.clone());
            self.rest.end = rest.start;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let memory = self.memory;
        if !self.rest.is_empty() {
            slice::unclaim(memory.tables.slices(), self.rest.clone(), self.me);
            memory.count_freed(&self.rest, self.pieces);
            memory.note_freed(&self.rest, self.pieces);
        }
        memory.holders.leave();
    }
}
