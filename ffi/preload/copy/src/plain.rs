//! The copies and fills themselves.

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether this library is relocated, so that haul's kernels may read their tables.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Lets the functions here use haul's kernels. The constructor calls it.
pub(crate) fn is_relocated() {
    IS_READY.store(true, Ordering::Release);
}

/// Copies bytes, which may overlap.
///
/// # Safety
/// `source` must be readable and `target` writable for `size` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, size: usize) {
    if IS_READY.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        unsafe { haul_copy::memmove(target, source, size) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_early(target, source, size) };
    }
}

/// Sets bytes.
///
/// # Safety
/// `target` must be writable for `size` bytes.
#[inline(always)]
pub(crate) unsafe fn fill(target: *mut u8, byte: u8, size: usize) {
    if IS_READY.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        unsafe { haul_copy::memset(target, byte, size) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { fill_early(target, byte, size) };
    }
}

/// # Safety
/// The conditions of [`copy`] apply.
#[cfg(target_arch = "x86_64")]
#[cold]
unsafe fn copy_early(target: *mut u8, source: *const u8, size: usize) {
    if target.addr().wrapping_sub(source.addr()) >= size {
        // SAFETY: the caller's promise. Upwards, no byte of the source is overwritten before it is
        // read. The direction flag is clear, as the ABI demands.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") size => _, inout("rdi") target => _, inout("rsi") source => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    let last = size.wrapping_sub(1);
    let (target, source) = (target.wrapping_add(last), source.wrapping_add(last));
    // SAFETY: the caller's promise; downwards from the last byte. The flag is cleared again.
    unsafe {
        core::arch::asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rcx") size => _, inout("rdi") target => _, inout("rsi") source => _,
            options(nostack)
        );
    }
}

/// # Safety
/// The conditions of [`fill`] apply.
#[cfg(target_arch = "x86_64")]
#[cold]
unsafe fn fill_early(target: *mut u8, byte: u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") size => _, inout("rdi") target => _, in("al") byte,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// The conditions of [`copy`] apply.
#[cfg(not(target_arch = "x86_64"))]
#[cold]
unsafe fn copy_early(target: *mut u8, source: *const u8, size: usize) {
    let is_upwards = target.addr().wrapping_sub(source.addr()) >= size;
    for index in 0..size {
        let at = if is_upwards { index } else { size - 1 - index };
        let source = source.wrapping_add(at);
        // SAFETY: the caller's promise, because `at` is below `size`. The access is volatile, so
        // that the loop does not become a call of memcpy.
        let byte = unsafe { source.read_volatile() };
        // SAFETY: as above.
        unsafe { target.wrapping_add(at).write_volatile(byte) };
    }
}

/// # Safety
/// The conditions of [`fill`] apply.
#[cfg(not(target_arch = "x86_64"))]
#[cold]
unsafe fn fill_early(target: *mut u8, byte: u8, size: usize) {
    for at in 0..size {
        // SAFETY: the caller's promise; volatile as in the copy.
        unsafe { target.wrapping_add(at).write_volatile(byte) };
    }
}
