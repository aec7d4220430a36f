//! Up to 64 bytes as code in the caller: what the Rust functions and `haul.h` become.
//!
//! ```text
//! memcpy:   n <= 3, 4-7, 8-16, 17-32, 33-64
//! memmove:  n <= 3, 4-16,      17-64
//! memset:   n <= 3, 4-16,      17-32, 33-64
//! ```
//!
//! No call, no return and no register kept for the caller: that is time which the branch-free shape
//! of [`copy`](super::copy) would only turn into a larger lead in L1. It is spent on branches here,
//! each of which saves stores and instructions beyond L2. A branch in the caller's code also has
//! the history of that place alone. The tables are in [`super`]; `ffi/c/inline.h` is the same in C.

use super::{SMALL_MAX, piece};

/// memcpy of `length <= 64` bytes; the two may overlap in any way.
///
/// # Safety
/// As [`copy`](super::copy).
#[inline(always)]
pub(crate) unsafe fn memcpy(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise, and the length that each asks for.
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

/// memmove of `length <= 64` bytes. Two branches fewer than [`memcpy`], whose calls are longer:
/// beyond L2 the long ones take nearly libc's time, and the short ones have to make up for it.
///
/// # Safety
/// As [`copy`](super::copy).
#[inline(always)]
pub(crate) unsafe fn memmove(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise, and the length that each asks for.
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
/// As [`fill`](super::fill).
#[inline(always)]
pub(crate) unsafe fn memset(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller's promise, and the length that each asks for.
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
/// As [`copy`](super::copy), and `17 <= length <= 64`.
#[inline(always)]
unsafe fn copy_17_to_64(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    // SAFETY: the caller's promise, and the length that each asks for.
    unsafe {
        if length > 32 {
            piece::copy_32_to_64(target, source, length);
        } else {
            piece::copy_16_to_32(target, source, length);
        }
    }
}

/// # Safety
/// As [`fill`](super::fill), and `17 <= length <= 64`.
#[inline(always)]
unsafe fn fill_17_to_64(target: *mut u8, byte: u8, length: usize) {
    debug_assert!(length <= SMALL_MAX);
    // SAFETY: the caller's promise, and the length that each asks for.
    unsafe {
        if length > 32 {
            piece::fill_32_to_64(target, byte, length);
        } else {
            piece::fill_16_to_32(target, byte, length);
        }
    }
}
