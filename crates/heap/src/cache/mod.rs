//! A thread's cache on one node: fills its bins from spans, and gives slots back to the spans.
//!
//! A bin is filled from the cache's current span of the class. If that span is exhausted, the
//! cache searches the class's bitmap for another span with free slots, and builds a new span if
//! it finds none. A full bin gives back its older half. A span whose slots are all free is taken
//! apart; a few such spans are kept.
//!
//! A cache is frugal if the process has many threads, or if several threads share the cache. A
//! frugal cache claims few slots at once, keeps no span for itself and claims no slices ahead, so
//! that the threads share spans.
//!
//! Counts of free slots, bitmaps, the current span and the cursor are hints. Only the slot words
//! say which cache owns each slot. After a cache has claimed slots, it reads the span's word
//! again to confirm that the slots still belong to this span.

use core::ops::Range;

use crate::bin::Bin;
use crate::crowd::Wait;
use crate::fault::AllocError;
use crate::layout::{SHIFT_MIN, SLICE, UNIT};
use crate::memory::Memory;
use crate::protocol::class::{BIN_SLOTS_MAX, CLASSES, Class, TABLE};
use crate::protocol::count;
use crate::protocol::record;
use crate::protocol::slice;
use crate::protocol::slot::Slots;

use crate::protocol::step::step;
use crate::protocol::word::{Cache, CacheId, CacheWord, SliceWord, SlotWord};
use crate::sync::AtomicU32;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::tables::CacheRecord;

mod spans;

/// A node keeps empty spans of each class up to this many slices in total, or one span if it is
/// larger: 256 KiB, as much as a bin holds. So a program that alternately frees and allocates the
/// last slots of a span does not take apart and build a span each time.
const EMPTY_SLICES_KEPT: u32 = 4;

/// A cache adopts a span only if at least one in this many of its slots is free. With fewer free
/// slots, each refill would search a whole span for a handful of slots.
const WORTH: u32 = 16;

/// The fewest slots that a refill takes, if the span has that many. Without this minimum the
/// largest classes, whose bins hold four slots, would need a refill for every second block. The
/// first free gives back the slots beyond the bin's capacity.
const REFILL_MIN: u32 = 16;

/// Bytes of slots that a refill of a frugal cache takes, in at least [`FRUGAL_SLOTS_MIN`] slots.
/// So each of many threads holds little memory that it did not request.
const FRUGAL_BYTES: u32 = 16 << 10;

/// The fewest slots that a refill of a frugal cache takes.
const FRUGAL_SLOTS_MIN: u32 = 1;

/// The most spans that a refill searches without success before it builds a new one. The refill
/// corrects the free count of each searched span, so it reaches this limit only while a peer
/// corrupts the counts.
const SPANS_TRIED: usize = 1000;

/// Cache records whose pages the kernel maps before threads claim the records: one for the
/// upkeep's thread at its first call, and two for threads that begin before its next call. 12 KiB
/// each.
const RECORDS_AHEAD: usize = 3;

/// A cache with its memory and node.
#[derive(Clone, Copy)]
pub(crate) struct Keeper<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) record: &'a CacheRecord,
    pub(crate) id: CacheId,
    pub(crate) node: usize,
    /// Whether the process has many threads, or several threads share the cache.
    pub(crate) is_frugal: bool,
}

/// Claims a free cache record for a thread of a process. The thread first tries the record with
/// the thread's own number, so that the threads of a process seldom compete. O(caches) if that
/// record is in use.
pub(crate) fn claim(memory: &Memory, process: u8, thread: usize) -> Result<CacheId, AllocError> {
    let end = memory.tables.geometry().caches as usize;
    let first = thread.saturating_sub(1).min(end - 1);
    claim_of(memory, first..first + 1, process, thread)
        .or_else(|_| claim_of(memory, 0..end, process, thread))
}

/// Claims a cache record that those threads of a process share that have no record.
pub(crate) fn claim_common(memory: &Memory, process: u8) -> Result<CacheId, AllocError> {
    claim_of(memory, 0..memory.tables.geometry().caches as usize, process, 0)
}

/// Like [`claim_common`], but claims one of the spare records, which are reserved for processes
/// that get no other record.
pub(crate) fn claim_spare(memory: &Memory, process: u8) -> Result<CacheId, AllocError> {
    let first = memory.tables.geometry().caches as usize;
    claim_of(memory, first..memory.tables.caches().len(), process, 0)
}

/// Claims one of the records with the indices `which`.
fn claim_of(
    memory: &Memory,
    which: Range<usize>,
    process: u8,
    thread: usize,
) -> Result<CacheId, AllocError> {
    let caches = memory.tables.caches();
    let mut is_refused = false;
    let records = which.take_while(|index| {
        is_refused = !memory.reserve(&caches[*index..=*index]);
        !is_refused
    });
    let mut claimed = records.filter_map(|index| {
        let old = record::claim_cache(&caches[index].state, process, thread as u16)?;
        Some((index, old))
    });
    let Some((index, old)) = claimed.next() else {
        return Err(if is_refused { AllocError::Exhausted } else { AllocError::TooManyThreads });
    };
    step!("cache.claim.after_active");
    let record = &caches[index];
    if old == CacheWord::UNUSED {
        // The record is still all zeros, and a write would make the kernel map its pages.
        return Ok(index as CacheId + 1);
    }
    // Resets the hints that a former owner of the record left.
    record.bins.iter().for_each(|bin| bin.count.store(0, Relaxed));
    record.current.iter().for_each(|current| current.store(0, Relaxed));
    record.ahead.store(0, Relaxed);
    Ok(index as CacheId + 1)
}

/// Makes the kernel map the pages of the records that threads will claim next, so that a thread's
/// first allocation does not cause page faults in its record. O(caches), and a system call.
pub(crate) fn bring_next(memory: &Memory) {
    let caches = memory.tables.caches();
    let is_free = |record: &CacheRecord| {
        !memory.is_reserved(core::slice::from_ref(record))
            || CacheWord(record.state.load(Relaxed)).decode() == Cache::Free
    };
    if let Some(first) = caches.iter().position(is_free) {
        memory.bring(&caches[first..(first + RECORDS_AHEAD).min(caches.len())]);
    }
}

impl<'a> Keeper<'a> {
    /// Puts slots of `class` into its bin: half a bin if that many slots are free, else at least
    /// one.
    pub(crate) fn refill(&self, class: usize) -> Result<(), AllocError> {
        let bin = &self.record.bins[class];
        if bin.count.load(Relaxed) as usize > BIN_SLOTS_MAX {
            // Another process corrupted the count. The slots are found by their words.
            bin.count.store(0, Relaxed);
        }
        let wanted = self.wanted(class);
        for _ in 0..SPANS_TRIED {
            let Some(head) = self.current(class).or_else(|| self.adopt(class)) else { break };
            if self.fill_from(head, class, wanted) > 0 {
                return Ok(());
            }
        }
        match self.is_frugal {
            true => self.build_in_turn(class, wanted),
            false => self.build(class, wanted),
        }
    }

    /// Builds a span in a process of many threads: waits while other threads build spans, and
    /// takes free slots of those spans.
    #[cold]
    fn build_in_turn(&self, class: usize, wanted: u32) -> Result<(), AllocError> {
        let (crowd, mut wait) = (&self.memory.crowd, Wait::default());
        let _building = loop {
            let building = crowd.enter(class);
            // The bitmap is checked even if this thread has the right to build, because the last
            // builder may have finished since the previous check.
            if let Some(head) = self.adopt(class)
                && self.fill_from(head, class, wanted) > 0
            {
                return Ok(());
            }
            if building.is_some() || !crowd.wait(class, &mut wait) {
                break building;
            }
        };
        self.build(class, wanted)
    }

    /// How many slots of `class` a refill takes.
    fn wanted(&self, class: usize) -> u32 {
        let about = &TABLE[class];
        let half = about.bin_slots.div_ceil(2);
        match self.is_frugal {
            true => (FRUGAL_BYTES / about.size).max(FRUGAL_SLOTS_MIN).min(half),
            false => half.max(REFILL_MIN),
        }
    }

    /// Gives the oldest slots of `class` back to their spans until the bin holds `keep` slots.
    pub(crate) fn flush(&self, class: usize, keep: usize) {
        let bin = &self.record.bins[class];
        let count = (bin.count.load(Relaxed) as usize).min(BIN_SLOTS_MAX);
        let surplus = count.saturating_sub(keep);
        let mut batch = Batch { head: usize::MAX, count: 0 };
        for unit in &bin.units[..surplus] {
            self.put_back(unit.load(Relaxed), class, &mut batch);
        }
        self.count_batch(&batch, class);
        for index in surplus..count {
            bin.units[index - surplus].store(bin.units[index].load(Relaxed), Relaxed);
        }
        bin.count.store((count - surplus) as u32, Relaxed);
    }

    /// Whether a bin has a slot, a class has a current span, or slices are claimed ahead.
    pub(crate) fn holds_something(&self) -> bool {
        let is_held = |class: usize| self.record.bins[class].count.load(Relaxed) > 0;
        self.ahead().is_some()
            || (0..CLASSES).any(|class| is_held(class) || self.current(class).is_some())
    }

    /// Gives back all slots, the current spans, and the slices that are claimed ahead.
    pub(crate) fn flush_all(&self) {
        for class in 0..CLASSES {
            self.flush(class, 0);
            if let Some(head) = self.current(class) {
                self.release_current(head, class);
            }
        }
        self.drop_ahead();
    }

    /// The number of free slots that is recorded for the span at `head`.
    pub(crate) fn counted(&self, head: usize, class: usize) -> u32 {
        self.free_slots(head, class).load(Acquire)
    }

    /// The recorded number of free slots in the span of `class` at `head`.
    fn free_slots(&self, head: usize, class: usize) -> &'a AtomicU32 {
        let order = TABLE[class].span_slices.trailing_zeros() as usize;
        &self.memory.tables.span_free(order)[head >> order]
    }

    /// The slots of the span at `head`.
    pub(crate) fn slots(&self, head: usize, class: &Class) -> Slots<'a> {
        Slots::new(self.memory.tables.slots(class.shift), head * SLICE, class)
    }

    /// Claims slots of the span at `head` and puts them into the bin. Returns how many. Releases
    /// the current span when it is exhausted.
    fn fill_from(&self, head: usize, class: usize, wanted: u32) -> u32 {
        let tables = &self.memory.tables;
        let word = slice::word(tables.slices(), head);
        if !word.is_span() || word.class() as usize != class {
            self.record.current[class].store(0, Relaxed);
            return 0;
        }
        let about = &TABLE[class];
        let slots = self.slots(head, about);
        let bin = &self.record.bins[class];
        let (held, room) = room(bin, wanted);
        let from = (self.record.cursor[class].load(Relaxed) as usize).min(slots.count());
        let mut taken = 0;
        let next = slots.claim(from, self.id, |slot| {
            // The first slot claimed is the first handed out, so that blocks are adjacent.
            bin.units[held + room - 1 - taken].store(unit(head, slot, about), Relaxed);
            taken += 1;
            taken < room
        });
        self.close_up(bin, held, room, taken);
        step!("cache.fill.before_check");
        if slice::word(tables.slices(), head) != word {
            // Another thread took the span apart meanwhile, so these slots may belong to no span.
            // They are given back.
            self.undo(bin, held, taken, &slots, head, about);
            self.record.current[class].store(0, Relaxed);
            return 0;
        }
        if taken == 0 {
            // The count is wrong: a process died before it counted, or a peer corrupted the
            // count. The count is corrected, because otherwise caches would adopt the span again
            // and again.
            self.correct(head, class, &slots);
        }
        count::claimed(self.free_slots(head, class), taken as u32);
        self.record.cursor[class].store(next as u32, Relaxed);
        bin.count.store((held + taken) as u32, Relaxed);
        if next == slots.count() || self.is_frugal {
            self.release_current(head, class);
        }
        taken as u32
    }

    /// Corrects the count of free slots of the span at `head`: see [`count::correct`].
    fn correct(&self, head: usize, class: usize, slots: &Slots<'_>) {
        count::correct(self.free_slots(head, class), slots);
    }

    /// Moves the `taken` entries, the last of `room`, down, so that they follow the `held` ones.
    fn close_up(&self, bin: &Bin, held: usize, room: usize, taken: usize) {
        let gap = room - taken;
        if gap > 0 {
            for index in held..held + taken {
                bin.units[index].store(bin.units[index + gap].load(Relaxed), Relaxed);
            }
        }
    }

    #[cold]
    fn undo(
        &self,
        bin: &Bin,
        held: usize,
        taken: usize,
        slots: &Slots<'_>,
        head: usize,
        class: &Class,
    ) {
        for unit in &bin.units[held..held + taken] {
            let offset = unit.load(Relaxed) as usize * UNIT;
            let within = offset.checked_sub(head * SLICE);
            let slot = within.map(|within| within / class.size as usize);
            // A slot outside the span means that a peer corrupted the bin.
            if let Some(slot) = slot.filter(|slot| *slot < slots.count()) {
                slots.release(slot, self.id);
            }
            step!("cache.undo.between");
        }
    }

    /// Frees one slot of the bin. Consecutive slots of one span are counted together.
    fn put_back(&self, unit: u32, class: usize, batch: &mut Batch) {
        let about = &TABLE[class];
        let offset = unit as usize * UNIT;
        let head = (offset / SLICE) & !(about.span_slices as usize - 1);
        let words = self.memory.tables.slots(about.shift);
        let Some(word) = words.get(offset >> about.shift) else { return };
        // The slot word does not name this cache if two threads freed the block at once, or if a
        // peer corrupted the word. The owner that the word names keeps the slot.
        let (old, new) = (SlotWord::cached(self.id).0, SlotWord::FREE.0);
        if word.load(Relaxed) != old {
            return;
        }
        word.store(new, crate::sync::Ordering::Release);
        step!("cache.flush.after_free");
        if head != batch.head {
            self.count_batch(batch, class);
            *batch = Batch { head, count: 0 };
        }
        batch.count += 1;
    }

    /// Counts the slots of a batch as free, and makes their span findable.
    fn count_batch(&self, batch: &Batch, class: usize) {
        if batch.count == 0 {
            return;
        }
        let head = batch.head;
        let (before, after) = count::freed(self.free_slots(head, class), batch.count);
        step!("cache.flush.after_count");
        if before < worth(class) && after >= worth(class) {
            self.partial(class).set(head);
        }
        if after == TABLE[class].span_slots as i32 && self.current(class) != Some(head) {
            self.retire(head, class);
        }
    }
}

/// Slots of one span that are freed, but not counted as free yet.
struct Batch {
    head: usize,
    count: u32,
}

/// The number of slots in a bin, and how many of `wanted` it can take, at least one. Only a bin
/// that is not full is refilled. So a count of a full bin or more is corrupt, and the bin counts
/// as empty.
fn room(bin: &Bin, wanted: u32) -> (usize, usize) {
    let held = Some(bin.count.load(Relaxed) as usize).filter(|held| *held < BIN_SLOTS_MAX);
    let held = held.unwrap_or(0);
    (held, (BIN_SLOTS_MAX - held).min(wanted.max(1) as usize))
}

/// The offset of a slot of the span at `head`, in units as a bin stores it.
fn unit(head: usize, slot: usize, class: &Class) -> u32 {
    ((head * SLICE + slot * class.size as usize) / UNIT) as u32
}

/// How many free slots a span of `class` needs before a cache adopts it.
fn worth(class: usize) -> i32 {
    (TABLE[class].span_slots / WORTH).clamp(1, BIN_SLOTS_MAX as u32) as i32
}

const _: () = assert!(1 << SHIFT_MIN == UNIT && size_of::<SliceWord>() == 8);
