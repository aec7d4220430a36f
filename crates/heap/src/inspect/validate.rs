//! A consistency check of the state words.

use core::fmt;

use crate::heap::Heap;
use crate::layout::{PAGE_SLICES, SHIFT_MIN, SHIFTS, SLICE};
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::slice;
use crate::protocol::slot::Slots;
use crate::protocol::word::{Slice, Slot};
use crate::request::Offset;
use crate::sync::Ordering::Acquire;

/// An inconsistency in the words of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The kind of the inconsistency.
    pub kind: DamageKind,
    /// The location of the inconsistency.
    pub offset: Offset,
    /// The inconsistent word.
    pub word: u64,
}

/// The kinds of inconsistencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// A slice's word has a value that no heap writes.
    BadSlice,
    /// A slice word in a span differs from the word of the span's first slice.
    BrokenSpan,
    /// A large block reaches beyond the heap, or one of its slices has the word of another state.
    BrokenLarge,
    /// A slice word says "part of a large block", but no large block is before it.
    StrayTail,
    /// A slot word names a cache that does not exist in the heap.
    BadSlot,
    /// A slot word in a free slice is not free.
    UsedInFree,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.kind {
            DamageKind::BadSlice => "the slice's word has a value that no heap writes",
            DamageKind::BrokenSpan => "the slice's word differs from the head of its span",
            DamageKind::BrokenLarge => "the large block is incomplete",
            DamageKind::StrayTail => "the slice is part of a large block that does not exist",
            DamageKind::BadSlot => "the slot is held by a cache that does not exist",
            DamageKind::UsedInFree => "a slot of the free slice is not free",
        };
        let (offset, word) = (self.offset.bytes(), self.word);
        write!(
            f,
            "at offset {offset:#x}: {text} (word {word:#x}); a process wrote outside its own "
        )?;
        f.write_str("blocks: stop the processes that share the heap, and create it again")
    }
}

impl core::error::Error for Damage {}

impl Heap {
    /// Checks that the words of slices and slots are consistent. Skips slices that a thread is
    /// building or taking apart. Reads inconsistent words again, because another thread may be
    /// changing them. O(slices that were ever used, and all their slot words).
    ///
    /// # Errors
    /// The first [`Damage`] found.
    ///
    /// ```
    /// let heap = haul_heap::Heap::builder().limit(64 << 20).build()?;
    /// heap.validate()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn validate(&self) -> Result<(), Damage> {
        for node in 0..self.node_count() {
            let pages = self.used_pages(node);
            let end = pages.end * PAGE_SLICES;
            let mut index = pages.start * PAGE_SLICES;
            while index < end {
                index += self.check_again(index, end)?;
            }
        }
        Ok(())
    }

    /// How many consecutive reads must find words inconsistent before the words count as damaged.
    /// Words are inconsistent while another thread changes several of them, and that thread may
    /// be descheduled meanwhile.
    const READS: usize = 100;

    fn check_again(&self, index: usize, end: usize) -> Result<usize, Damage> {
        let mut result = self.check_at(index, end);
        for _ in 1..Self::READS {
            if result.is_ok() {
                break;
            }
            crate::sys::yield_now();
            result = self.check_at(index, end);
        }
        result
    }

    /// Checks the span, block or single slice that starts at a slice. Returns its number of
    /// slices.
    fn check_at(&self, index: usize, end: usize) -> Result<usize, Damage> {
        let slices = self.memory.tables.slices();
        let word = slice::word(slices, index);
        let damage = |kind, at: usize| {
            let word = slice::word(slices, at).0;
            Err(Damage { kind, offset: Offset::new((at * SLICE) as u64), word })
        };
        match word.decode() {
            Slice::Free => self.check_free(index),
            Slice::Claimed(_) | Slice::Outside => Ok(1),
            Slice::Run { length, .. } => Ok((length as usize).clamp(1, end - index)),
            Slice::Span { class } if (class as usize) >= CLASSES => {
                damage(DamageKind::BadSlice, index)
            }
            Slice::Span { class } => {
                let count = TABLE[class as usize].span_slices as usize;
                let differs =
                    |at: &usize| slice::word(slices, *at).decode() != Slice::Span { class };
                if !index.is_multiple_of(count) {
                    return damage(DamageKind::BrokenSpan, index);
                }
                if let Some(at) = (index..index + count).find(differs) {
                    return damage(DamageKind::BrokenSpan, at);
                }
                self.check_slots(index, class as usize).map(|()| count)
            }
            Slice::Large { length, .. } => {
                let length = length as usize;
                if length == 0 || length > end - index {
                    return damage(DamageKind::BrokenLarge, index);
                }
                let is_other = |at: &usize| slice::word(slices, *at).decode() != Slice::Tail;
                match (index + 1..index + length).find(is_other) {
                    Some(at) => damage(DamageKind::BrokenLarge, at),
                    None => Ok(length),
                }
            }
            Slice::Tail => damage(DamageKind::StrayTail, index),
            Slice::Unknown => damage(DamageKind::BadSlice, index),
        }
    }

    fn check_slots(&self, head: usize, class: usize) -> Result<(), Damage> {
        let slots: Slots<'_> = self.slots_of(head, class);
        let caches = self.memory.tables.geometry().cache_records();
        for slot in 0..slots.count() {
            let word = slots.get(slot);
            if let Slot::Cached(cache) = word.decode()
                && usize::from(cache) > caches
            {
                let offset = head * SLICE + slot * TABLE[class].size as usize;
                let offset = Offset::new(offset as u64);
                return Err(Damage { kind: DamageKind::BadSlot, offset, word: word.0.into() });
            }
        }
        Ok(())
    }

    fn check_free(&self, index: usize) -> Result<usize, Damage> {
        for shift in (SHIFT_MIN..).take(SHIFTS) {
            let words = self.memory.tables.slots(shift);
            let range = (index * SLICE) >> shift..((index + 1) * SLICE) >> shift;
            // Slot words without memory belong to no slot, and reading them could raise a signal.
            if !self.memory.is_reserved(&words[range.clone()]) {
                continue;
            }
            for at in range {
                let word = words[at].load(Acquire);
                if word != 0 {
                    let offset = Offset::new((at as u64) << shift);
                    return Err(Damage { kind: DamageKind::UsedInFree, offset, word: word.into() });
                }
            }
        }
        Ok(1)
    }
}
