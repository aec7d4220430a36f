//! Free slices that a thread holds for a moment, to give their memory back or to get memory for
//! them before a request does. They will be free again, but meanwhile no search finds them.
//!
//! So a request that finds no slices waits for the threads of its process that hold some, before
//! it fails ([`Memory::search_held`]). And a thread that holds slices up to the end of a page also
//! holds the free slices after them. Otherwise another thread could take a run that begins at the
//! next page, in the middle of a hole, and leave two holes that are too small for such a run.

use core::ops::Range;

use super::{Memory, PATIENCE};
use crate::fault::AllocError;
use crate::layout::PAGE_SLICES;
use crate::protocol::slice;
use crate::protocol::word::{CacheId, PageWord};
use crate::sync::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::sys;

/// The largest number of pauses in one wait for threads that hold slices, after [`PATIENCE`]
/// yields. Each is a tenth of a millisecond. A thread that gives 2 MiB back needs less than one,
/// but it can lose the processor.
const PAUSES: usize = 200;

/// How often a request searches, if threads held slices during each of its searches.
const SEARCHES: usize = 16;

/// The threads of this process that hold slices.
pub(super) struct Holders {
    now: AtomicU32,
    /// How often a thread ended to hold slices.
    ended: AtomicU32,
}

impl Holders {
    pub(super) const fn new() -> Self {
        Self { now: AtomicU32::new(0), ended: AtomicU32::new(0) }
    }

    fn enter(&self) {
        self.now.fetch_add(1, AcqRel);
    }

    fn leave(&self) {
        self.ended.fetch_add(1, AcqRel);
        // The count is 0 if a request has waited too long.
        let _ = self.now.fetch_update(AcqRel, Relaxed, |count| count.checked_sub(1));
    }

    /// Waits for the threads that hold slices now. Returns whether a thread has held slices since
    /// `ended` was read.
    fn wait(&self, ended: u32) -> bool {
        let (start, holding) = (self.ended.load(Acquire), self.now.load(Acquire));
        for poll in 0..PATIENCE + PAUSES {
            let done = self.ended.load(Acquire).wrapping_sub(start);
            if done >= holding || self.now.load(Acquire) == 0 {
                return holding > 0 || start != ended;
            }
            if poll < PATIENCE { sys::yield_now() } else { sys::pause() }
        }
        // Such a thread may be left of the parent of this process, when that was forked.
        self.now.store(0, Relaxed);
        true
    }
}

/// Slices that this thread holds. When it is dropped, the slices `rest` are free again. The
/// thread must have given back the other slices before.
pub(crate) struct Held<'a> {
    memory: &'a Memory,
    rest: Range<usize>,
    me: CacheId,
}

impl Memory {
    /// Claims the free slices `run` of one page for a moment. `None` if one of them is in use.
    pub(crate) fn hold(&self, run: &Range<usize>, me: CacheId) -> Option<Held<'_>> {
        let rest = self.rest_of_hole(run.end);
        self.holders.enter();
        if slice::claim(self.tables.slices(), run.start..rest.end, me).is_err() {
            self.holders.leave();
            return None;
        }
        Some(Held { memory: self, rest, me })
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

    /// Repeats `search` as long as it finds no slices and another thread of this process held some
    /// meanwhile.
    pub(crate) fn search_held<T>(
        &self,
        mut search: impl FnMut() -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        for _ in 0..SEARCHES {
            let ended = self.holders.ended.load(Acquire);
            let found = search();
            if !matches!(found, Err(AllocError::Exhausted)) || !self.holders.wait(ended) {
                return found;
            }
        }
        search()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            slice::unclaim(self.memory.tables.slices(), self.rest.clone(), self.me);
            // A thread that recorded the free runs meanwhile did not include these slices.
            self.memory.note_free(self.rest.clone());
        }
        self.memory.holders.leave();
    }
}
