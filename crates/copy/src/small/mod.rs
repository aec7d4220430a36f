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
//! how many calls the processor has in flight. [`inlined`] has no call to pay for, and its memcpy and
//! memset branch at 32, where two of the four stores are saved; its memcpy at 8 too.
//!
//! All loads come before all stores, so overlap needs no thought. Where addresses are computed the
//! widest store comes last: a program that loads the target's first 2, 4 or 8 bytes right after the
//! copy is served by one store (store-to-load forwarding).
//!
//! # What was tried: called
//!
//! Time over libc's (glibc 2.36, Zen 4) on sizes of 0 to 16 bytes:
//!
//! | stores | branches up to 16 bytes | L1 | LLC |
//! |---|---|---|---|
//! | 2 or 3, as above | at 3 | 0.59 | 1.00 |
//! | 4, two of 4 and two of 8 bytes | at 3 | 0.54 | 1.03 |
//! | 7, bytes as well | none | 0.50 | 2.1 |
//! | 2 | at 3 and 7 | 0.83 | 0.84 |
//!
//! Beyond L2, ten register moves in vain in each call cost 12 to 20%, one store in vain 4 to 6%;
//! prefetching the target for writing changes nothing. So a choice without a branch is paid beyond L2
//! and a branch is paid in L1, and no shape tried is the better one in both. Over libc's time on the
//! size distributions of a fleet (geometric means of ten each), and on sizes drawn evenly from a class:
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
//! Masked stores of AVX-512 need neither branch nor store in vain, ns a call on Zen 4, but are not forwarded
//! to loads (glibc 2.36 fills by them where it can: 3.0, 3.3, 6.0):
//!
//! | memset | 0-16, L1 | 17-64, L1 | 0-16, then the first 8 bytes read |
//! |---|---|---|---|
//! | as above | 3.9 | 3.2 | 3.3 |
//! | two of 32 bytes | 3.1 | 2.8 | 6.0 |
//! | one of 64 bytes | 2.8 | 2.5 | - |
//!
//! # What was tried: inlined
//!
//! Time over libc's: geometric mean over ten distributions of a fleet and the worst of them, the rows of a
//! table measured in turns (Zen 4, glibc 2.36, 2026-11-22). All have a branch at 128 as well
//! (`generic::copy_65_to_256_branching`).
//!
//! | memcpy branches | L1 | LLC | cold | mixed |
//! |---|---|---|---|---|
//! | as what is called, at 3 and 16 | 0.72, 0.82 | 0.95, 0.99 | 1.00, 1.01 | 0.96, 0.99 |
//! | at 8 too | 0.82, 0.91 | 0.94, 0.97 | 0.99, 1.01 | 0.94, 0.98 |
//! | at 32 too | 0.77, 0.85 | 0.92, 0.97 | 0.99, 1.01 | 0.93, 0.97 |
//! | at 8 and 32, as [`inlined`] has it | 0.90, 0.97 | 0.91, 0.95 | 0.98, 1.00 | 0.92, 0.96 |
//!
//! | memmove branches | L1 | LLC | cold | mixed |
//! |---|---|---|---|---|
//! | as what is called, as [`inlined`] has it | 0.74, 0.79 | 0.93, 0.95 | 0.97, 0.99 | 0.92, 0.95 |
//! | at 32 too | 0.82, 0.89 | 0.93, 0.96 | 0.97, 0.98 | 0.93, 0.97 |
//!
//! | memset branches | L1 | LLC | cold | mixed |
//! |---|---|---|---|---|
//! | as what is called | 0.75, 0.94 | - | 1.01, 1.10 | - |
//! | at 32 too, as [`inlined`] has it | 0.81, 0.96 | 0.83, 0.96 | 0.93, 0.96 | 0.88, 0.97 |
//!
//! memcpy would gain most in L1 by its branch at 8, and lose there beyond L2 where its calls, which are
//! the longest, are least ahead. Three stores of a byte up to 3 gave nothing anywhere.
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
/// `HALF / 2 < length <= 2 * HALF` bytes: `HALF / 2` above `HALF`, else 0. `HALF` is a power of two.
#[inline(always)]
pub(crate) fn inner_offset<const HALF: usize>(length: usize) -> usize {
    debug_assert!(length > HALF / 2 && length <= 2 * HALF);
    ((length - 1) & HALF) >> 1
}
