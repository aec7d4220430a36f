//! Transitions of slots in a span: free -> cached by compare-and-swap; cached -> live, live ->
//! cached and cached -> free by a store of the only owner.

use super::class::Class;
use super::step::step;
use super::word::{CacheId, SlotWord};
use crate::sync::{
    AtomicU16,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    overwrite,
};

/// Bytes per page, in the smallest page size of a kernel. With larger pages, some writes are
/// superfluous.
const WORDS_PAGE: usize = 4096;

/// The slot words for one span, in the array for its class's shift.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    words: &'a [AtomicU16],
    /// The distance between the words of consecutive slots, in words.
    stride: usize,
    count: usize,
}

impl<'a> Slots<'a> {
    /// The slots of the span of `class` at `offset`, in the array `words`. There are no slots if
    /// the array ends before the span, which happens only in a corrupt heap.
    pub(crate) fn new(words: &'a [AtomicU16], offset: usize, class: &Class) -> Self {
        let stride = (class.size >> class.shift) as usize;
        let (first, count) = (offset >> class.shift, class.span_slots as usize);
        match words.get(first..first + count * stride) {
            Some(words) => Self { words, stride, count },
            None => Self { words: &[], stride, count: 0 },
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// If a page of slot words begins among these words, writes to the first such page. Otherwise
    /// a claim would read the page before it writes to it, which causes two page faults instead
    /// of one.
    #[inline]
    pub(crate) fn touch(&self) {
        let before = self.words.as_ptr().addr().wrapping_neg() % WORDS_PAGE / size_of::<SlotWord>();
        if let Some(word) = self.words.get(before) {
            // A compare-and-swap is used, because the compiler may turn another store without
            // effect into a load.
            let free = SlotWord::FREE.0;
            let _ = word.compare_exchange(free, free, Relaxed, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: usize) -> SlotWord {
        SlotWord(self.word(slot).load(Acquire))
    }

    /// Claims free slots for `me`, from slot `from` on, and passes each to `take` until `take`
    /// returns false. Returns where the next search should begin.
    pub(crate) fn claim(
        &self,
        from: usize,
        me: CacheId,
        mut take: impl FnMut(usize) -> bool,
    ) -> usize {
        for slot in from..self.count {
            if self.claim_one(slot, me) {
                step!("slot.claim.between");
                if !take(slot) {
                    return slot + 1;
                }
            }
        }
        self.count
    }

    /// Makes `me` the holder of the first `count` slots in a span that `me` is building. No other
    /// cache holds a slot there, except perhaps a cache that read the word of an older span and
    /// will give back its claims.
    pub(crate) fn hold(&self, count: usize, me: CacheId) {
        for slot in 0..count.min(self.count) {
            overwrite!(self.word(slot), SlotWord::cached(me).0, Relaxed);
            step!("slot.hold.between");
        }
    }

    /// Claims one slot if it is free.
    #[inline]
    pub(crate) fn claim_one(&self, slot: usize, me: CacheId) -> bool {
        let word = self.word(slot);
        word.load(Relaxed) == SlotWord::FREE.0
            && word
                .compare_exchange(SlotWord::FREE.0, SlotWord::cached(me).0, AcqRel, Relaxed)
                .is_ok()
    }

    /// Frees a slot if it is cached by `me`. Returns whether it was. Needs a compare-and-swap,
    /// because the span may have been taken apart and built again since the claim.
    pub(crate) fn release(&self, slot: usize, me: CacheId) -> bool {
        let (old, new) = (SlotWord::cached(me).0, SlotWord::FREE.0);
        self.word(slot).compare_exchange(old, new, Release, Relaxed).is_ok()
    }

    /// Replaces a slot word if it is still `old`. Returns whether it was.
    pub(crate) fn exchange(&self, slot: usize, old: SlotWord, new: SlotWord) -> bool {
        self.word(slot).compare_exchange(old.0, new.0, AcqRel, Relaxed).is_ok()
    }

    /// Claims all slots, or none if a slot is not free.
    pub(crate) fn claim_all(&self, me: CacheId) -> bool {
        if !self.are_free() {
            return false;
        }
        for slot in 0..self.count {
            if !self.claim_one(slot, me) {
                step!("slot.claim_all.before_roll_back");
                (0..slot).for_each(|slot| _ = self.release(slot, me));
                return false;
            }
            step!("slot.claim_all.between");
        }
        true
    }

    /// Whether all slots are free. Reads the slot words up to the first slot that is not free.
    pub(crate) fn are_free(&self) -> bool {
        (0..self.count).all(|slot| self.word(slot).load(Relaxed) == SlotWord::FREE.0)
    }

    /// Frees all slots that are cached by `me`.
    pub(crate) fn release_all(&self, me: CacheId) {
        for slot in 0..self.count {
            self.release(slot, me);
            step!("slot.release_all.between");
        }
    }

    /// How many slots are free now.
    pub(crate) fn count_free(&self) -> usize {
        (0..self.count).filter(|&slot| self.get(slot) == SlotWord::FREE).count()
    }

    #[inline]
    fn word(&self, slot: usize) -> &AtomicU16 {
        &self.words[slot * self.stride]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protocol::class::TABLE;
    use std::vec::Vec;

    #[test]
    fn only_the_owner_releases_a_claimed_slot() {
        // 320 bytes: each fifth word in the array for 64 bytes belongs to a slot.
        let class = &TABLE[4];
        let words: Vec<AtomicU16> = (0..2048).map(|_| AtomicU16::new(0)).collect();
        let slots = Slots::new(&words, 64 << 10, class);
        let mut taken = Vec::new();
        let next = slots.claim(3, 7, |slot| {
            taken.push(slot);
            taken.len() < 3
        });
        assert_eq!((taken.as_slice(), next), ([3, 4, 5].as_slice(), 6));
        assert_eq!(words[1024 + 3 * 5].load(Relaxed), 7);
        assert!(!slots.claim_all(8) && !slots.release(3, 8) && slots.release(3, 7));
        assert!(slots.release(4, 7) && slots.release(5, 7));
        slots.hold(2, 9);
        assert!(slots.release(0, 9) && slots.release(1, 9) && !slots.release(2, 9));
        assert!(slots.claim_all(8));
        assert_eq!(slots.count_free(), 0);
        slots.release_all(8);
        assert_eq!(slots.count_free(), slots.count());
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
    }
}
