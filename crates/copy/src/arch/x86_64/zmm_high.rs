//! AVX-512's lines in zmm16 to zmm31, for sizes above the limit of small copies and fills with
//! masks.
//!
//! The compiler would choose zmm0 to zmm15, whose lower parts SSE uses, and end with
//! `vzeroupper`. `vzeroupper` adds four operations to the critical path of a call whose size was
//! mispredicted. For packet sizes (64, 594 and 1,518 bytes) in L1 on Emerald Rapids, copies in
//! the compiler's registers, reached through two jumps, take 1.03 of glibc's time, and the copies
//! here take 0.99; fills take 1.11 and 1.01.

use core::arch::asm;

use crate::arch::line::LINE;
use crate::small;

/// Lines in one step of a loop.
const STEP: usize = 4 * LINE;

/// The largest copy in bytes that is a block without a loop.
pub(crate) const BLOCK_MAX: usize = 8 * LINE;

/// memmove of 65 to 256 bytes, without a branch.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, which must be in that range.
/// The processor must have AVX-512 F.
#[inline(always)]
pub(crate) unsafe fn copy_65_to_256(target: *mut u8, source: *const u8, length: usize) {
    let inner = small::inner_offset::<128>(length);
    // SAFETY: as in `generic::copy_65_to_256`. Only clobbered registers are written.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, zmmword ptr [{source}]",
            "vmovdqu64 zmm17, zmmword ptr [{source} + {inner}]",
            "vmovdqu64 zmm18, zmmword ptr [{source} + {outer} - 64]",
            "vmovdqu64 zmm19, zmmword ptr [{source} + {length} - 64]",
            "vmovdqu64 zmmword ptr [{target}], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {inner}], zmm17",
            "vmovdqu64 zmmword ptr [{target} + {outer} - 64], zmm18",
            "vmovdqu64 zmmword ptr [{target} + {length} - 64], zmm19",
            inner = in(reg) inner, outer = in(reg) length - inner, length = in(reg) length,
            source = in(reg) source, target = in(reg) target,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack, preserves_flags),
        );
    }
}

/// memmove of 257 to 512 bytes, without a branch.
///
/// # Safety
/// The conditions of [`copy_65_to_256`] apply, with this function's range of `length`.
#[inline(always)]
pub(crate) unsafe fn copy_257_to_512(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length > STEP && length <= BLOCK_MAX);
    // SAFETY: the first four lines and the last four of `length` bytes, which are more than four
    // lines and at most eight: they lie inside it and cover it. Loads precede stores. Only
    // clobbered registers are written.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, zmmword ptr [{source}]",
            "vmovdqu64 zmm17, zmmword ptr [{source} + 64]",
            "vmovdqu64 zmm18, zmmword ptr [{source} + 128]",
            "vmovdqu64 zmm19, zmmword ptr [{source} + 192]",
            "vmovdqu64 zmm20, zmmword ptr [{source} + {length} - 256]",
            "vmovdqu64 zmm21, zmmword ptr [{source} + {length} - 192]",
            "vmovdqu64 zmm22, zmmword ptr [{source} + {length} - 128]",
            "vmovdqu64 zmm23, zmmword ptr [{source} + {length} - 64]",
            "vmovdqu64 zmmword ptr [{target}], zmm16",
            "vmovdqu64 zmmword ptr [{target} + 64], zmm17",
            "vmovdqu64 zmmword ptr [{target} + 128], zmm18",
            "vmovdqu64 zmmword ptr [{target} + 192], zmm19",
            "vmovdqu64 zmmword ptr [{target} + {length} - 256], zmm20",
            "vmovdqu64 zmmword ptr [{target} + {length} - 192], zmm21",
            "vmovdqu64 zmmword ptr [{target} + {length} - 128], zmm22",
            "vmovdqu64 zmmword ptr [{target} + {length} - 64], zmm23",
            length = in(reg) length, source = in(reg) source, target = in(reg) target,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies more than [`BLOCK_MAX`] bytes upward: `generic::forward` with a head of one line.
///
/// # Safety
/// The conditions of [`copy_65_to_256`] apply, with this function's range of `length`, and the
/// target must not start inside the source.
#[inline(always)]
pub(crate) unsafe fn copy_forward(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length > BLOCK_MAX);
    let at = LINE - (target.addr() & (LINE - 1));
    // SAFETY: as `generic::forward`: head and tail are loaded first and lie inside; `at` starts
    // at most at 64, where the head ends, which is below length - 256, and the loop continues
    // while `at` is below that, so each step ends below `length`; target + at is a multiple of
    // 64. A step completes its loads before it stores, and stores only below what later steps
    // load. Only clobbered registers are written.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, zmmword ptr [{source}]",
            "vmovdqu64 zmm17, zmmword ptr [{source} + {tail}]",
            "vmovdqu64 zmm18, zmmword ptr [{source} + {tail} + 64]",
            "vmovdqu64 zmm19, zmmword ptr [{source} + {tail} + 128]",
            "vmovdqu64 zmm20, zmmword ptr [{source} + {tail} + 192]",
            ".p2align 4",
            "2:",
            "vmovdqu64 zmm21, zmmword ptr [{source} + {at}]",
            "vmovdqu64 zmm22, zmmword ptr [{source} + {at} + 64]",
            "vmovdqu64 zmm23, zmmword ptr [{source} + {at} + 128]",
            "vmovdqu64 zmm24, zmmword ptr [{source} + {at} + 192]",
            "vmovdqa64 zmmword ptr [{target} + {at}], zmm21",
            "vmovdqa64 zmmword ptr [{target} + {at} + 64], zmm22",
            "vmovdqa64 zmmword ptr [{target} + {at} + 128], zmm23",
            "vmovdqa64 zmmword ptr [{target} + {at} + 192], zmm24",
            "add {at}, 256",
            "cmp {at}, {tail}",
            "jb 2b",
            "vmovdqu64 zmmword ptr [{target} + {tail}], zmm17",
            "vmovdqu64 zmmword ptr [{target} + {tail} + 64], zmm18",
            "vmovdqu64 zmmword ptr [{target} + {tail} + 128], zmm19",
            "vmovdqu64 zmmword ptr [{target} + {tail} + 192], zmm20",
            "vmovdqu64 zmmword ptr [{target}], zmm16",
            at = inout(reg) at => _, tail = in(reg) length - STEP,
            source = in(reg) source, target = in(reg) target,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _,
            out("zmm21") _, out("zmm22") _, out("zmm23") _, out("zmm24") _,
            options(nostack),
        );
    }
}

/// Fills the first four and the last four lines, which is the whole target up to [`BLOCK_MAX`]
/// bytes. This function runs before the branch at [`BLOCK_MAX`], which is mispredicted if sizes
/// vary: sizes of packets in L1 take 0.97 of the time that one line and a loop take (Xeon of
/// family 6, model 167).
///
/// # Safety
/// `target` must be writable for `length` bytes, which must be at least [`STEP`]. The processor
/// must have AVX-512 BW.
#[inline(always)]
pub(crate) unsafe fn fill_ends(target: *mut u8, byte: i32, length: usize) {
    debug_assert!(length >= STEP);
    // SAFETY: a step at either end lies inside `length` bytes, which are at least one step. Only
    // clobbered registers are written.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "vmovdqu64 zmmword ptr [{target}], zmm16",
            "vmovdqu64 zmmword ptr [{target} + 64], zmm16",
            "vmovdqu64 zmmword ptr [{target} + 128], zmm16",
            "vmovdqu64 zmmword ptr [{target} + 192], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {length} - 256], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {length} - 192], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {length} - 128], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {length} - 64], zmm16",
            length = in(reg) length, target = in(reg) target, byte = in(reg) byte,
            out("zmm16") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Fills, in whole lines, the middle that [`fill_ends`] leaves of a target of more than
/// [`BLOCK_MAX`] bytes.
///
/// # Safety
/// `target` must be writable for `length` bytes, which must be more than [`BLOCK_MAX`]. The
/// processor must have AVX-512 BW.
#[inline(always)]
pub(crate) unsafe fn fill_between(target: *mut u8, byte: i32, length: usize) {
    debug_assert!(length > BLOCK_MAX);
    // SAFETY: the loop starts at the last multiple of 64 in the first step, or right after that
    // step, which is below the start of the last step. The loop continues while `at` is below
    // that start, so each step ends below `length`. Only clobbered registers are written.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "and {at}, -64",
            ".p2align 4",
            "2:",
            "vmovdqa64 zmmword ptr [{at}], zmm16",
            "vmovdqa64 zmmword ptr [{at} + 64], zmm16",
            "vmovdqa64 zmmword ptr [{at} + 128], zmm16",
            "vmovdqa64 zmmword ptr [{at} + 192], zmm16",
            "add {at}, 256",
            "cmp {at}, {tail}",
            "jb 2b",
            at = inout(reg) target.add(STEP) => _, tail = in(reg) target.add(length - STEP),
            byte = in(reg) byte,
            out("zmm16") _,
            options(nostack),
        );
    }
}
