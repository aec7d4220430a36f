//! Bitmaps of candidates, in three levels: each bit of the second level says whether a word of
//! the first level has a set bit. Each bit of the third level says the same about a word of the
//! second level. A search reads a handful of words, independently of the number of bits.
//!
//! The bits are hints. A bit can be stale, which the thread that follows the bit detects. If a
//! process dies before it sets a bit, the next thread that computes the bits from the state words
//! sets it.

use core::ops::Range;

use crate::sync::{AtomicU64, SeqCst};

/// The number of words in all three levels of a bitmap of `bits` bits.
pub(crate) const fn bitmap_words(bits: usize) -> usize {
    let first = bits.div_ceil(64);
    let second = first.div_ceil(64);
    first + second + second.div_ceil(64)
}

/// A bitmap whose words several threads and processes change.
#[derive(Clone, Copy)]
pub(crate) struct Bitmap<'a> {
    levels: [&'a [AtomicU64]; 3],
    bits: usize,
}

impl<'a> Bitmap<'a> {
    /// The bitmap of `bits` bits in `words`. The number of words must be [`bitmap_words`] of
    /// `bits`.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], bits: usize) -> Self {
        debug_assert_eq!(words.len(), bitmap_words(bits));
        let (first, rest) = words.split_at(bits.div_ceil(64));
        let (second, third) = rest.split_at(first.len().div_ceil(64));
        Self { levels: [first, second, third], bits }
    }

    pub(crate) fn is_set(&self, bit: usize) -> bool {
        self.levels[0][bit / 64].load(SeqCst) >> (bit % 64) & 1 == 1
    }

    /// Sets a bit, then its bits in the levels above.
    pub(crate) fn set(&self, bit: usize) {
        let mut index = bit;
        for level in self.levels {
            let mask = 1 << (index % 64);
            let word = &level[index / 64];
            if word.load(SeqCst) & mask == 0 {
                word.fetch_or(mask, SeqCst);
            }
            index /= 64;
        }
    }

    /// Sets the bits of a range, then their bits in the levels above, one word at a time.
    pub(crate) fn set_all(&self, range: Range<usize>) {
        let mut range = range;
        for level in self.levels {
            if range.is_empty() {
                return;
            }
            let (first, last) = (range.start / 64, (range.end - 1) / 64);
            for (index, word) in level.iter().enumerate().take(last + 1).skip(first) {
                let from = if index == first { range.start % 64 } else { 0 };
                let to = if index == last { (range.end - 1) % 64 } else { 63 };
                word.fetch_or((!0 << from) & (!0 >> (63 - to)), SeqCst);
            }
            range = first..last + 1;
        }
    }

    /// Clears a bit. Returns whether it was set. If several threads clear the same bit, one of
    /// them gets true.
    pub(crate) fn clear(&self, bit: usize) -> bool {
        let mask = 1 << (bit % 64);
        let before = self.levels[0][bit / 64].fetch_and(!mask, SeqCst);
        if before == mask {
            self.clear_above(1, bit / 64);
        }
        before & mask != 0
    }

    /// Whether no bit is set: reads only the few words of the highest level.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels[2].iter().all(|word| word.load(SeqCst) == 0)
    }

    /// The first set bit in `[from, end)`.
    pub(crate) fn next(&self, from: usize, end: usize) -> Option<usize> {
        let found = self.next_at(0, from)?;
        (found < end.min(self.bits)).then_some(found)
    }

    /// The last set bit in `[from, end)`.
    pub(crate) fn last(&self, from: usize, end: usize) -> Option<usize> {
        let found = self.last_at(0, end.min(self.bits))?;
        (found >= from).then_some(found)
    }

    /// Clears the bit for word `index` of the level below, because that word became empty. Sets
    /// the bit again if another thread has set a bit in that word meanwhile.
    fn clear_above(&self, level: usize, index: usize) {
        let Some(words) = self.levels.get(level) else { return };
        let mask = 1 << (index % 64);
        let before = words[index / 64].fetch_and(!mask, SeqCst);
        if self.levels[level - 1][index].load(SeqCst) != 0 {
            words[index / 64].fetch_or(mask, SeqCst);
            if let Some(above) = self.levels.get(level + 1) {
                above[index / 4096].fetch_or(1 << (index / 64 % 64), SeqCst);
            }
        } else if before == mask {
            self.clear_above(level + 1, index / 64);
        }
    }

    fn next_at(&self, level: usize, from: usize) -> Option<usize> {
        let words = self.levels[level];
        let mut from = from;
        loop {
            let word = words.get(from / 64)?.load(SeqCst) >> (from % 64);
            if word != 0 {
                return Some(from + word.trailing_zeros() as usize);
            }
            from = match level {
                2 => (from / 64 + 1) * 64,
                _ => self.next_at(level + 1, from / 64 + 1)? * 64,
            };
        }
    }

    fn last_at(&self, level: usize, end: usize) -> Option<usize> {
        let words = self.levels[level];
        let mut end = end;
        loop {
            let last = end.checked_sub(1)?;
            let word = words.get(last / 64)?.load(SeqCst) << (63 - last % 64);
            if word != 0 {
                return Some(last - word.leading_zeros() as usize);
            }
            end = match level {
                2 => last / 64 * 64,
                _ => (self.last_at(level + 1, last / 64)? + 1) * 64,
            };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn words(bits: usize) -> Vec<AtomicU64> {
        (0..bitmap_words(bits)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn set_all_sets_the_same_words_as_single_sets() {
        let bits = 300_000;
        for range in [0..1, 5..70, 63..65, 64..128, 4090..4100, 10_000..290_000, 7..7] {
            let (ours, expected) = (words(bits), words(bits));
            Bitmap::new(&ours, bits).set_all(range.clone());
            range.clone().for_each(|bit| Bitmap::new(&expected, bits).set(bit));
            let values = |words: &[AtomicU64]| -> Vec<u64> {
                words.iter().map(|word| word.load(SeqCst)).collect()
            };
            assert_eq!(values(&ours), values(&expected), "{range:?}");
        }
    }

    #[test]
    fn search_finds_set_bits_across_levels() {
        for bits in [1, 64, 65, 5000, 300_000] {
            let words = words(bits);
            let bitmap = Bitmap::new(&words, bits);
            let set: Vec<usize> = (0..bits).filter(|bit| bit * bit % 4099 < 3).collect();
            set.iter().for_each(|&bit| bitmap.set(bit));
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(bit) = bitmap.next(from, bits) {
                found.push(bit);
                from = bit + 1;
            }
            assert_eq!(found, set);
            let mut end = bits;
            while let Some(bit) = bitmap.last(0, end) {
                assert_eq!(found.pop(), Some(bit));
                end = bit;
            }
            assert_eq!(found, []);
            assert_eq!(bitmap.is_empty(), set.is_empty());
            assert!(set.iter().all(|&bit| bitmap.clear(bit) && !bitmap.clear(bit)));
            assert!(words.iter().all(|word| word.load(SeqCst) == 0) && bitmap.is_empty());
        }
    }

    #[test]
    fn search_stays_in_its_range() {
        let words = words(1000);
        let bitmap = Bitmap::new(&words, 1000);
        bitmap.set(700);
        assert_eq!(bitmap.next(0, 700), None);
        assert_eq!(bitmap.next(0, 701), Some(700));
        assert_eq!(bitmap.next(701, 1000), None);
        assert_eq!(bitmap.last(0, 700), None);
        assert_eq!(bitmap.last(0, 701), Some(700));
        assert_eq!(bitmap.last(701, 1000), None);
    }
}
