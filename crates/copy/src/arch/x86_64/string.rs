//! `rep movsb` and `rep stosb`: the microcode's own loop.
//!
//! These string instructions are fast on Intel processors since Ivy Bridge from a few KiB up to
//! the last-level cache. They are slow on AMD Zen 3 and 4 if target and source have different
//! offsets in a cache line. The default policies of `policy::rows` take this into account.
//! Registers copy the start, so that the string instruction starts at a line boundary of the
//! target.

use core::arch::asm;

use super::sse2::{self, Xmm};
use crate::arch::Line;
use crate::arch::generic::BLOCK_MAX;
use crate::arch::line::LINE;

/// memmove by `rep movsb`. Copies that overlap or are at most 256 bytes long use registers.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    let apart = target.addr().abs_diff(source.addr()) >= length;
    if length <= BLOCK_MAX || !apart {
        // SAFETY: the caller's promise; SSE2 is part of x86-64.
        return unsafe { sse2::copy(target, source, length) };
    }
    let beyond = target.addr() & (LINE - 1);
    if beyond == 0 {
        // An aligned target needs no head: in a ring between two cores of Cascade Lake, strings of
        // 8 to 16 KiB that begin after the first line take 5 to 20% longer at either end.
        //
        // SAFETY: the caller's promise; the two do not overlap, and the direction flag is clear by
        // the calling convention.
        unsafe {
            asm!(
                "rep movsb",
                inout("rdi") target => _,
                inout("rsi") source => _,
                inout("rcx") length => _,
                options(nostack, preserves_flags),
            );
        }
        return crate::arch::same(target);
    }
    let skew = LINE - beyond;
    // SAFETY: 1 <= skew < 64 < length. The head is loaded before and stored after the string copy
    // whose target starts inside it; the two do not overlap the source. The direction flag is
    // clear by the calling convention.
    unsafe {
        let head = Xmm::load(source);
        asm!(
            "rep movsb",
            inout("rdi") target.add(skew) => _,
            inout("rsi") source.add(skew) => _,
            inout("rcx") length - skew => _,
            options(nostack, preserves_flags),
        );
        head.store(target);
    }
    crate::arch::same(target)
}

/// memset by `rep stosb`. Fills of at most 256 bytes use registers.
///
/// # Safety
/// `target` must be writable for `length` bytes.
pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    if length <= BLOCK_MAX {
        // SAFETY: the caller's promise; SSE2 is part of x86-64.
        return unsafe { sse2::fill(target, byte, length) };
    }
    let byte = crate::arch::low_byte(byte);
    let skew = LINE - (target.addr() & (LINE - 1));
    // SAFETY: as in `copy`.
    unsafe {
        Xmm::splat(byte).store(target);
        asm!(
            "rep stosb",
            inout("rdi") target.add(skew) => _,
            inout("rcx") length - skew => _,
            in("al") byte,
            options(nostack, preserves_flags),
        );
    }
    crate::arch::same(target)
}
