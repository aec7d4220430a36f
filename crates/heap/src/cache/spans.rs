//! Finds a span from which a cache takes slots of a class: a partly free span, or else a new one.
//! Keeps a span or takes it apart when all its slots are free.

use core::ops::Range;

use super::{EMPTY_SLICES_KEPT, Keeper, room, unit, worth};
use crate::fault::AllocError;
use crate::layout::{PAGE_SLICES, SHIFT_MIN};
use crate::protocol::bitmap::Bitmap;
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::count;
use crate::protocol::slice;
use crate::protocol::span::{self, Outcome};
use crate::protocol::step::step;
use crate::sync::Ordering::Relaxed;

/// For a span of at least this many slices, a cache claims a whole page without memory. It keeps
/// the page's other slices for its next spans; they are "claimed ahead". The limit is a quarter
/// of a page. The classes of 20 KiB, 24 KiB and at least 40 KiB have spans of this length. A
/// thread that uses only smaller blocks claims no slices ahead.
const AHEAD_SLICES_MIN: usize = PAGE_SLICES / 4;

impl Keeper<'_> {
    /// Makes a span of `class` with free slots the current span and returns its head; `None` if
    /// there is no such span.
    pub(super) fn adopt(&self, class: usize) -> Option<usize> {
        if !self.memory.has_spans(class) {
            return None;
        }
        let bitmap = self.partial(class);
        if bitmap.is_empty() {
            return None;
        }
        let slices = self.slices();
        let mut from = slices.start;
        while let Some(head) = bitmap.next(from, slices.end) {
            let is_head = head.is_multiple_of(TABLE[class].span_slices as usize);
            if is_head && self.take_from_bitmap(&bitmap, head, class) {
                self.make_current(head, 0, class);
                return Some(head);
            }
            from = head + 1;
        }
        None
    }

    /// Takes the span at `head` out of the bitmap, so that other caches do not adopt it. Returns
    /// false if another cache was faster. A frugal cache leaves the span in the bitmap. If a
    /// thread took the span out and was descheduled, each of the other threads would build a
    /// span. Leaving it there is safe because each slot is claimed separately.
    fn take_from_bitmap(&self, bitmap: &Bitmap<'_>, head: usize, class: usize) -> bool {
        let all = TABLE[class].span_slots as i32;
        if self.is_frugal && (worth(class)..all).contains(&self.free_in(head, class)) {
            return true;
        }
        let is_mine = bitmap.clear(head);
        step!("cache.adopt.after_clear");
        if is_mine && self.free_in(head, class) >= all {
            self.count_empty(class, -1);
        }
        is_mine
    }

    /// Builds a span of `class` and puts its first slots, at most `wanted`, into the bin. No
    /// other cache takes slots before the head's slice word names the span, so plain stores claim
    /// these slots.
    pub(super) fn build(&self, class: usize, wanted: u32) -> Result<(), AllocError> {
        let about = &TABLE[class];
        let head = self.begin(class)?;
        step!("cache.build.after_begin");
        let slots = self.slots(head, about);
        slots.touch();
        let bin = &self.record.bins[class];
        let (held, room) = room(bin, wanted);
        let taken = room.min(slots.count());
        slots.hold(taken, self.id);
        for slot in 0..taken {
            let unit = unit(head, slot, about);
            // The lowest slot is the first handed out, so that blocks are adjacent.
            bin.units[held + taken - 1 - slot].store(unit, Relaxed);
        }
        let tables = &self.memory.tables;
        self.free_slots(head, class).store(about.span_slots - taken as u32, Relaxed);
        slice::finish_span(tables.slices(), head, class as u8);
        step!("cache.build.after_span");
        bin.count.store((held + taken) as u32, Relaxed);
        self.note_shift(about.shift);
        if taken < slots.count() {
            self.make_current(head, taken, class);
            if self.is_frugal {
                self.release_current(head, class);
            }
        }
        Ok(())
    }

    /// Claims slices for a span of `class` and marks all of them: the first as a run of this
    /// cache, the others as part of the span.
    fn begin(&self, class: usize) -> Result<usize, AllocError> {
        let count = TABLE[class].span_slices as usize;
        let is_ahead = count >= AHEAD_SLICES_MIN && !self.is_frugal;
        let ahead = if is_ahead { self.take_ahead(count) } else { None };
        let head = match ahead {
            Some(head) => head,
            None => self.memory.take_in_page(self.node, count, count, self.id)?,
        };
        step!("cache.build.after_take");
        if !self.memory.reserve_span(head, class) {
            self.memory.give_back(head..head + count, self.id);
            return Err(AllocError::Exhausted);
        }
        let slices = self.memory.tables.slices();
        slice::begin_span(slices, head..head + count, class as u8, self.id);
        Ok(head)
    }

    /// Takes `count` slices, a power of two, from the slices that are claimed ahead. If these are
    /// too few, claims another page.
    fn take_ahead(&self, count: usize) -> Option<usize> {
        let is_mine = |head: usize| {
            let slices = self.memory.tables.slices();
            head.is_multiple_of(count) && slice::is_claimed(slices, head..head + count, self.id)
        };
        let ahead = self.ahead().filter(|ahead| ahead.len() >= count && is_mine(ahead.start));
        let ahead = match ahead {
            Some(ahead) => ahead,
            None => {
                self.drop_ahead();
                let order = count.trailing_zeros() as usize;
                self.memory.take_page(self.node, order, self.id)?
            }
        };
        let (head, next) = (ahead.start, ahead.start + count);
        let left = if next < ahead.end { next as u32 + 1 } else { 0 };
        self.record.ahead.store(left, Relaxed);
        step!("cache.ahead.after_store");
        Some(head)
    }

    /// The slices that are claimed ahead. They are the last slices of a page, unless a peer
    /// corrupted the record.
    pub(super) fn ahead(&self) -> Option<Range<usize>> {
        let start = (self.record.ahead.load(Relaxed) as usize).checked_sub(1)?;
        let end = (start / PAGE_SLICES + 1) * PAGE_SLICES;
        self.slices().contains(&start).then_some(start..end)
    }

    /// Gives back the slices that are claimed ahead.
    pub(super) fn drop_ahead(&self) {
        let ahead = self.ahead();
        self.record.ahead.store(0, Relaxed);
        if let Some(ahead) = ahead {
            step!("cache.ahead.before_give_back");
            self.memory.give_back(ahead, self.id);
        }
    }

    /// Records that a span of a class with this shift was built.
    fn note_shift(&self, shift: u32) {
        let shifts = &self.memory.tables.nodes()[self.node].shifts;
        let bit = 1 << (shift - SHIFT_MIN);
        if shifts.load(Relaxed) & bit == 0 {
            shifts.fetch_or(bit, Relaxed);
        }
    }

    pub(super) fn current(&self, class: usize) -> Option<usize> {
        let head = (self.record.current[class].load(Relaxed) as usize).checked_sub(1)?;
        let is_sound =
            head.is_multiple_of(TABLE[class].span_slices as usize) && self.slices().contains(&head);
        is_sound.then_some(head)
    }

    fn make_current(&self, head: usize, cursor: usize, class: usize) {
        self.record.cursor[class].store(cursor as u32, Relaxed);
        self.record.current[class].store(head as u32 + 1, Relaxed);
        step!("cache.current.after_store");
    }

    /// Clears the current span of the class. If other threads have freed enough of its slots
    /// meanwhile, sets its bit in the bitmap again.
    pub(super) fn release_current(&self, head: usize, class: usize) {
        self.record.current[class].store(0, Relaxed);
        step!("cache.let_go.before_bit");
        if self.free_in(head, class) >= worth(class) {
            self.partial(class).set(head);
        }
    }

    /// Keeps a span whose slots are all free, or takes it apart if enough empty spans of its
    /// class are kept.
    pub(super) fn retire(&self, head: usize, class: usize) {
        let kept = &self.memory.tables.nodes()[self.node].empty_spans[class];
        let limit = (EMPTY_SLICES_KEPT / TABLE[class].span_slices).max(1);
        if kept.load(Relaxed) < limit {
            self.count_empty(class, 1);
            return;
        }
        // Only the thread that clears the span's bit may take the span apart. If the bit was not
        // set, the span is the current span of some cache.
        if self.partial(class).clear(head) && !self.take_apart(head, class) {
            self.partial(class).set(head);
        }
    }

    /// Takes a free span apart. Returns false if one of its slots is in use.
    fn take_apart(&self, head: usize, class: usize) -> bool {
        let tables = &self.memory.tables;
        let about = &TABLE[class];
        let word = slice::word(tables.slices(), head);
        // A corrupted bitmap may name a slice at which no span begins.
        let is_head = head.is_multiple_of(about.span_slices as usize);
        if !is_head || !word.is_span() || word.class() as usize != class {
            return true;
        }
        let slots = self.slots(head, about);
        let run = head..head + about.span_slices as usize;
        let pieces = self.memory.pieces_of(run.clone());
        match span::take_apart(tables.slices(), run.clone(), word, &slots, self.id) {
            Outcome::Done => {
                step!("cache.take_apart.before_note");
                self.memory.count_freed(&run, pieces);
                self.memory.note_turn(&run);
                self.memory.note_freed(&run, pieces);
                true
            }
            Outcome::Gone => true,
            Outcome::InUse => {
                self.correct(head, class, &slots);
                false
            }
        }
    }

    /// Takes apart every span whose slots are all free: the kept ones, and those with a wrong
    /// count. Reads the words of all slices that were ever used, and the first slot words of each
    /// span.
    pub(crate) fn drop_empty_spans(&self) {
        self.correct_empty_spans();
        let slices = self.slices();
        let classes = TABLE[..CLASSES].iter().enumerate();
        for (class, about) in classes.filter(|(class, _)| self.memory.has_spans(*class)) {
            let bitmap = self.partial(class);
            let mut from = slices.start;
            while let Some(head) = bitmap.next(from, slices.end) {
                from = head + 1;
                if self.free_in(head, class) >= about.span_slots as i32 && bitmap.clear(head) {
                    self.count_empty(class, -1);
                    if !self.take_apart(head, class) {
                        bitmap.set(head);
                    }
                }
            }
        }
    }

    /// Corrects the counts of spans whose slots are all free, and sets their bits in the bitmap.
    /// A thread updates the count a moment after it claimed or freed a slot. A reaper or refill
    /// that reads the slot words in between stores a wrong count.
    fn correct_empty_spans(&self) {
        let words = self.memory.tables.slices();
        let pages = self.memory.used_pages(self.node);
        for head in pages.start * PAGE_SLICES..pages.end * PAGE_SLICES {
            let word = slice::word(words, head);
            let class = word.class() as usize;
            let Some(about) = TABLE[..CLASSES].get(class).filter(|_| word.is_span()) else {
                continue;
            };
            let counted = self.counted(head, class);
            if !head.is_multiple_of(about.span_slices as usize) || counted == about.span_slots {
                continue;
            }
            let slots = self.slots(head, about);
            if slots.count() > 0 && slots.are_free() {
                self.recount(head, class, counted, about.span_slots);
            }
        }
    }

    /// Gets a slot of `class` by reading every span of the node, after every other search failed.
    /// This finds spans that have too few free slots to be in a bitmap. O(slices that were ever
    /// used). Sometimes it reads all slot words, O(slots), to find free slots that are not
    /// counted, because the thread that freed them died before it counted them or had no cache.
    pub(crate) fn scrape(&self, class: usize) -> bool {
        self.fill_from_any(class, |head| self.free_in(head, class) > 0)
            || self.memory.searches.run(class, || self.fill_from_any(class, |_| true))
    }

    /// Searches the spans of `class` for which `is_worth` holds for a free slot, and makes the
    /// first span that has one the current span.
    fn fill_from_any(&self, class: usize, is_worth: impl Fn(usize) -> bool) -> bool {
        let words = self.memory.tables.slices();
        let pages = self.memory.used_pages(self.node);
        let slices = pages.start * PAGE_SLICES..pages.end * PAGE_SLICES;
        slices.step_by(TABLE[class].span_slices as usize).any(|head| {
            let word = slice::word(words, head);
            let is_ours = word.is_span() && word.class() as usize == class;
            is_ours && is_worth(head) && {
                self.record.current[class].store(head as u32 + 1, Relaxed);
                self.record.cursor[class].store(0, Relaxed);
                self.fill_from(head, class, 1) > 0
            }
        })
    }

    /// Updates the count and the bitmap for the span at `head`. `counted` is the count before the
    /// span's slot words were read, and `free` is the number of free slots that were found.
    pub(crate) fn recount(&self, head: usize, class: usize, counted: u32, free: u32) {
        let count = self.free_slots(head, class);
        // If another thread changed the count meanwhile, the next search corrects it.
        if !count::replace(count, counted, free) {
            return;
        }
        step!("cache.recount.after_count");
        if free as i32 >= worth(class) {
            self.partial(class).set(head);
        }
        if free == TABLE[class].span_slots && counted != free {
            self.retire(head, class);
        }
    }

    fn count_empty(&self, class: usize, change: i32) {
        let kept = &self.memory.tables.nodes()[self.node].empty_spans[class];
        let now = kept.load(Relaxed).saturating_add_signed(change);
        kept.store(now, Relaxed);
    }

    /// The recorded number of free slots in the span at `head`.
    pub(super) fn free_in(&self, head: usize, class: usize) -> i32 {
        count::seen(self.free_slots(head, class))
    }

    pub(super) fn partial(&self, class: usize) -> Bitmap<'_> {
        self.memory.tables.partial(class)
    }

    /// The slices of the node.
    fn slices(&self) -> Range<usize> {
        let pages = self.memory.pages_of(self.node);
        let per_page = crate::layout::PAGE_SLICES;
        pages.start * per_page..pages.end * per_page
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::SLICE;
    use crate::protocol::class;
    use crate::protocol::slice;
    use crate::protocol::word::SlotWord;
    use crate::sync::Ordering::Relaxed;
    use crate::{Heap, Pages, Request};
    use std::vec::Vec;

    #[test]
    fn maintain_frees_empty_span_with_wrong_count() {
        for size in [64, 4096, 128 << 10] {
            for error in [-1, 1] {
                let heap = Heap::builder().limit(8 << 20).nodes(1).pages(Pages::Plain);
                let heap = heap.decay(Some(0)).build().unwrap();
                let block = heap.alloc(Request::new(size)).unwrap();
                let head = heap.offset(block).unwrap().bytes() as usize / SLICE;
                // SAFETY: allocated just now and not used.
                unsafe { heap.free(block) }.unwrap();
                let keeper = heap.keeper(1).unwrap();
                let class = class::of(size, 64).unwrap();
                // A wrong count, like the one after two threads stored their counts at the same
                // time.
                let count = keeper.free_slots(head, class);
                count.store(count.load(Relaxed).wrapping_add_signed(error), Relaxed);
                keeper.flush_all();
                heap.maintain();
                let word = slice::word(heap.memory.tables.slices(), head);
                assert!(word.is_free(), "{size} bytes, {error}: {:?}", word.decode());
            }
        }
    }

    #[test]
    fn full_heap_finds_uncounted_free_slot() {
        let heap = Heap::builder().limit(8 << 20).nodes(1).pages(Pages::Plain).build().unwrap();
        let class = class::of(4096, 64).unwrap();
        let alloc = || heap.alloc(Request::new(4096)).ok();
        let blocks: Vec<_> = core::iter::from_fn(alloc).collect();
        let last = blocks[blocks.len() / 2];
        let keeper = heap.keeper(1).unwrap();
        let free = || {
            let offset = heap.offset(last).unwrap().bytes() as usize;
            let shift = class::TABLE[class].shift;
            keeper.memory.tables.slots(shift)[offset >> shift].store(SlotWord::FREE.0, Relaxed);
        };
        // The two searches alternately. A successful search ends the wait before the next search
        // of the other kind.
        for is_counted in [true, false, true] {
            free();
            if is_counted {
                let head = heap.offset(last).unwrap().bytes() as usize / SLICE;
                let head = head & !(class::TABLE[class].span_slices as usize - 1);
                crate::protocol::count::freed(keeper.free_slots(head, class), 1);
            } else {
                keeper.memory.searches.forget();
            }
            assert_eq!(alloc(), Some(last), "{is_counted}");
        }
    }
}
