//! Copies and fills of up to 64 bytes that are inlined into the caller: the Rust functions and
//! `haul.h` use this shape.
//!
//! ```text
//! memcpy:   n <= 3, 4-7, 8-16, 17-32, 33-64
//! memmove:  n <= 3, 4-16,      17-64
//! memset:   n <= 3, 4-16,      17-32, 33-64
//! ```
//!
//! There is no call, no return and no register to save for the caller. With the branch-free shape
//! of [`copy`](super::copy), the time that inlining saves would only enlarge haul's lead in L1.
//! This code spends that time on branches, each of which saves stores and instructions, so that
//! copies beyond L2 are faster. A branch in the caller's code also has a separate history in the
//! branch predictor. [`super`] names the record; `ffi/c/inline.h` is the same code in C.

use super::{SMALL_MAX, piece};

/// memcpy of `length <= 64` bytes; the two may overlap in any way.
///
/// # Safety
/// The conditions of [`copy`](super::copy) apply.
#[inline(always)]
pub(crate) unsafe fn memcpy(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length > 16 {
            copy_17_to_64(target, source, length);
        } else if length >= 8 {
            piece::copy_8_to_16(target, source, length);
        } else if length >= 4 {
            piece::copy_4_to_8(target, source, length);
        } else {
            piece::copy_to_3(target, source, length);
        }
    }
}

/// memmove of `length <= 64` bytes. This memmove has two branches fewer than [`memcpy`]. Copies
/// by memcpy are longer: beyond L2, long calls of memcpy take nearly libc's time, so its short
/// calls have to be faster.
///
/// # Safety
/// The conditions of [`copy`](super::copy) apply.
#[inline(always)]
pub(crate) unsafe fn memmove(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length > 16 {
            piece::copy_17_to_64(target, source, length);
        } else if length >= 4 {
            piece::copy_4_to_16(target, source, length);
        } else {
            piece::copy_to_3(target, source, length);
        }
    }
}

/// memset of `length <= 64` bytes.
///
/// # Safety
/// The conditions of [`fill`](super::fill) apply.
#[inline(always)]
pub(crate) unsafe fn memset(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length > 16 {
            fill_17_to_64(target, byte, length);
        } else if length >= 4 {
            piece::fill_4_to_16(target, byte, length);
        } else {
            piece::fill_to_3(target, byte, length);
        }
    }
}

/// # Safety
/// The conditions of [`copy`](super::copy) apply, and `17 <= length <= 64`.
#[inline(always)]
unsafe fn copy_17_to_64(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length > 32 {
            piece::copy_32_to_64(target, source, length);
        } else {
            piece::copy_16_to_32(target, source, length);
        }
    }
}

/// # Safety
/// The conditions of [`fill`](super::fill) apply, and `17 <= length <= 64`.
#[inline(always)]
unsafe fn fill_17_to_64(target: *mut u8, byte: u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length > 32 {
            piece::fill_32_to_64(target, byte, length);
        } else {
            piece::fill_16_to_32(target, byte, length);
        }
    }
}
