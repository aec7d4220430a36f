//! The upkeep of one node: decides which of the node's pages have memory.

use core::ops::Range;

use super::TICK_MS;
use crate::cache::Keeper;
use crate::fault::AllocError;
use crate::heap::Heap;
use crate::layout::{ORDERS, PAGE, PAGE_SLICES, SHIFT_MIN, SHIFTS};
use crate::memory::{Memory, REFUSED};
use crate::protocol::page::{self, Refused};
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{PageWord, Slice};
use crate::region::Urgency;
use crate::region::backing::Backing;
use crate::sync::{
    AtomicU16,
    Ordering::{Acquire, Relaxed},
};

/// The index, in a node's additional hints, of a time: the tick at which empty spans were last
/// taken apart.
const DROPPED: usize = 0;

/// The index, in a node's additional hints, of a bit set: the shifts for which the kernel has
/// mapped slot words ahead.
const TOUCHED: usize = 1;

/// The index, in a node's additional hints, of a copy of the counter at
/// [`crate::memory::REFUSED`]. The copy was made when the refused pages were last retried.
const RETRIED: usize = 4;

/// The number of slot words per shift that the kernel maps for the pages after a page: 32 KiB,
/// enough for 64 MiB in blocks of 4 KiB. A hypervisor can need 8 ms for the memory of one page.
/// In that time, a program's allocations reach the fourth page after it.
const WORDS_AHEAD: usize = 1 << 14;

/// How many counts of free slots are in the smallest page that a kernel maps.
const COUNTS: usize = 4096 / size_of::<u32>();

/// The upkeep of one node.
pub(super) struct Upkeep<'a> {
    pub(super) heap: &'a Heap,
    pub(super) keeper: Keeper<'a>,
    /// In ticks.
    pub(super) now: u16,
}

impl Upkeep<'_> {
    /// Takes apart the empty spans that were kept, once per decay time.
    pub(super) fn drop_empty_spans(&self) {
        let Some(decay) = self.heap.upkeep.decay_ms else { return };
        let last = &self.memory().tables.nodes()[self.keeper.node].more[DROPPED];
        if u64::from(self.now.wrapping_sub(last.load(Relaxed) as u16)) * TICK_MS >= decay {
            last.store(self.now.into(), Relaxed);
            self.keeper.drop_empty_spans();
        }
    }

    /// The pool may have refused memory for some of the node's pages, to any process, since the
    /// last call. If the pool has free memory now, marks these pages as possibly usable again.
    pub(super) fn note_refused(&self) {
        let memory = self.memory();
        let hints = &memory.tables.nodes()[self.keeper.node];
        let (refused, retried) = (&hints.more[REFUSED], &hints.more[RETRIED]);
        let count = refused.load(Acquire);
        if count == retried.load(Relaxed) || !memory.region.pool_has_some() {
            return;
        }
        for page in self.used_pages().filter(|page| memory.region.is_of_pool(*page)) {
            if PageWord(memory.tables.pages()[page].load(Acquire)) == PageWord::ABSENT {
                memory.note_page(page);
            }
        }
        // Stored last: if this process dies before this store, the next call repeats the work.
        retried.store(count, Relaxed);
    }

    /// Gives back the memory of idle free pages, except `keep` of them. Returns how many pages
    /// are still ready and free, and how many were given back.
    pub(super) fn release_idle(&self, keep: usize) -> (usize, u32) {
        let (mut ready, mut released) = (0, 0);
        for page in self.used_pages() {
            if !self.is_ready_and_free(page) {
                continue;
            }
            if ready >= keep && self.is_idle(page) && self.release(page) {
                released += 1;
            } else {
                ready += 1;
            }
        }
        (ready, released)
    }

    /// Gives back the memory of all free pages. Returns their number.
    pub(super) fn release_free(&self) -> u32 {
        self.ready_and_free().map(|page| u32::from(self.release(page))).sum()
    }

    /// How many pages have memory, including the free pages.
    pub(super) fn ready_pages(&self) -> usize {
        let pages = &self.memory().tables.pages()[self.used_pages()];
        pages.iter().filter(|word| PageWord(word.load(Relaxed)).is_ready()).count()
    }

    pub(super) fn ready_and_free(&self) -> impl Iterator<Item = usize> {
        self.used_pages().filter(|page| self.is_ready_and_free(*page))
    }

    /// Whether a free page was unused for at least the decay time since the upkeep first saw it
    /// free. The generations of its slices show whether it was used meanwhile.
    fn is_idle(&self, page: usize) -> bool {
        let Some(decay) = self.heap.upkeep.decay_ms else { return false };
        let tables = &self.memory().tables;
        let generation = slices_of(page)
            .map(|index| slice::word(tables.slices(), index).generation())
            .fold(1_u16, u16::wrapping_add);
        let stamp = u32::from(self.now) << 16 | u32::from(generation);
        let seen = tables.page_times()[page].load(Relaxed);
        let idle_ms = u64::from(self.now.wrapping_sub((seen >> 16) as u16)) * TICK_MS;
        let is_same = seen as u16 == generation && seen != 0;
        if decay == 0 || (is_same && idle_ms >= decay) {
            return true;
        }
        if !is_same {
            tables.page_times()[page].store(stamp, Relaxed);
        }
        false
    }

    /// Gives a free page's memory back. Returns false if another thread uses the page, or if the
    /// page keeps its memory.
    fn release(&self, page: usize) -> bool {
        let memory = self.memory();
        let run = self.own_slices(page);
        let Some(_held) = memory.hold_hole(&run, self.keeper.id) else { return false };
        step!("maintain.release.after_claim");
        memory.count_used(&run, memory.pieces_of(run.clone()));
        let (word, slices) = (&memory.tables.pages()[page], memory.tables.slices());
        // A provider of external memory may hand out the page again at once, to a thread that
        // makes it ready. So the page word becomes "absent" first, and this thread keeps the
        // slices claimed until the provider has accepted the page.
        let between = memory.region.external().map(|_| PageWord::GIVEN_BACK);
        let is_gone = page::drain(word, slices, &run, self.keeper.id, between, |ready| {
            // SAFETY: this thread has claimed all slices of the page, so no block is in the page.
            unsafe { memory.region.give_back(page, Backing::from_number(ready.backing())) }
        });
        if is_gone {
            slice::set_resident(slices, run.clone(), 0);
        }
        memory.tables.page_times()[page].store(0, Relaxed);
        step!("maintain.release.before_free");
        memory.give_back(run, self.keeper.id);
        is_gone
    }

    /// Makes `missing` more free pages ready, with slot words for `shifts` and for the shifts
    /// that were used so far. Returns how many became ready, and whether the system refused
    /// memory.
    pub(super) fn grow(&self, missing: usize, shifts: u32) -> (u32, bool) {
        let memory = self.memory();
        let mut grown = 0;
        let mut from = self.pages().start;
        while grown < missing {
            let bitmap = memory.order(ORDERS - 1);
            let Some(page) = bitmap.next(from, self.pages().end) else {
                match memory.open_pages(self.keeper.node, missing - grown) {
                    // External memory is ready when its provider hands it out.
                    Ok(()) if memory.region.external().is_some() => return (grown as u32, false),
                    Ok(()) => {
                        from = self.pages().start;
                        continue;
                    }
                    Err(error) => return (grown as u32, error == AllocError::Exhausted),
                }
            };
            from = page + 1;
            if PageWord(memory.tables.pages()[page].load(Relaxed)) != PageWord::ABSENT {
                continue;
            }
            match self.make_ready(page, shifts) {
                Ok(()) => grown += 1,
                Err(Refused::Exhausted) => return (grown as u32, true),
                Err(Refused::Busy | Refused::Unusable) => {}
            }
        }
        (grown as u32, false)
    }

    fn make_ready(&self, page: usize, shifts: u32) -> Result<(), Refused> {
        let memory = self.memory();
        let run = slices_of(page);
        let _held = memory.hold(&run, self.keeper.id).ok_or(Refused::Busy)?;
        step!("maintain.grow.after_claim");
        // The metadata comes first, because it is fast. Getting the page's memory may take long,
        // and meanwhile allocations reach the following pages.
        self.touch(page, self.shifts() | shifts);
        if page == self.pages().start {
            // The sizes of later requests are not known yet, so slot words for all shifts are
            // mapped. The very first request must wait for more than these words anyway.
            let words = |shift| self.slot_words(page, shift);
            (SHIFT_MIN..SHIFT_MIN + SHIFTS as u32).for_each(|shift| _ = memory.bring(words(shift)));
        }
        let result = memory.make_ready(page, self.keeper.id, Urgency::Ahead);
        step!("maintain.grow.after_ready");
        memory.count_used(&run, memory.pieces_of(run.clone()));
        memory.give_back(run, self.keeper.id);
        if result == Err(Refused::Unusable) {
            memory.note_unusable(page);
        }
        result
    }

    /// The shifts of the classes that ever had spans, one bit each.
    fn shifts(&self) -> u32 {
        self.memory().tables.nodes()[self.keeper.node].shifts.load(Relaxed)
    }

    /// For pages that are already ready, makes the kernel map the slot words for the shifts that
    /// were first used since the last call.
    pub(super) fn touch_new_shifts(&self) {
        let shifts = self.shifts();
        let touched = &self.memory().tables.nodes()[self.keeper.node].more[TOUCHED];
        let new = shifts & !touched.load(Relaxed);
        if new != 0 {
            self.ready_and_free().for_each(|page| self.touch(page, new));
            touched.store(shifts, Relaxed);
        }
    }

    /// Makes the kernel map the metadata for spans in a page, and slot words for the pages after
    /// it, so that no allocation causes these page faults. There would be two faults per 2,048
    /// blocks of 4 KiB. A page fault takes some 4 us, or 20 to 40 us if a hypervisor must find
    /// the memory. Two system calls, and one for each shift.
    fn touch(&self, page: usize, shifts: u32) {
        let tables = &self.memory().tables;
        self.memory().bring(&tables.slices()[slices_of(page)]);
        for order in 0..ORDERS {
            let (first, counts) = (slices_of(page).start >> order, tables.span_free(order));
            // A page of counts serves a group of data pages. This call maps it when it handles
            // the first data page of the previous group.
            if first.is_multiple_of(COUNTS) && slices_of(page).start == first << order {
                self.memory().bring(&counts[first..(first + 2 * COUNTS).min(counts.len())]);
            }
        }
        let seen = |shift: &u32| shifts >> (shift - SHIFT_MIN) & 1 == 1;
        for shift in (SHIFT_MIN..SHIFT_MIN + SHIFTS as u32).filter(seen) {
            let first = (page * PAGE) >> shift;
            let end = first + self.slot_words(page, shift).len() + WORDS_AHEAD;
            let last = (self.pages().end * PAGE) >> shift;
            self.memory().bring(&tables.slots(shift)[first..end.min(last)]);
        }
    }

    /// The slot words of a page in the array of `shift`.
    fn slot_words(&self, page: usize, shift: u32) -> &[AtomicU16] {
        &self.memory().tables.slots(shift)[(page * PAGE) >> shift..((page + 1) * PAGE) >> shift]
    }

    fn is_ready_and_free(&self, page: usize) -> bool {
        let tables = &self.memory().tables;
        PageWord(tables.pages()[page].load(Relaxed)).is_ready()
            && self.own_slices(page).all(|index| slice::word(tables.slices(), index).is_free())
    }

    /// The slices of a page, except those that the provider of external memory keeps.
    fn own_slices(&self, page: usize) -> Range<usize> {
        let slices = self.memory().tables.slices();
        let is_own = |index: &usize| slice::word(slices, *index).decode() != Slice::Outside;
        let all = slices_of(page);
        all.clone().find(is_own).unwrap_or(all.end)..all.end
    }

    fn memory(&self) -> &Memory {
        self.keeper.memory
    }

    fn pages(&self) -> Range<usize> {
        self.memory().pages_of(self.keeper.node)
    }

    fn used_pages(&self) -> Range<usize> {
        self.heap.used_pages(self.keeper.node)
    }
}

fn slices_of(page: usize) -> Range<usize> {
    page * PAGE_SLICES..(page + 1) * PAGE_SLICES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pages, Request};

    #[test]
    fn decay_longer_than_tick_range_still_releases_pages() {
        let heap = Heap::builder().limit(8 << 20).nodes(1).pages(Pages::Plain);
        let heap = heap.decay(Some(u64::MAX)).build().unwrap();
        let block = heap.alloc(Request::new(1 << 20)).unwrap();
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(block) }.unwrap();
        let released = |now| {
            let keeper = heap.keeper(1).unwrap();
            Upkeep { heap: &heap, keeper: *keeper, now }.release_idle(0).1
        };
        assert_eq!([1, 1 << 14, 1 << 15, (1 << 15) + 100].map(released), [0, 0, 0, 1]);
    }
}
