//! Up to 64 bytes, inlined into the caller.
//!
//! # Idea
//!
//! Calls of memcpy are short and their sizes look random to a branch predictor: in a large fleet
//! 63.5% of the calls move at most 16 bytes. There a mispredicted branch costs 10 to 20 cycles and
//! a store that was not needed costs one, so the size is turned into addresses, not into branches.
//!
//! ```text
//! n <= 3:   1 byte at n-1, 2 at 0            to a scratch where n has no room for them
//! n <= 16:  4 bytes at n-8 (at 0 if n < 8), 4 at n-4
//!           8 bytes at 0                     to a scratch if n < 8
//! n <= 64:  16 bytes at 0, k, n-16-k, n-16   k = 16 when n > 32, else 0
//! ```
//!
//! All loads come before all stores, so overlap needs no thought. The widest store comes last: a
//! program that loads the target's first 2, 4 or 8 bytes right after the copy is served by one store
//! (store-to-load forwarding).
//!
//! # What was tried
//!
//! A store more is free while the target is in L1, and dear while it is not: the store queue fills
//! with lines that are on their way. Time over libc's (glibc 2.36, Zen 4) on sizes of 0 to 16 bytes:
//!
//! | stores | branches up to 16 bytes | L1 | LLC |
//! |---|---|---|---|
//! | 2 or 3, as above | at 3 | 0.59 | 1.00 |
//! | 4, two of 4 and two of 8 bytes | at 3 | 0.54 | 1.03 |
//! | 7, bytes as well | none | 0.50 | 2.1 |
//! | 2 | at 3 and 7 | 0.83 | 0.84 |
//!
//! Beyond L2 the bound is how many calls the processor has in flight. Ten register moves in vain
//! in each call cost 12 to 20% there, one store in vain 4 to 6%; prefetching the target for
//! writing changes nothing. So a choice without a branch is paid beyond L2 and a branch is paid in
//! L1, and no shape tried is the better one in both. Over libc's time on the size distributions of
//! a fleet (geometric means of ten each), and on sizes drawn evenly from a class:
//!
//! | memcpy | L1 | LLC | cold | 0-16 | 17-64 |
//! |---|---|---|---|---|---|
//! | as above | 0.78 | 1.07 | 1.06 | 0.57 | 0.69 |
//! | branches at 3 and 7 and 15 | 0.88 | 1.04 | 1.03 | 0.84 | 0.69 |
//! | and at 32, two 32-byte stores above it | 0.93 | 1.01 | 1.01 | 0.84 | 1.23 |
//! | branches at 7 and 32, three stores for 0-7 and 8-32 | 0.80 | 1.13 | 1.11 | - | - |
//! | four stores of 4 bytes for 4-15, no scratch | 0.81 | 1.09 | 1.08 | 0.63 | 0.68 |
//!
//! | memset | L1 | LLC | cold | 17-64 |
//! |---|---|---|---|---|
//! | as above | 0.88 | 1.09 | 1.18 | 0.64 |
//! | three stores, one of 32 bytes | 0.90 | 1.06 | 1.12 | 0.64 |
//! | a branch at 32 | 0.92 | 1.03 | 1.06 | 1.13 |
//! | branches as libc has them | 0.98 | 1.02 | 1.02 | 1.22 |
//!
//! The scratch is a local: a static one would be a cache line that all threads write. What is
//! loaded in vain comes from a constant, so that the scratch needs no initialization.

use core::hint::select_unpredictable as select;
use core::mem::MaybeUninit;

/// The largest size that is copied without a call.
pub(crate) const SMALL_MAX: usize = 64;

/// Where stores go that the size does not want: at its middle.
type Scratch = MaybeUninit<[u64; 2]>;

/// Where loads go that the size does not want: at its middle. Not the scratch: a load from there
/// would wait for the stores before it. A constant and not a static, whose address would come from
/// the global offset table.
const NOTHING: &[u64; 2] = &[0; 2];

/// Where in a scratch the accesses start: that at the end of no bytes starts one below.
const MIDDLE: usize = 8;

/// Copies `length <= 64` bytes; the two may overlap in any way.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes, `length` is at most 64.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    if length <= 16 {
        if length <= 3 {
            // SAFETY: the caller's promise, and length <= 3.
            unsafe { copy_to_3(target, source, length) }
        } else {
            // SAFETY: the caller's promise, and 4 <= length <= 16.
            unsafe { copy_4_to_16(target, source, length) }
        }
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
        if length <= 3 {
            // SAFETY: the caller's promise, and length <= 3.
            unsafe { fill_to_3(target, byte, length) }
        } else {
            // SAFETY: the caller's promise, and 4 <= length <= 16.
            unsafe { fill_4_to_16(target, byte, length) }
        }
    } else {
        // SAFETY: the caller's promise, and 17 <= length <= 64.
        unsafe { fill_17_to_64(target, byte, length) }
    }
}

/// `pointer` where `length` has room for `size` bytes, else the middle of a scratch. No branch.
#[inline(always)]
fn room<P: Copy>(size: usize, length: usize, pointer: P, middle: P) -> P {
    select(length >= size, pointer, middle)
}

/// # Safety
/// As [`copy`], and `length <= 3`.
#[inline(always)]
unsafe fn copy_to_3(target: *mut u8, source: *const u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let nothing = NOTHING.as_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let last = length.wrapping_sub(1);
    // SAFETY: `room`; without bytes, `last` is one below the middle.
    unsafe {
        let two = word::load_2(room(2, length, source, nothing));
        let one = word::load_1(room(1, length, source, nothing).wrapping_add(last));
        word::store_1(room(1, length, target, middle).wrapping_add(last), one);
        word::store_2(room(2, length, target, middle), two);
    }
}

/// # Safety
/// As [`copy`], and `4 <= length <= 16`.
#[inline(always)]
unsafe fn copy_4_to_16(target: *mut u8, source: *const u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let nothing = NOTHING.as_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let inner = select(length >= 8, length.wrapping_sub(8), 0);
    let end = length - 4;
    // SAFETY: inner + 4 <= length and end + 4 == length; `room`. The pieces cover [0, 8) and
    // [length - 8, length) from 8 bytes on, else [0, 4) and [length - 4, length).
    unsafe {
        let eight = word::load_8(room(8, length, source, nothing));
        let four = word::load_4(source.add(inner));
        let four_end = word::load_4(source.add(end));
        word::store_4(target.add(inner), four);
        word::store_4(target.add(end), four_end);
        word::store_8(room(8, length, target, middle), eight);
    }
}

/// # Safety
/// As [`fill`], and `length <= 3`.
#[inline(always)]
unsafe fn fill_to_3(target: *mut u8, byte: u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let last = length.wrapping_sub(1);
    let two = u16::from_ne_bytes([byte; 2]);
    // SAFETY: as in `copy_to_3`.
    unsafe {
        *room(1, length, target, middle).wrapping_add(last) = byte;
        room(2, length, target, middle).cast::<u16>().write_unaligned(two);
    }
}

/// # Safety
/// As [`fill`], and `4 <= length <= 16`.
#[inline(always)]
unsafe fn fill_4_to_16(target: *mut u8, byte: u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let eight = u64::from(byte) * 0x0101_0101_0101_0101;
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the pattern is wanted")]
    let four = eight as u32;
    let inner = select(length >= 8, length.wrapping_sub(8), 0);
    // SAFETY: as in `copy_4_to_16`.
    unsafe {
        target.add(inner).cast::<u32>().write_unaligned(four);
        target.add(length - 4).cast::<u32>().write_unaligned(four);
        room(8, length, target, middle).cast::<u64>().write_unaligned(eight);
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

/// Loads and stores of 1 to 16 bytes. As memory, not as numbers: uninitialized bytes and
/// pointers survive.
mod word {
    use core::mem::MaybeUninit;

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_set1_epi8, _mm_storeu_si128};

    macro_rules! access {
        ($load:ident, $store:ident, $word:ty) => {
            #[inline(always)]
            pub(super) unsafe fn $load(source: *const u8) -> MaybeUninit<$word> {
                // SAFETY: the caller can read that many bytes.
                unsafe { source.cast::<MaybeUninit<$word>>().read_unaligned() }
            }

            #[inline(always)]
            pub(super) unsafe fn $store(target: *mut u8, word: MaybeUninit<$word>) {
                // SAFETY: the caller can write that many bytes.
                unsafe { target.cast::<MaybeUninit<$word>>().write_unaligned(word) }
            }
        };
    }
    access!(load_1, store_1, u8);
    access!(load_2, store_2, u16);
    access!(load_4, store_4, u32);
    access!(load_8, store_8, u64);

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    access!(load_16, store_16, u128);

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub(super) fn splat_16(byte: u8) -> MaybeUninit<u128> {
        MaybeUninit::new(u128::from_ne_bytes([byte; 16]))
    }

    // x86-64 would move a u128 through two general registers.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) unsafe fn load_16(source: *const u8) -> __m128i {
        // SAFETY: the caller can read 16 bytes.
        unsafe { _mm_loadu_si128(source.cast()) }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) unsafe fn store_16(target: *mut u8, word: __m128i) {
        // SAFETY: the caller can write 16 bytes.
        unsafe { _mm_storeu_si128(target.cast(), word) }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) fn splat_16(byte: u8) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set1_epi8(byte.cast_signed()) }
    }
}
