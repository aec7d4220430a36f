//! memcpy, memmove and memset with the C library's signatures. `libhaul` exports these functions,
//! and benchmarks compare them with the C library, call for call.
//!
//! Each function contains the code that the policy uses most, and jumps to the other code: the
//! function has no frame and makes no second call. The functions have their exported names
//! already in this crate, because a wrapper in `libhaul` would cost a jump through the global
//! offset table: this crate takes no part in link-time optimization.

use core::ffi::{c_int, c_void};

use crate::dispatch;

/// C's memcpy, with memmove's semantics. Returns `target`.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
#[inline(never)]
#[unsafe(export_name = "haul_memcpy")]
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", not(miri)),
    unsafe(link_section = ".text.haul_memcpy")
)]
pub unsafe extern "C" fn memcpy(
    target: *mut c_void,
    source: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy_here(target.cast(), source.cast(), length).cast() }
}

/// C's memmove. Returns `target`.
///
/// # Safety
/// The conditions of [`memcpy`] apply.
#[inline(never)]
#[unsafe(export_name = "haul_memmove")]
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", not(miri)),
    unsafe(link_section = ".text.haul_memmove")
)]
pub unsafe extern "C" fn memmove(
    target: *mut c_void,
    source: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy_here(target.cast(), source.cast(), length).cast() }
}

/// C's memset. Returns `target`.
///
/// # Safety
/// `target` must be writable for `length` bytes.
#[inline(never)]
#[unsafe(export_name = "haul_memset")]
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", not(miri)),
    unsafe(link_section = ".text.haul_memset")
)]
pub unsafe extern "C" fn memset(target: *mut c_void, byte: c_int, length: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return dispatch::by_masks::fill_by_policy(target.cast(), byte, length).cast();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        dispatch::without_masks::fill(target.cast(), byte, length).cast()
    }
}

/// The function that the inline code of `haul.h` calls above 64 bytes. Returns `target`.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, and `length` must be above
/// 64.
#[inline(never)]
#[unsafe(export_name = "haul_memmove_above_64")]
pub unsafe extern "C" fn memmove_above_64(
    target: *mut c_void,
    source: *const c_void,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { dispatch::copy_above_64_branching(target.cast(), source.cast(), length).cast() }
}

/// The function that the inline code of `haul.h` calls above 64 bytes. Returns `target`.
///
/// # Safety
/// `target` must be writable for `length` bytes, and `length` must be above 64.
#[inline(never)]
#[unsafe(export_name = "haul_memset_above_64")]
pub unsafe extern "C" fn memset_above_64(
    target: *mut c_void,
    byte: c_int,
    length: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { dispatch::fill_above_64_branching(target.cast(), byte, length).cast() }
}

/// The body of memcpy and of memmove. It is inlined into both functions, which saves a jump from
/// one to the other.
///
/// # Safety
/// The conditions of [`memcpy`] apply.
#[inline(always)]
unsafe fn copy_here(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return dispatch::by_masks::copy_by_policy(target, source, length);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        dispatch::without_masks::copy(target, source, length)
    }
}
