//! Copies and fills of up to 64 bytes, in two shapes: one shape is called, and the other is
//! inlined into the caller.
//!
//! # Idea
//!
//! Most calls of memcpy are short, and their sizes look random to a branch predictor: in a large
//! fleet, 63.5% of the calls move at most 16 bytes. A mispredicted branch costs such a call 10 to
//! 20 cycles, and an unnecessary store costs one cycle. The code therefore computes addresses
//! from the size and does not branch on it. The shape that is called is [`copy`] and [`fill`]:
//!
//! ```text
//! n <= 3:   1 byte at n-1, 2 at 0            to a scratch where n has no room for them
//! n <= 16:  4 bytes at n-8 (at 0 if n < 8), 4 at n-4
//!           8 bytes at 0                     to a scratch if n < 8
//! n <= 64:  16 bytes at 0, k, n-16-k, n-16   k = 16 when n > 32, else 0
//! ```
//!
//! An additional store is free if the target is in L1. Beyond L2, an additional store is
//! expensive, because there the number of calls that the processor has in flight limits the
//! speed. [`inlined`] saves the time of the call, so its memcpy and memset can branch at 32,
//! which saves two of four stores; its memcpy also branches at 8.
//!
//! All loads precede all stores, so overlap is harmless. In code that computes addresses, the
//! widest store is the last one: if a program loads the target's first 2, 4 or 8 bytes right
//! after the copy, one store provides them (store-to-load forwarding).
//!
//! On processors with AVX-512, `arch::x86_64::masked` copies these sizes with one branch. The
//! [`Policy`](crate::Policy) says whether that is faster, including the loads that follow the
//! copy.
//!
//! # What was tried
//!
//! More stores instead of a branch cost time beyond L2, more branches cost time in L1, and no other
//! shape was better in both. Masks are faster in L1, and slower if the first 8 bytes are read next.
//! `bench/record/2026-11-22-zen4-2cpu-copy` has the tables.
//!
//! From the bottom up:
//!
//! - `word`: loads and stores of 1 to 16 bytes;
//! - `piece`: one function for each class of sizes;
//! - `inlined`: up to 64 bytes, inlined into the caller.

mod word;

mod piece;

pub(crate) mod inlined;

/// The largest size in bytes that is copied without a call.
pub(crate) const SMALL_MAX: usize = 64;

/// Copies `length <= 64` bytes; the two may overlap in any way.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, and `length` must be at most
/// 64.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    if length <= 16 {
        if length <= 3 {
            // SAFETY: the caller's promise, and length <= 3.
            unsafe { piece::copy_to_3(target, source, length) }
        } else {
            // SAFETY: the caller's promise, and 4 <= length <= 16.
            unsafe { piece::copy_4_to_16(target, source, length) }
        }
    } else {
        // SAFETY: the caller's promise, and 17 <= length <= 64.
        unsafe { piece::copy_17_to_64(target, source, length) }
    }
}

/// Fills `length <= 64` bytes.
///
/// # Safety
/// `target` must be writable for `length` bytes, and `length` must be at most 64.
#[inline(always)]
pub(crate) unsafe fn fill(target: *mut u8, byte: u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    if length <= 16 {
        if length <= 3 {
            // SAFETY: the caller's promise, and length <= 3.
            unsafe { piece::fill_to_3(target, byte, length) }
        } else {
            // SAFETY: the caller's promise, and 4 <= length <= 16.
            unsafe { piece::fill_4_to_16(target, byte, length) }
        }
    } else {
        // SAFETY: the caller's promise, and 17 <= length <= 64.
        unsafe { piece::fill_17_to_64(target, byte, length) }
    }
}

/// The offset of the second of four equal pieces of `HALF / 2` bytes that together cover `length`
/// bytes, where `HALF / 2 < length <= 2 * HALF`: `HALF / 2` if `length` is above `HALF`, else 0.
/// `HALF` must be a power of two.
#[inline(always)]
pub(crate) fn inner_offset<const HALF: usize>(length: usize) -> usize {
    debug_assert!(length > HALF / 2 && length <= 2 * HALF);
    ((length - 1) & HALF) >> 1
}
