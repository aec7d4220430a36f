//! Copies and fills through C if small copies do not use masks, or if a mask would be slow at an
//! address.

use crate::small;

/// The body of memcpy and memmove if they do not use masks.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length <= small::SMALL_MAX {
            small::copy(target, source, length);
            crate::arch::same(target)
        } else {
            super::copy_above_64_here(target, source, length)
        }
    }
}

/// The body of memset if it does not use masks.
///
/// # Safety
/// `target` must be writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length <= small::SMALL_MAX {
            small::fill(target, crate::arch::low_byte(byte), length);
            crate::arch::same(target)
        } else {
            super::fill_above_64_here(target, byte, length)
        }
    }
}
