//! memcpy, memmove and memset with the C library's signatures. `libhaul` exports these functions,
//! and benchmarks compare them with the C library, call for call.
//!
//! Each function contains the code that the policy uses most, and jumps to the other code: the
//! function has no frame and makes no second call. The functions have their exported names
//! already in this crate, because a wrapper in `libhaul` would cost a jump through the global
//! offset table: this crate takes no part in link-time optimization.

use core::ffi::{c_int, c_void};

use crate::dispatch;
#[cfg(all(target_arch = "x86_64", any(windows, target_os = "uefi"), not(miri)))]
use crate::dispatch::by_masks::{copy, fill};
#[cfg(any(not(target_arch = "x86_64"), miri))]
use crate::dispatch::without_masks::{copy, fill};

/// Defines a function under its exported name. With the System V convention on x86-64, it is a
/// naked function with the body `$naked`. With any other convention, Windows' among them, it has
/// the body `$otherwise`.
macro_rules! exported {
    (
        $(#[$doc:meta])*
        $export:literal in $section:literal,
        fn $name:ident($target:ident, $argument:ident: $type:ty, $length:ident),
        naked: $naked:ident, otherwise: $otherwise:expr
    ) => {
        $(#[$doc])*
        #[cfg(all(target_arch = "x86_64", not(any(miri, windows, target_os = "uefi"))))]
        #[unsafe(naked)]
        #[unsafe(export_name = $export)]
        #[cfg_attr(target_os = "linux", unsafe(link_section = $section))]
        pub unsafe extern "C" fn $name(
            $target: *mut c_void,
            $argument: $type,
            $length: usize,
        ) -> *mut c_void {
            dispatch::by_masks::$naked!()
        }

        $(#[$doc])*
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, windows, target_os = "uefi")))))]
        #[inline(never)]
        #[unsafe(export_name = $export)]
        pub unsafe extern "C" fn $name(
            $target: *mut c_void,
            $argument: $type,
            $length: usize,
        ) -> *mut c_void {
            // SAFETY: the caller's promise.
            unsafe { $otherwise }
        }
    };
}

exported! {
    /// C's memcpy, with memmove's semantics. Returns `target`.
    ///
    /// # Safety
    /// `source` must be readable and `target` writable for `length` bytes.
    "haul_memcpy" in ".text.haul_memcpy",
    fn memcpy(target, source: *const c_void, length),
    naked: copy_body, otherwise: copy(target.cast(), source.cast(), length).cast()
}

exported! {
    /// C's memmove. Returns `target`.
    ///
    /// # Safety
    /// The conditions of [`memcpy`] apply.
    "haul_memmove" in ".text.haul_memmove",
    fn memmove(target, source: *const c_void, length),
    naked: copy_body, otherwise: copy(target.cast(), source.cast(), length).cast()
}

exported! {
    /// C's memset. Returns `target`.
    ///
    /// # Safety
    /// `target` must be writable for `length` bytes.
    "haul_memset" in ".text.haul_memset",
    fn memset(target, byte: c_int, length),
    naked: fill_body, otherwise: fill(target.cast(), byte, length).cast()
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
    unsafe { dispatch::copy_above_64_here(target.cast(), source.cast(), length).cast() }
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
    unsafe { dispatch::fill_above_64_here(target.cast(), byte, length).cast() }
}
