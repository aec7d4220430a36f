//! memcpy and related functions, under libc's names and with libc's contracts; memcpy is memmove.
//!
//! Each exported function adds its return address as a last argument, and jumps to the code.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use haul_model::stream::recording::Kind;

use crate::plain;
use crate::recorder::{self, Ended};

unsafe extern "C" {
    /// Reports an overflow and aborts, for the functions with a check.
    fn __chk_fail() -> !;
}

/// Exports functions that pass on their arguments and their return address, as the argument in the
/// named registers, to `$code`.
macro_rules! exported {
    ($x86:literal, $aarch64:literal: $($name:ident => $code:ident,)*) => {$(
        /// # Safety
        /// The obligations of libc's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                concat!("mov ", $x86, ", qword ptr [rsp]"),
                "jmp {code}",
                code = sym $code
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(concat!("mov ", $aarch64, ", x30"), "b {code}", code = sym $code);
        }
    )*};
}

exported! { "rdx", "x2":
    bzero => bzero_from,
    __bzero => bzero_from,
    explicit_bzero => bzero_from,
}

exported! { "rcx", "x3":
    memcpy => memcpy_from,
    memmove => memmove_from,
    mempcpy => mempcpy_from,
    __mempcpy => mempcpy_from,
    memset => memset_from,
    bcopy => bcopy_from,
    __explicit_bzero_chk => bzero_chk_from,
}

exported! { "r8", "x4":
    __memcpy_chk => memcpy_chk_from,
    __memmove_chk => memmove_chk_from,
    __mempcpy_chk => mempcpy_chk_from,
    __memset_chk => memset_chk_from,
}

type Site = *const u8;

/// Copies and records.
///
/// # Safety
/// `source` must be readable and `target` writable for `size` bytes.
#[inline(always)]
unsafe fn copy(kind: Kind, target: *mut u8, source: *const u8, size: usize, site: Site) {
    let started = recorder::start();
    // SAFETY: the caller's promise.
    unsafe { plain::copy(target, source, size) };
    recorder::record(Ended { kind, target, source, size, site, started });
}

/// Fills and records.
///
/// # Safety
/// `target` must be writable for `size` bytes.
#[inline(always)]
unsafe fn fill(target: *mut u8, byte: c_int, size: usize, site: Site) {
    // memset uses the lowest eight bits.
    let byte = byte as u8;
    let started = recorder::start();
    // SAFETY: the caller's promise.
    unsafe { plain::fill(target, byte, size) };
    let (kind, source) = (if byte == 0 { Kind::ZERO } else { Kind::FILL }, core::ptr::null());
    recorder::record(Ended { kind, target, source, size, site, started });
}

/// Ends the process as libc does if the target is smaller than the call.
#[inline(always)]
fn check(size: usize, target_bytes: usize) {
    if target_bytes < size {
        // SAFETY: the call has no conditions.
        unsafe { __chk_fail() };
    }
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memcpy_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    site: Site,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(Kind::MEMCPY, target.cast(), source.cast(), size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memmove_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    site: Site,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(Kind::MEMMOVE, target.cast(), source.cast(), size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn mempcpy_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    site: Site,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(Kind::MEMCPY, target.cast(), source.cast(), size, site) };
    target.wrapping_byte_add(size)
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn bcopy_from(
    source: *const c_void,
    target: *mut c_void,
    size: usize,
    site: Site,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(Kind::MEMMOVE, target.cast(), source.cast(), size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memset_from(
    target: *mut c_void,
    byte: c_int,
    size: usize,
    site: Site,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { fill(target.cast(), byte, size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn bzero_from(target: *mut c_void, size: usize, site: Site) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { fill(target.cast(), 0, size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn bzero_chk_from(
    target: *mut c_void,
    size: usize,
    target_bytes: usize,
    site: Site,
) -> *mut c_void {
    check(size, target_bytes);
    // SAFETY: the caller's promise.
    unsafe { fill(target.cast(), 0, size, site) };
    target
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memcpy_chk_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    target_bytes: usize,
    site: Site,
) -> *mut c_void {
    check(size, target_bytes);
    // SAFETY: the caller's promise.
    unsafe { memcpy_from(target, source, size, site) }
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memmove_chk_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    target_bytes: usize,
    site: Site,
) -> *mut c_void {
    check(size, target_bytes);
    // SAFETY: the caller's promise.
    unsafe { memmove_from(target, source, size, site) }
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn mempcpy_chk_from(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    target_bytes: usize,
    site: Site,
) -> *mut c_void {
    check(size, target_bytes);
    // SAFETY: the caller's promise.
    unsafe { mempcpy_from(target, source, size, site) }
}

/// # Safety
/// The obligations of libc's function.
unsafe extern "C" fn memset_chk_from(
    target: *mut c_void,
    byte: c_int,
    size: usize,
    target_bytes: usize,
    site: Site,
) -> *mut c_void {
    check(size, target_bytes);
    // SAFETY: the caller's promise.
    unsafe { memset_from(target, byte, size, site) }
}
