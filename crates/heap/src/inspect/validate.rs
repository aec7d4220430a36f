//! Whether the state words make sense.

use core::fmt;

use crate::heap::Heap;
use crate::layout::{PAGE_SLICES, SHIFT_MIN, SHIFTS, SLICE};
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::slice;
use crate::protocol::slot::Slots;
use crate::protocol::word::{Slice, Slot};
use crate::request::Offset;
use crate::sync::Ordering::Acquire;

/// What is wrong with the words of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// What it is.
    pub kind: DamageKind,
    /// Where it is.
    pub offset: Offset,
    /// The word that was found there.
    pub word: u64,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// A slice's word is none that the heap writes.
    BadSlice,
    /// A slice of a span does not say what its head says.
    BrokenSpan,
    /// A large block reaches beyond the heap, or one of its slices is not part of it.
    BrokenLarge,
    /// A slice is part of a large block that does not begin before it.
    StrayTail,
    /// A slot is held by a cache that the heap does not have.
    BadSlot,
    /// A slot of a free slice is not free.
    UsedInFree,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.kind {
            DamageKind::BadSlice => "the slice's word is none that the heap writes",
            DamageKind::BrokenSpan => "the slice does not say what the head of its span says",
            DamageKind::BrokenLarge => "the large block is not whole",
            DamageKind::StrayTail => "the slice is part of a large block that is not there",
            DamageKind::BadSlot => "the slot is held by a cache that is not there",
            DamageKind::UsedInFree => "a slot of the free slice is not free",
        };
        let (offset, word) = (self.offset.bytes(), self.word);
        write!(
            f,
            "at offset {offset:#x}: {text} (word {word:#x}); a process wrote beside its own "
        )?;
        f.write_str("blocks: stop what shares the heap, and make it anew")
    }
}

impl core::error::Error for Damage {}

impl Heap {
    /// Checks that the words of slices and slots make sense together. What is being built or taken
    /// apart is passed over; what seems wrong is read again, since other threads go on meanwhile.
    /// O(slices that were ever used, and all words of their slots).
    ///
    /// # Errors
    /// The first [`Damage`] found.
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

    /// Times that something must look wrong, in a row, to be called damage: what others change
    /// looks wrong for as long as they take to write a few words, and they may be interrupted
    /// there.
    const LOOKS: usize = 100;

    fn check_again(&self, index: usize, end: usize) -> Result<usize, Damage> {
        let mut result = self.check_at(index, end);
        for _ in 1..Self::LOOKS {
            if result.is_ok() {
                break;
            }
            crate::sys::give_way();
            result = self.check_at(index, end);
        }
        result
    }

    /// Checks what starts at a slice; how many slices it has.
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
            // Words that never had memory are no one's, and a touch could be a signal.
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
