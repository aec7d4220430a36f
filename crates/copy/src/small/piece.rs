//! One function for each class of sizes up to 64 bytes. None of these functions has a branch.
//!
//! The scratch is a local variable, because all threads would write to the cache line of a static
//! scratch. Unneeded loads read from a constant, so that the scratch needs no initialization.

use core::hint::select_unpredictable as select;
use core::mem::MaybeUninit;

use super::{inner_offset, word};

/// The target of stores that the size does not need. The stores start in the middle of the
/// scratch.
type Scratch = MaybeUninit<[u64; 2]>;

/// The source of loads that the size does not need. The loads start in the middle of this
/// constant. They do not read the scratch, because a load from the scratch would wait for earlier
/// stores to it. The source is a constant, because the address of a static would come from the
/// global offset table.
const NOTHING: &[u64; 2] = &[0; 2];

/// The offset in a scratch at which accesses start. If a copy has 0 bytes, the access to its last
/// byte starts one byte below this offset.
const MIDDLE: usize = 8;

/// `pointer` if `length` is at least `size` bytes, else `middle`, the middle of a scratch. It has
/// no branch.
#[inline(always)]
fn room<P: Copy>(size: usize, length: usize, pointer: P, middle: P) -> P {
    select(length >= size, pointer, middle)
}

/// # Safety
/// The conditions of [`copy`](super::copy) apply, and `length <= 3`.
#[inline(always)]
pub(super) unsafe fn copy_to_3(target: *mut u8, source: *const u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let nothing = NOTHING.as_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let last = length.wrapping_sub(1);
    // SAFETY: `room` gives every access an address inside the buffer or the scratch; if `length` is
    // 0, `last` is one byte below the middle.
    unsafe {
        let two = word::load_2(room(2, length, source, nothing));
        let one = word::load_1(room(1, length, source, nothing).wrapping_add(last));
        word::store_1(room(1, length, target, middle).wrapping_add(last), one);
        word::store_2(room(2, length, target, middle), two);
    }
}

/// # Safety
/// The conditions of [`copy`](super::copy) apply, and `4 <= length <= 16`.
#[inline(always)]
pub(super) unsafe fn copy_4_to_16(target: *mut u8, source: *const u8, length: usize) {
    let mut scratch = Scratch::uninit();
    let middle = crate::opaque::same(scratch.as_mut_ptr().cast::<u8>().wrapping_add(MIDDLE));
    let nothing = NOTHING.as_ptr().cast::<u8>().wrapping_add(MIDDLE);
    let inner = select(length >= 8, length.wrapping_sub(8), 0);
    let end = length - 4;
    // SAFETY: inner + 4 <= length and end + 4 == length; `room` gives the access of 8 bytes an
    // address inside the buffer or the scratch. The pieces cover [0, 8) and [length - 8, length)
    // from 8 bytes on, else [0, 4) and [length - 4, length).
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
/// The conditions of [`fill`](super::fill) apply, and `length <= 3`.
#[inline(always)]
pub(super) unsafe fn fill_to_3(target: *mut u8, byte: u8, length: usize) {
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
/// The conditions of [`fill`](super::fill) apply, and `4 <= length <= 16`.
#[inline(always)]
pub(super) unsafe fn fill_4_to_16(target: *mut u8, byte: u8, length: usize) {
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
/// The conditions of [`copy`](super::copy) apply, and `17 <= length <= 64`.
#[inline(always)]
pub(super) unsafe fn copy_17_to_64(target: *mut u8, source: *const u8, length: usize) {
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
/// The conditions of [`fill`](super::fill) apply, and `17 <= length <= 64`.
#[inline(always)]
pub(super) unsafe fn fill_17_to_64(target: *mut u8, byte: u8, length: usize) {
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

/// Copies the first and the last word of a buffer that is at least one word and at most two words
/// long.
macro_rules! two_words {
    ($copy:ident, $size:literal, $load:ident, $store:ident) => {
        /// # Safety
        #[doc = concat!("As [`copy`](super::copy), and `", $size, " <= length <= 2 * ", $size, "`.")]
        #[inline(always)]
        pub(super) unsafe fn $copy(target: *mut u8, source: *const u8, length: usize) {
            let end = length - $size;
            // SAFETY: the words at 0 and at length - size lie inside `length` bytes, because
            // `length` is at least one word, and cover them, because `length` is at most two
            // words.
            unsafe {
                let first = word::$load(source);
                let last = word::$load(source.add(end));
                word::$store(target, first);
                word::$store(target.add(end), last);
            }
        }
    };
}
two_words!(copy_4_to_8, 4, load_4, store_4);
two_words!(copy_8_to_16, 8, load_8, store_8);
two_words!(copy_16_to_32, 16, load_16, store_16);

/// # Safety
/// The conditions of [`copy`](super::copy) apply, and `32 <= length <= 64`.
#[inline(always)]
pub(super) unsafe fn copy_32_to_64(target: *mut u8, source: *const u8, length: usize) {
    let end = length - 16;
    // SAFETY: each of the four 16-byte accesses lies inside `length >= 32` bytes; together they
    // cover [0, 32) and [length - 32, length).
    unsafe {
        let a = word::load_16(source);
        let b = word::load_16(source.add(16));
        let c = word::load_16(source.add(end - 16));
        let d = word::load_16(source.add(end));
        word::store_16(target, a);
        word::store_16(target.add(16), b);
        word::store_16(target.add(end - 16), c);
        word::store_16(target.add(end), d);
    }
}

/// # Safety
/// The conditions of [`fill`](super::fill) apply, and `16 <= length <= 32`.
#[inline(always)]
pub(super) unsafe fn fill_16_to_32(target: *mut u8, byte: u8, length: usize) {
    let pattern = word::splat_16(byte);
    // SAFETY: as in `copy_16_to_32`.
    unsafe {
        word::store_16(target, pattern);
        word::store_16(target.add(length - 16), pattern);
    }
}

/// # Safety
/// The conditions of [`fill`](super::fill) apply, and `32 <= length <= 64`.
#[inline(always)]
pub(super) unsafe fn fill_32_to_64(target: *mut u8, byte: u8, length: usize) {
    let end = length - 16;
    let pattern = word::splat_16(byte);
    // SAFETY: as in `copy_32_to_64`.
    unsafe {
        word::store_16(target, pattern);
        word::store_16(target.add(16), pattern);
        word::store_16(target.add(end - 16), pattern);
        word::store_16(target.add(end), pattern);
    }
}
