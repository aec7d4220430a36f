//! Copies and fills where small ones go by masks: any size, so that a caller has nothing to decide.
//!
//! Up to 127 and 255 bytes there is one branch on the size, beside one that is taken close to a
//! page's end. Longer ones are here too, down to the loop, where the policy has AVX-512: a jump
//! to it waits behind the branch that was mispredicted.
//!
//! Where data comes from beyond L2, what counts is how many calls are in flight, and those are
//! limited by what every instruction with a result takes: four `nop` cost nothing there, four such
//! instructions 7%. So there are as few as can be: flags come from what is computed anyway, limits
//! are constants (each load took 3%), and the ends of pages are found by three.

use core::sync::atomic::Ordering;

use super::{copy_otherwise, fill_otherwise, x86_64};
use crate::arch::x86_64::masked::Fill;
use crate::arch::x86_64::{masked, zmm_high};
use crate::cpu::Isa;
use crate::policy::{CHOSEN, MASKS};
use crate::small;
use crate::thresholds::{copies_by_registers, fills_by_registers};

/// memmove of any length.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes; a policy with masks is in force.
#[inline(never)]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_here(target, source, length) }
}

/// [`copy`] again, for what `libhaul` exports, which jumps here straight: callers in Rust look up
/// the address of theirs in a table. The comment keeps the compiler from making them one.
///
/// # Safety
/// As [`copy`].
#[inline(never)]
pub(crate) unsafe extern "C" fn copy_exported(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: a comment does nothing; and the caller's promise.
    unsafe {
        core::arch::asm!("/* exported */", options(nomem, nostack, preserves_flags));
        copy_here(target, source, length)
    }
}

// A function begins at a multiple of 16 bytes, and where in a line that is was luck: the same
// instructions took a fleet's fills in L1 0.92 of libc's time at 32, 0.87 at 48 and 0.84 at 0,
// where they are now (Emerald Rapids).
#[cfg(all(target_os = "linux", not(miri)))]
core::arch::global_asm!(
    ".pushsection .text.haul_masked_fill, \"ax\", @progbits",
    ".p2align 6, 0xcc",
    ".popsection",
);

/// memset of any length.
///
/// # Safety
/// `target` is writable for `length` bytes; a policy with masks is in force.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_fill"))]
pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_here(target, byte, length) }
}

/// [`copy`] as code in the caller: its instructions are assembly, which asks for no feature of the
/// function that it stands in. A jump to [`copy`] costs what `libhaul` exports a cycle or two.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_here(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise: masks are in force only where the processor has their
    // features; and the lengths that each asks for.
    unsafe {
        if length <= masked::ONE_COPY_MAX {
            if !masked::are_ends_fast(target, source) {
                return copy_by_pieces(target, source, length);
            }
            masked::copy_to_32(target, source, length);
        } else if length <= masked::COPY_MAX {
            masked::copy_33_to_127(target, source, length);
        } else {
            return copy_long(target, source, length);
        }
    }
    crate::arch::same(target)
}

/// [`fill`] as code in the caller.
///
/// # Safety
/// As [`fill`].
#[inline(always)]
pub(crate) unsafe fn fill_here(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: as in the copy.
    unsafe {
        match masked::fill_to_255(target, byte, length) {
            Fill::Done => crate::arch::same(target),
            Fill::Long => fill_long(target, byte, length),
            Fill::AtPageEnd => fill_by_pieces(target, byte, length),
        }
    }
}

/// Of a policy that another thread replaces meanwhile, either is right.
#[inline(always)]
unsafe fn copy_long(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    if CHOSEN.load(Ordering::Relaxed) != MASKS | Isa::Avx512 as u8 {
        // SAFETY: the caller's promise.
        return unsafe { copy_longer(target, source, length) };
    }
    // One comparison for both "the target starts inside the source" and, by wrapping, "it does
    // not": see `generic::copy_above_256`.
    let distance = target.addr().wrapping_sub(source.addr());
    // SAFETY: the caller's promise, the lengths that each asks for, and the features of what is
    // chosen.
    unsafe {
        if length <= super::BLOCK_MAX {
            zmm_high::copy_65_to_256(target, source, length);
        } else if !copies_by_registers(length) {
            return copy_longer(target, source, length);
        } else if length <= zmm_high::BLOCK_MAX {
            zmm_high::copy_257_to_512(target, source, length);
        } else if distance >= length {
            zmm_high::copy_forward(target, source, length);
        } else {
            return copy_longer(target, source, length);
        }
    }
    crate::arch::same(target)
}

/// What is not in the entry: other instruction sets, what is long enough to choose, overlap.
#[inline(never)]
unsafe extern "C" fn copy_longer(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        if chosen == MASKS | Isa::Avx512 as u8 {
            x86_64::copy_avx512(target, source, length)
        } else if chosen == MASKS | Isa::Avx512vl as u8 {
            x86_64::copy_avx512vl(target, source, length)
        } else {
            copy_otherwise(target, source, length)
        }
    }
}

/// As [`copy_long`].
#[inline(always)]
unsafe fn fill_long(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, more than a step, and the features of what is chosen.
    unsafe {
        if CHOSEN.load(Ordering::Relaxed) != MASKS | Isa::Avx512 as u8
            || !fills_by_registers(length)
        {
            return fill_longer(target, byte, length);
        }
        zmm_high::fill_forward(target, byte, length);
    }
    crate::arch::same(target)
}

/// As [`copy_longer`].
#[inline(never)]
unsafe extern "C" fn fill_longer(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        if chosen == MASKS | Isa::Avx512 as u8 {
            x86_64::fill_avx512(target, byte, length)
        } else if chosen == MASKS | Isa::Avx512vl as u8 {
            x86_64::fill_avx512vl(target, byte, length)
        } else {
            fill_otherwise(target, byte, length)
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn copy_by_pieces(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and at most 32 bytes.
    unsafe { small::copy(target, source, length) };
    crate::arch::same(target)
}

#[cold]
#[inline(never)]
unsafe extern "C" fn fill_by_pieces(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the lengths that each asks for.
    unsafe {
        if length > small::SMALL_MAX {
            return fill_longer(target, byte, length);
        }
        small::fill(target, crate::arch::low_byte(byte), length);
    }
    crate::arch::same(target)
}
