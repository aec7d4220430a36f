//! Up to 64 bytes, inlined into the caller.
//!
//! # Idea
//!
//! Calls of memcpy are short and their sizes look random to a branch predictor: in a large fleet
//! 63.5% of the calls move at most 16 bytes. There a mispredicted branch costs 10 to 20 cycles and
//! a store that was not needed costs one, so the size is turned into addresses, not into branches.
//!
//! ```text
//! n <= 16:  bytes at 0, n/2, n-1        covers 1..=3
//!           4 bytes at 0, n-4           covers 4..=8,  to a scratch when n < 4
//!           8 bytes at 0, n-8           covers 8..=16, to a scratch when n < 8
//! n <= 64:  16 bytes at 0, k, n-16-k, n-16 with k = 16 when n > 32, else 0
//! ```
//!
//! All loads come before all stores, so overlap needs no thought. The wider stores come last:
//! a program that loads the target's first 4 or 8 bytes right after the copy is served by one
//! store (store-to-load forwarding), which four 4-byte stores would deny it.
//!
//! # Deviations and what was tried
//!
//! 1. n == 0 goes to the scratch whole: a branch for it was mispredicted in up to 20% of the calls.
//! 2. A classic tree (8..=32 and 4..=7 and 1..=3) took 0.92 of libc's time over 20 size
//!    distributions where this took 0.81; four 4-byte moves for 4..=16 took 0.88.
//! 3. The scratch is a local: a static one would be a cache line that all threads write. What is
//!    loaded in vain comes from a constant, so that the scratch needs no initialization.

use core::hint::select_unpredictable as select;
use core::mem::MaybeUninit;

/// The largest size that is copied without a call.
pub(crate) const SMALL_MAX: usize = 64;

/// Where stores go that the size does not want: around the middle of it.
type Scratch = MaybeUninit<[u64; 3]>;

/// Where loads go that the size does not want.
static NOTHING: [u64; 3] = [0; 3];

/// Where in a scratch the accesses start: those at the end of a size that is too small for them
/// start up to eight bytes below.
const MIDDLE: usize = 8;

/// Copies `length <= 64` bytes; the two may overlap in any way.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes, `length` is at most 64.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    if length <= 16 {
        // SAFETY: the caller's promise, and length <= 16.
        unsafe { copy_to_16(target, source, length) }
    } else {
        // SAFETY: the caller's promise, and 17 <= length <= 64.
        unsafe { copy_17_to_64(target, source, length) }
    }
}

/// Fills `length <= 64` bytes.
///
/// # Safety
/// `target` is writable for `length` bytes, `length` is at most 64.
#[inline(always)]
pub(crate) unsafe fn fill(target: *mut u8, byte: u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    if length <= 16 {
        // SAFETY: the caller's promise, and length <= 16.
        unsafe { fill_to_16(target, byte, length) }
    } else {
        // SAFETY: the caller's promise, and 17 <= length <= 64.
        unsafe { fill_17_to_64(target, byte, length) }
    }
}

/// Where accesses of 1, 4 and 8 bytes start: at `pointer`, or at the middle of a scratch where
/// `length` has no room for them. Chosen without a branch.
///
/// The other end of each is `length - 1`, `- 4` and `- 8` bytes from there: inside `length` bytes of
/// the pointer, or at most 8 bytes below the middle of the scratch.
#[inline(always)]
fn starts<P: Copy>(pointer: P, middle: P, length: usize) -> [P; 3] {
    // No closure: one of this crate is not inlined into another, which lacks `no_builtins`.
    [
        select(length >= 1, pointer, middle),
        select(length >= 4, pointer, middle),
        select(length >= 8, pointer, middle),
    ]
}

/// # Safety
/// As [`copy`], and `length <= 16`.
#[inline(always)]
unsafe fn copy_to_16(target: *mut u8, source: *const u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let nothing = (&raw const NOTHING).cast::<u8>().wrapping_add(MIDDLE);
    let half = length >> 1;
    // SAFETY: `starts` keeps every access inside `length` bytes of the caller's pointers or inside
    // the 24 bytes of `NOTHING` and of the scratch; half < length, or both are 0. Unaligned
    // accesses are asked for.
    unsafe {
        let [bytes, fours, eights] = starts(source, nothing, length);
        let (first, middle_byte, last) =
            (*bytes, *bytes.add(half), *bytes.wrapping_add(length.wrapping_sub(1)));
        let four = word::load_4(fours);
        let four_end = word::load_4(fours.wrapping_add(length.wrapping_sub(4)));
        let eight = word::load_8(eights);
        let eight_end = word::load_8(eights.wrapping_add(length.wrapping_sub(8)));

        let [bytes, fours, eights] = starts(target, middle, length);
        *bytes = first;
        *bytes.add(half) = middle_byte;
        *bytes.wrapping_add(length.wrapping_sub(1)) = last;
        word::store_4(fours, four);
        word::store_4(fours.wrapping_add(length.wrapping_sub(4)), four_end);
        word::store_8(eights, eight);
        word::store_8(eights.wrapping_add(length.wrapping_sub(8)), eight_end);
    }
}

/// # Safety
/// As [`fill`], and `length <= 16`.
#[inline(always)]
unsafe fn fill_to_16(target: *mut u8, byte: u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let pattern = u64::from(byte) * 0x0101_0101_0101_0101;
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the pattern is wanted")]
    let half_pattern = pattern as u32;
    let [bytes, fours, eights] = starts(target, middle, length);
    // SAFETY: as in `copy_to_16`.
    unsafe {
        *bytes = byte;
        *bytes.add(length >> 1) = byte;
        *bytes.wrapping_add(length.wrapping_sub(1)) = byte;
        fours.cast::<u32>().write_unaligned(half_pattern);
        let fours_end = fours.wrapping_add(length.wrapping_sub(4));
        fours_end.cast::<u32>().write_unaligned(half_pattern);
        eights.cast::<u64>().write_unaligned(pattern);
        let eights_end = eights.wrapping_add(length.wrapping_sub(8));
        eights_end.cast::<u64>().write_unaligned(pattern);
    }
}

/// # Safety
/// As [`copy`], and `17 <= length <= 64`.
#[inline(always)]
unsafe fn copy_17_to_64(target: *mut u8, source: *const u8, length: usize) {
    let inner = inner_offset::<32>(length);
    let end = length - 16;
    // SAFETY: 0 <= inner <= 16 and inner + 16 <= length, so each of the four 16-byte accesses lies
    // inside `length` bytes; together they cover it: [0, 32) and [length - 32, length) when
    // length > 32, else [0, 16) and [length - 16, length).
    unsafe {
        let a = word::load_16(source);
        let b = word::load_16(source.add(inner));
        let c = word::load_16(source.add(end - inner));
        let d = word::load_16(source.add(end));
        word::store_16(target, a);
        word::store_16(target.add(inner), b);
        word::store_16(target.add(end - inner), c);
        word::store_16(target.add(end), d);
    }
}

/// # Safety
/// As [`fill`], and `17 <= length <= 64`.
#[inline(always)]
unsafe fn fill_17_to_64(target: *mut u8, byte: u8, length: usize) {
    let inner = inner_offset::<32>(length);
    let end = length - 16;
    let pattern = word::splat_16(byte);
    // SAFETY: as in `copy_17_to_64`.
    unsafe {
        word::store_16(target, pattern);
        word::store_16(target.add(inner), pattern);
        word::store_16(target.add(end - inner), pattern);
        word::store_16(target.add(end), pattern);
    }
}

/// Where the second of four equal pieces of `HALF / 2` bytes starts so that the four cover
/// `HALF / 2 < length <= 2 * HALF` bytes: `HALF / 2` above `HALF`, else 0. `HALF` is a power of two.
#[inline(always)]
pub(crate) fn inner_offset<const HALF: usize>(length: usize) -> usize {
    debug_assert!(length > HALF / 2 && length <= 2 * HALF);
    ((length - 1) & HALF) >> 1
}

/// Loads and stores of 4, 8 and 16 bytes that leave the general registers alone.
///
/// With general registers `copy_to_16` spilled six of them, and its time over 0..=16 bytes rose
/// from 0.52 to 0.69 of libc's.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use core::arch::x86_64::{
        __m128i, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si32, _mm_cvtsi128_si64,
        _mm_loadu_si128, _mm_set1_epi8, _mm_storeu_si128,
    };

    #[inline(always)]
    pub(super) unsafe fn load_4(source: *const u8) -> __m128i {
        // SAFETY: the caller can read 4 bytes; SSE2 is part of x86-64.
        unsafe { _mm_cvtsi32_si128(source.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    pub(super) unsafe fn store_4(target: *mut u8, word: __m128i) {
        // SAFETY: the caller can write 4 bytes.
        unsafe { target.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(word)) }
    }

    #[inline(always)]
    pub(super) unsafe fn load_8(source: *const u8) -> __m128i {
        // SAFETY: the caller can read 8 bytes.
        unsafe { _mm_cvtsi64_si128(source.cast::<i64>().read_unaligned()) }
    }

    #[inline(always)]
    pub(super) unsafe fn store_8(target: *mut u8, word: __m128i) {
        // SAFETY: the caller can write 8 bytes.
        unsafe { target.cast::<i64>().write_unaligned(_mm_cvtsi128_si64(word)) }
    }

    #[inline(always)]
    pub(super) unsafe fn load_16(source: *const u8) -> __m128i {
        // SAFETY: the caller can read 16 bytes.
        unsafe { _mm_loadu_si128(source.cast()) }
    }

    #[inline(always)]
    pub(super) unsafe fn store_16(target: *mut u8, word: __m128i) {
        // SAFETY: the caller can write 16 bytes.
        unsafe { _mm_storeu_si128(target.cast(), word) }
    }

    #[inline(always)]
    pub(super) fn splat_16(byte: u8) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set1_epi8(byte.cast_signed()) }
    }
}

/// The same in plain Rust: aarch64 pairs the 8-byte halves into one load, Miri follows them.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod word {
    macro_rules! access {
        ($load:ident, $store:ident, $word:ty) => {
            #[inline(always)]
            pub(super) unsafe fn $load(source: *const u8) -> $word {
                // SAFETY: the caller can read that many bytes.
                unsafe { source.cast::<$word>().read_unaligned() }
            }

            #[inline(always)]
            pub(super) unsafe fn $store(target: *mut u8, word: $word) {
                // SAFETY: the caller can write that many bytes.
                unsafe { target.cast::<$word>().write_unaligned(word) }
            }
        };
    }
    access!(load_4, store_4, u32);
    access!(load_8, store_8, u64);
    access!(load_16, store_16, u128);

    #[inline(always)]
    pub(super) fn splat_16(byte: u8) -> u128 {
        u128::from_ne_bytes([byte; 16])
    }
}
