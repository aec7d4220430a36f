//! Copies and fills that read no table, no threshold and no choice, for code that runs before the
//! dynamic linker has relocated its library.
//!
//! A preloaded memcpy can be called that early: the dynamic linker calls resolvers of symbols in
//! one library before it relocates the next. The functions are inlined into their callers, because
//! a call into another crate goes through a table that is not relocated yet.
//!
//! ```
//! let (mut target, source) = ([0; 5], *b"early");
//! // SAFETY: both are five bytes long.
//! unsafe { haul_copy::early::copy(target.as_mut_ptr(), source.as_ptr(), 5) };
//! assert_eq!(target, source);
//! // SAFETY: the target is five bytes long.
//! unsafe { haul_copy::early::fill(target.as_mut_ptr(), b'x', 5) };
//! assert_eq!(target, *b"xxxxx");
//! ```

/// Copies bytes, which may overlap. Cost: the processor's string instruction, or a loop over
/// bytes.
///
/// # Safety
/// `source` must be readable and `target` writable for `size` bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub unsafe fn copy(target: *mut u8, source: *const u8, size: usize) {
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

/// Sets bytes.
///
/// # Safety
/// `target` must be writable for `size` bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub unsafe fn fill(target: *mut u8, byte: u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "rep stosb",
            inout("rcx") size => _, inout("rdi") target => _, in("al") byte,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies bytes, which may overlap. Cost: a loop over bytes.
///
/// # Safety
/// `source` must be readable and `target` writable for `size` bytes.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline(always)]
pub unsafe fn copy(target: *mut u8, source: *const u8, size: usize) {
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

/// Sets bytes.
///
/// # Safety
/// `target` must be writable for `size` bytes.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline(always)]
pub unsafe fn fill(target: *mut u8, byte: u8, size: usize) {
    for at in 0..size {
        // SAFETY: the caller's promise; volatile as in the copy.
        unsafe { target.wrapping_add(at).write_volatile(byte) };
    }
}
