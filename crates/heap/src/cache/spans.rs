//! Which span a cache takes slots of a class from: one that is partly free, else a new one; and what
//! becomes of a span when all its slots are free.

use super::{EMPTY_SLICES_KEPT, Keeper, worth};
use crate::bitmap::Bitmap;
use crate::class::{CLASSES, TABLE};
use crate::fault::AllocError;
use crate::layout::{PAGE_SLICES, SHIFT_MIN};
use crate::slice;
use crate::span::{self, Parted};
use crate::step::step;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

impl Keeper<'_> {
    /// Makes another span of `class` the current one: one with free slots, else a new one.
    pub(super) fn adopt(&self, class: usize) -> Result<usize, AllocError> {
        let slices = self.slices();
        let bitmap = self.partial(class);
        let mut from = slices.start;
        while let Some(head) = bitmap.next(from, slices.end) {
            if head.is_multiple_of(TABLE[class].span_slices as usize) && bitmap.clear(head) {
                step!("cache.adopt.after_clear");
                if self.free_in(head) >= TABLE[class].span_slots as i32 {
                    self.count_empty(class, -1);
                }
                self.make_current(head, class);
                return Ok(head);
            }
            from = head + 1;
        }
        self.build(class)
    }

    fn build(&self, class: usize) -> Result<usize, AllocError> {
        let count = TABLE[class].span_slices as usize;
        let head = self.memory.take(self.node, count, count, self.id)?;
        step!("cache.build.after_take");
        self.slots(head, &TABLE[class]).touch();
        let tables = &self.memory.tables;
        tables.span_free()[head].store(TABLE[class].span_slots, Relaxed);
        slice::build_span(tables.slices(), head..head + count, class as u8, self.id);
        step!("cache.build.after_span");
        let shifts = &tables.nodes()[self.node].shifts;
        let shift = 1 << (TABLE[class].shift - SHIFT_MIN);
        if shifts.load(Relaxed) & shift == 0 {
            shifts.fetch_or(shift, Relaxed);
        }
        self.make_current(head, class);
        Ok(head)
    }

    pub(super) fn current(&self, class: usize) -> Option<usize> {
        let head = (self.record.current[class].load(Relaxed) as usize).checked_sub(1)?;
        let is_sound =
            head.is_multiple_of(TABLE[class].span_slices as usize) && self.slices().contains(&head);
        is_sound.then_some(head)
    }

    fn make_current(&self, head: usize, class: usize) {
        self.record.cursor[class].store(0, Relaxed);
        self.record.current[class].store(head as u32 + 1, Relaxed);
        step!("cache.current.after_store");
    }

    /// Forgets the current span. If others freed slots of it meanwhile, it is found again.
    pub(super) fn let_go(&self, head: usize, class: usize) {
        self.record.current[class].store(0, Relaxed);
        step!("cache.let_go.before_bit");
        if self.free_in(head) >= worth(class) {
            self.partial(class).set(head);
        }
    }

    /// Keeps a span that came free, or takes it apart if enough of its class are kept.
    pub(super) fn retire(&self, head: usize, class: usize) {
        let kept = &self.memory.tables.nodes()[self.node].empty_spans[class];
        let limit = (EMPTY_SLICES_KEPT / TABLE[class].span_slices).max(1);
        if kept.load(Relaxed) < limit {
            self.count_empty(class, 1);
            return;
        }
        // Whoever clears the bit may take it: a span in no bitmap is somebody's current one.
        if self.partial(class).clear(head) && !self.take_apart(head, class) {
            self.partial(class).set(head);
        }
    }

    /// Takes a free span apart; false where one of its slots is not free after all.
    fn take_apart(&self, head: usize, class: usize) -> bool {
        let tables = &self.memory.tables;
        let about = &TABLE[class];
        let word = slice::word(tables.slices(), head);
        // A bitmap that somebody scribbled over may name a slice where no span begins.
        let is_head = head.is_multiple_of(about.span_slices as usize);
        if !is_head || !word.is_span() || word.class() as usize != class {
            return true;
        }
        let slots = self.slots(head, about);
        let run = head..head + about.span_slices as usize;
        match span::take_apart(tables.slices(), run.clone(), word, &slots, self.id) {
            Parted::Done => {
                step!("cache.take_apart.before_note");
                self.memory.note_free(run);
                true
            }
            Parted::Gone => true,
            Parted::InUse => {
                tables.span_free()[head].store(slots.count_free() as u32, Relaxed);
                false
            }
        }
    }

    /// Takes every span apart that is kept though it is free. O(partial spans).
    pub(crate) fn drop_empty_spans(&self) {
        let slices = self.slices();
        for (class, about) in TABLE[..CLASSES].iter().enumerate() {
            let bitmap = self.partial(class);
            let mut from = slices.start;
            while let Some(head) = bitmap.next(from, slices.end) {
                from = head + 1;
                if self.free_in(head) >= about.span_slots as i32 && bitmap.clear(head) {
                    self.count_empty(class, -1);
                    if !self.take_apart(head, class) {
                        bitmap.set(head);
                    }
                }
            }
        }
    }

    /// A slot of `class`, by looking at every span of the node: for when nothing else is left, because
    /// a span that has fewer free slots than are worth a look is in no bitmap. O(slices that were ever
    /// used).
    pub(crate) fn scrape(&self, class: usize) -> bool {
        let words = self.memory.tables.slices();
        let pages = self.memory.used_pages(self.node);
        let slices = pages.start * PAGE_SLICES..pages.end * PAGE_SLICES;
        slices.step_by(TABLE[class].span_slices as usize).any(|head| {
            let word = slice::word(words, head);
            let is_ours = word.is_span() && word.class() as usize == class;
            is_ours && {
                self.record.current[class].store(head as u32 + 1, Relaxed);
                self.record.cursor[class].store(0, Relaxed);
                self.fill_from(head, class, 1) > 0
            }
        })
    }

    /// Makes the hints of the span at `head` anew. `counted` is what was counted before its slots were
    /// looked at, and `free` what was found.
    pub(crate) fn recount(&self, head: usize, class: usize, counted: u32, free: u32) {
        let count = &self.memory.tables.span_free()[head];
        // Where somebody counted meanwhile, the next one to look makes it right.
        if counted != free && count.compare_exchange(counted, free, AcqRel, Relaxed).is_err() {
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

    /// Free slots of the span at `head`, as counted. A slot that was freed by one thread and claimed by
    /// another can be counted by the other first, so for a moment it can be below zero.
    pub(super) fn free_in(&self, head: usize) -> i32 {
        self.memory.tables.span_free()[head].load(Acquire) as i32
    }

    pub(super) fn partial(&self, class: usize) -> Bitmap<'_> {
        let tables = &self.memory.tables;
        Bitmap::new(tables.partial(class), tables.geometry().slices())
    }

    /// The slices of the node.
    fn slices(&self) -> core::ops::Range<usize> {
        let pages = self.memory.pages_of(self.node);
        let per_page = crate::layout::PAGE_SLICES;
        pages.start * per_page..pages.end * per_page
    }
}
