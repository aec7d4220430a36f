//! Copies and fills through C where small ones do not go by masks, or where a mask would be slow.

use crate::small;

/// The text of memcpy and memmove where they do not go by masks. Apart from them where they may, as
/// [`fill`].
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
#[cfg_attr(all(target_arch = "x86_64", not(miri)), cold, inline(never))]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), inline(always))]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the length that each asks for.
    unsafe {
        if length <= small::SMALL_MAX {
            small::copy(target, source, length);
            crate::arch::same(target)
        } else {
            super::copy_above_64_here(target, source, length)
        }
    }
}

/// The text of memset where it does not go by masks. Apart from it where it may, so that masks
/// follow without a branch that is taken: 2% of up to 16 bytes, and 8% of a service's sizes.
///
/// # Safety
/// `target` is writable for `length` bytes.
#[cfg_attr(all(target_arch = "x86_64", not(miri)), cold, inline(never))]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), inline(always))]
pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the length that each asks for.
    unsafe {
        if length <= small::SMALL_MAX {
            small::fill(target, crate::arch::low_byte(byte), length);
            crate::arch::same(target)
        } else {
            super::fill_above_64_here(target, byte, length)
        }
    }
}
