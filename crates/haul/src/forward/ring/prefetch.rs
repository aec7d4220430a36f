//! Lines of the caches asked for early.

use std::ptr::NonNull;

/// A line of the caches of x86-64 and of most others.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the line that `at` stands in, to read it.
#[inline(always)]
pub(crate) fn to_read(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, changes no memory, and uses no stack and no flags.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Asks for the line that `at` stands in, to read it once: it comes to the first cache alone.
#[inline(always)]
pub(crate) fn to_read_once(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prefetchnta [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}

/// Asks for the line that `at` stands in, to write it: it goes from the other side's cache.
#[inline(always)]
pub(crate) fn to_write(at: NonNull<u8>) {
    let at = at.as_ptr();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above; processors without this one do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = at;
}
