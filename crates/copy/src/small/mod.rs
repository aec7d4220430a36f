//! Up to 64 bytes, in two shapes: one that is called, one that becomes code in the caller.
//!
//! # Idea
//!
//! Calls of memcpy are short and their sizes look random to a branch predictor: in a large fleet
//! 63.5% of the calls move at most 16 bytes. There a mispredicted branch costs 10 to 20 cycles and
//! a store that was not needed costs one, so the size is turned into addresses, not into branches.
//! This is the shape that is called, [`copy`] and [`fill`]:
//!
//! ```text
//! n <= 3:   1 byte at n-1, 2 at 0            to a scratch where n has no room for them
//! n <= 16:  4 bytes at n-8 (at 0 if n < 8), 4 at n-4
//!           8 bytes at 0                     to a scratch if n < 8
//! n <= 64:  16 bytes at 0, k, n-16-k, n-16   k = 16 when n > 32, else 0
//! ```
//!
//! A store more is free while the target is in L1, and dear while it is not: beyond L2 the bound is
//! how many calls the processor has in flight. [`inlined`] has no call to pay for, and its memcpy
//! and memset branch at 32, where two of the four stores are saved; its memcpy at 8 too.
//!
//! All loads come before all stores, so overlap needs no thought. Where addresses are computed the
//! widest store comes last: a program that loads the target's first 2, 4 or 8 bytes right after the
//! copy is served by one store (store-to-load forwarding).
//!
//! Where the processor has AVX-512, `arch::x86_64::masked` does all of this with one branch. The
//! [`Policy`](crate::Policy) says whether that wins, counting who reads what was stored.
//!
//! # What was tried
//!
//! Time over libc's (glibc 2.36, Zen 4), on a fleet's distributions or sizes drawn from a class;
//! the tables are in
//! `bench/record/2026-11-22-zen4-2cpu-copy`. Called:
//!
//! - seven stores for 0 to 16 bytes, without a branch: L1 0.50 instead of 0.59, LLC 2.1 instead of
//!   1.00;
//! - two stores and branches at 3 and 7: L1 0.83, LLC 0.84;
//! - memcpy with libc's own branches: L1 0.93 instead of 0.78, LLC 1.01 instead of 1.07;
//! - memset with a branch at 32: L1 0.92 instead of 0.88, LLC 1.03 instead of 1.09;
//! - memset by masks: 3.1 ns instead of 3.9, and 6.0 instead of 3.3 where the first 8 bytes are
//!   read next.
//!
//! Inlined:
//!
//! - memcpy without the branches at 8 and 32: L1 0.72 instead of 0.90, LLC 0.95 instead of 0.91;
//! - memmove with a branch at 32: L1 0.82 instead of 0.74, LLC as before;
//! - memset without the branch at 32: L1 0.75 instead of 0.81, cold 1.01 instead of 0.93.
//!
//! From the bottom up:
//!
//! - `word`: loads and stores of 1 to 16 bytes;
//! - `piece`: one class of sizes each;
//! - `inlined`: up to 64 bytes as code in the caller.

mod word;

mod piece;

pub(crate) mod inlined;

/// The largest size that is copied without a call.
pub(crate) const SMALL_MAX: usize = 64;

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
/// `target` is writable for `length` bytes, `length` is at most 64.
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

/// Where the second of four equal pieces of `HALF / 2` bytes starts so that the four cover
/// `HALF / 2 < length <= 2 * HALF` bytes: `HALF / 2` above `HALF`, else 0. `HALF` is a power of
/// two.
#[inline(always)]
pub(crate) fn inner_offset<const HALF: usize>(length: usize) -> usize {
    debug_assert!(length > HALF / 2 && length <= 2 * HALF);
    ((length - 1) & HALF) >> 1
}
