//! The checksum of a message: two sums over its words, fused into the copy.
//!
//! ```text
//! plain    = sum of word[i]          mod 2^64
//! weighted = sum of word[i] * i      mod 2^64    (words of 8 B, little-endian, zeros at the end)
//! ```
//!
//! The sums do not depend on the order, so each end can add pieces of any size as they arrive,
//! from the front and from the back. A change of a single word changes the plain sum. An exchange
//! of two words changes the weighted sum, unless their difference times their distance is a
//! multiple of 2^64, which requires that they differ in their highest bits alone. The checksum
//! detects accidents, not a malicious peer, which could send other bytes in the first place.
//!
//! A block is 16 words in 16 lanes. With `a += word; b += a` for each of m blocks, b is the sum of
//! word * (m - block), from which the weights follow: two additions per word, no multiplication.
//! The values that are added are the values that were loaded for the copy: if a peer changes
//! bytes meanwhile, the sum matches the bytes that are kept.

#[cfg(target_arch = "x86_64")]
mod avx2;

use haul_peer::region::Region;

/// Words in a block.
const LANES: usize = 16;
/// Bytes in a block.
const BLOCK_BYTES: usize = 8 * LANES;

/// Number of bytes that are added between two checks of the clock and the peer, in about 0.1 ms.
pub(crate) const SUM_BYTES: usize = 1 << 20;

/// The checksum of some bytes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) plain: u64,
    pub(crate) weighted: u64,
}

/// The sums of each lane over a run of blocks.
struct LaneSums {
    plain: [u64; LANES],
    falling: [u64; LANES],
}

impl Sum {
    /// Both sums in one word, for messages.
    pub(crate) fn folded(self) -> u64 {
        self.plain ^ self.weighted.rotate_left(32)
    }

    /// Adds bytes that begin at `offset` of the message.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) {
        // SAFETY: the source is a slice of that length, and there is no target.
        unsafe { self.run(offset, None, bytes.as_ptr(), bytes.len(), false) }
    }

    /// Copies bytes that begin at `place` of the message out of shared memory, and adds them.
    pub(crate) fn read(
        &mut self,
        place: u64,
        (region, offset): (&Region, usize),
        target: &mut [u8],
        is_streamed: bool,
    ) {
        let source = region.at(offset, target.len()).as_ptr();
        // SAFETY: the source is inside the mapping, whose pages cannot go; the target is a slice of
        // that length in private memory. The peer may write meanwhile: any bytes will do.
        unsafe { self.copy(place, target.as_mut_ptr(), source, target.len(), is_streamed) }
    }

    /// Copies bytes that begin at `place` of the message into shared memory, and adds them to the
    /// sums.
    pub(crate) fn write(
        &mut self,
        place: u64,
        (region, offset): (&Region, usize),
        source: &[u8],
        is_streamed: bool,
    ) {
        let target = region.at(offset, source.len()).as_ptr();
        // SAFETY: the target is inside the mapping, whose pages cannot go; no reference to these
        // bytes exists anywhere in this process.
        unsafe { self.copy(place, target, source.as_ptr(), source.len(), is_streamed) }
    }

    /// Copies bytes that begin at `offset` of the message, and adds them to the sums. With
    /// `is_streamed`, the stores to the target bypass the caches.
    ///
    /// # Safety
    /// `length` bytes can be read at the source and written at the target, and they do not
    /// overlap.
    unsafe fn copy(
        &mut self,
        offset: u64,
        target: *mut u8,
        source: *const u8,
        length: usize,
        is_streamed: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.run(offset, Some(target), source, length, is_streamed) }
    }

    /// # Safety
    /// The obligations of [`copy`](Self::copy); those for the target only if there is one.
    unsafe fn run(
        &mut self,
        mut offset: u64,
        target: Option<*mut u8>,
        source: *const u8,
        length: usize,
        is_streamed: bool,
    ) {
        let mut done = 0;
        // Adds single bytes up to a word boundary of the message and, if the stores bypass the
        // caches, up to an aligned address of the target.
        let is_aligned = |done: usize| match target {
            Some(target) if is_streamed => target.addr().wrapping_add(done).is_multiple_of(32),
            _ => true,
        };
        let can_align =
            target.is_none_or(|t| (t.addr() as u64).wrapping_sub(offset).is_multiple_of(8));
        while done < length && (!offset.is_multiple_of(8) || (can_align && !is_aligned(done))) {
            // SAFETY: inside, as `done` is.
            unsafe { self.byte(offset, target, source, done) };
            (offset, done) = (offset + 1, done + 1);
        }
        let blocks = (length - done) / BLOCK_BYTES;
        let bytes = blocks * BLOCK_BYTES;
        // SAFETY: inside, as `done` is.
        let from = unsafe { source.add(done) };
        // SAFETY: likewise.
        let to = target.map(|target| unsafe { target.add(done) });
        // SAFETY: `bytes` remain at both, and a streamed target is aligned.
        let lanes = unsafe { blocks_of(to, from, blocks, is_streamed && is_aligned(done)) };
        self.add_lanes(offset / 8, blocks as u64, &lanes);
        (offset, done) = (offset + bytes as u64, done + bytes);
        while done < length {
            // SAFETY: inside, as `done` is.
            unsafe { self.byte(offset, target, source, done) };
            (offset, done) = (offset + 1, done + 1);
        }
    }

    /// Copies and adds one byte outside of blocks.
    ///
    /// # Safety
    /// `index` is inside source and target.
    unsafe fn byte(
        &mut self,
        offset: u64,
        target: Option<*mut u8>,
        source: *const u8,
        index: usize,
    ) {
        // SAFETY: the caller's promise.
        let source = unsafe { source.add(index) };
        // SAFETY: likewise; volatile, so that the byte that is added is also the byte that is
        // kept.
        let byte = unsafe { source.read_volatile() };
        if let Some(target) = target {
            // SAFETY: likewise.
            let target = unsafe { target.add(index) };
            // SAFETY: likewise.
            unsafe { target.write(byte) };
        }
        let word = u64::from(byte) << (8 * (offset % 8));
        self.plain = self.plain.wrapping_add(word);
        self.weighted = self.weighted.wrapping_add(word.wrapping_mul(offset / 8));
    }

    fn add_lanes(&mut self, first: u64, blocks: u64, lanes: &LaneSums) {
        for (lane, (plain, falling)) in (0..).zip(lanes.plain.iter().zip(lanes.falling)) {
            let rising = blocks.wrapping_mul(*plain).wrapping_sub(falling);
            let within = plain.wrapping_mul(first.wrapping_add(lane));
            self.plain = self.plain.wrapping_add(*plain);
            self.weighted =
                self.weighted.wrapping_add(within).wrapping_add(rising.wrapping_mul(LANES as u64));
        }
    }
}

/// # Safety
/// `blocks` blocks can be read at the source and written at the target, if there is one; a streamed
/// target is aligned to 32 B.
unsafe fn blocks_of(
    target: Option<*mut u8>,
    source: *const u8,
    blocks: usize,
    is_streamed: bool,
) -> LaneSums {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; the rest is the caller's promise.
        return unsafe { avx2::blocks(target, source, blocks, is_streamed) };
    }
    let _ = is_streamed;
    // SAFETY: the caller's promise.
    unsafe { blocks_by_words(target, source, blocks) }
}

/// # Safety
/// The obligations of [`blocks_of`].
unsafe fn blocks_by_words(target: Option<*mut u8>, source: *const u8, blocks: usize) -> LaneSums {
    let mut lanes = LaneSums { plain: [0; LANES], falling: [0; LANES] };
    for block in 0..blocks {
        // SAFETY: inside, as the caller promises.
        let from = unsafe { source.add(block * BLOCK_BYTES) }.cast::<[u64; LANES]>();
        // SAFETY: likewise; no alignment is asked for.
        let words = unsafe { from.read_unaligned() };
        // The peer may change these bytes, so they are loaded once.
        let words = std::hint::black_box(words);
        if let Some(target) = target {
            // SAFETY: likewise, of the target.
            let to = unsafe { target.add(block * BLOCK_BYTES) }.cast::<[u64; LANES]>();
            // SAFETY: likewise; no alignment is asked for.
            unsafe { to.write_unaligned(words) };
        }
        for (lane, word) in words.into_iter().enumerate() {
            lanes.plain[lane] = lanes.plain[lane].wrapping_add(u64::from_le(word));
            lanes.falling[lane] = lanes.falling[lane].wrapping_add(lanes.plain[lane]);
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the sums by the definition at the top of this file.
    fn naive(bytes: &[u8]) -> Sum {
        let mut sum = Sum::default();
        for (index, piece) in (0_u64..).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            let word = u64::from_le_bytes(word);
            sum.plain = sum.plain.wrapping_add(word);
            sum.weighted = sum.weighted.wrapping_add(word.wrapping_mul(index));
        }
        sum
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_give_the_sum(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            cut: prop::sample::Index,
            at in 0..64_usize,
            is_streamed: bool,
        ) {
            let cut = cut.index(bytes.len() + 1);
            let mut sum = Sum::default();
            sum.add(cut as u64, &bytes[cut..]);
            sum.add(0, &bytes[..cut]);
            prop_assert_eq!(sum, naive(&bytes));

            let mut target = vec![0; bytes.len() + at];
            let mut sum = Sum::default();
            for (start, end) in [(cut, bytes.len()), (0, cut)] {
                let (to, from) = (target[at + start..].as_mut_ptr(), bytes[start..].as_ptr());
                // SAFETY: both have `end - start` bytes left, in separate vectors.
                unsafe { sum.copy(start as u64, to, from, end - start, is_streamed) };
            }
            prop_assert_eq!(sum, naive(&bytes));
            prop_assert_eq!(&target[at..], &bytes[..]);
        }

        #[test]
        fn words_by_one_and_by_vectors_agree(blocks in prop::collection::vec(any::<u64>(), 0..640)) {
            let count = blocks.len() / LANES;
            let source = blocks.as_ptr().cast();
            // SAFETY: that many blocks can be read, and there is no target.
            let some = unsafe { blocks_of(None, source, count, false) };
            // SAFETY: likewise.
            let others = unsafe { blocks_by_words(None, source, count) };
            prop_assert_eq!(some.plain, others.plain);
            prop_assert_eq!(some.falling, others.falling);
        }

        #[test]
        fn a_change_and_an_exchange_show(mut bytes in prop::collection::vec(any::<u8>(), 64..500), one: prop::sample::Index, other: prop::sample::Index, bit in 0..8_u8) {
            let (one, other) = (one.index(bytes.len()), other.index(bytes.len()));
            let before = naive(&bytes);
            bytes[one] ^= 1 << bit;
            prop_assert_ne!(naive(&bytes), before);
            bytes[one] ^= 1 << bit;
            // The change of the weighted sum if two bytes at the same position in two words are
            // exchanged.
            let difference = u64::from(bytes[one]).wrapping_sub(u64::from(bytes[other]));
            let distance = (one as u64 / 8).wrapping_sub(other as u64 / 8);
            let weighted = difference.wrapping_mul(distance) << (one % 8 * 8);
            let is_missed = one % 8 == other % 8 && weighted == 0;
            bytes.swap(one, other);
            prop_assert_eq!(naive(&bytes) == before, difference == 0 || is_missed);
        }
    }
}
