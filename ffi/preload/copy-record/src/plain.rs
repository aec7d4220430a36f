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
        unsafe { haul_copy::early::copy(target, source, size) };
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
        unsafe { haul_copy::early::fill(target, byte, size) };
    }
}
