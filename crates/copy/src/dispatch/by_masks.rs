//! Copies and fills of any size if the policy uses masks for small copies and fills. A caller
//! does not need to check the size.
//!
//! A caller tests the target's address, which determines whether masks may be used, and then
//! makes one call. Copies of up to 127 bytes and fills of up to 255 bytes execute one branch on
//! the size, in addition to the branches that are taken near the end of a page. If the policy has
//! AVX-512, longer sizes are inlined here too, including the loop: a jump to them would have to
//! wait for the mispredicted branch on the size.
//!
//! If data comes from beyond L2, the number of calls in flight limits the speed, and every
//! instruction with a result occupies one of the processor's entries that limit that number: four
//! `nop` cost nothing there, four instructions with a result cost 7%. The code therefore has as
//! few results as possible: flags come from values that the code needs in any case, limits are
//! constants (each load cost 3%), and the accesses use the tested addresses. The removal of three
//! results reduced the time of a fleet's mixed copies from 0.99 to 0.93 of libc's, and from 1.16
//! to 1.05 with the first bytes read next (Xeon of family 6, model 167).

use core::sync::atomic::Ordering;

use super::above_64::x86_64;
use super::without_masks;
use crate::arch::generic::BLOCK_MAX;
use crate::arch::x86_64::masked::Above;
use crate::arch::x86_64::{masked, zmm_high};
use crate::cpu::Isa;
use crate::policy::{CHOSEN, MASKS};
use crate::thresholds::{LOOKUP_MIN, copies_by_registers};

/// The value of [`CHOSEN`] if small copies use masks and longer copies use AVX-512.
const AVX512: u8 = MASKS | Isa::Avx512 as u8;
/// The value of [`CHOSEN`] if small copies use masks and longer copies use AVX-512VL.
const AVX512VL: u8 = MASKS | Isa::Avx512vl as u8;

/// memmove of any length, for callers that have tested the target's address.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, and `above` must be made
/// from `target`.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_copy"))]
pub(crate) unsafe extern "C" fn copy(
    target: *mut u8,
    source: *const u8,
    length: usize,
    above: Above,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_here(target, source, length, above) }
}

/// Aligns functions that start with small copies and fills to a cache line. Each function is in a
/// separate section.
///
/// By default, functions are aligned to 16 bytes, so that their offset in a line would be
/// arbitrary: the same instructions take 0.92 of libc's time for a fleet's fills in L1 at offset
/// 32, 0.87 at 48 and 0.84 at 0 (Emerald Rapids).
macro_rules! begin_at_a_line {
    ($($section:literal)*) => {
        #[cfg(all(target_os = "linux", not(miri)))]
        core::arch::global_asm!($(
            concat!(".pushsection ", $section, ", \"ax\", @progbits"),
            ".p2align 6, 0xcc",
            ".popsection",
        )*);
    };
}

begin_at_a_line! {
    ".text.haul_masked_copy"
    ".text.haul_masked_fill"
    ".text.haul_memcpy"
    ".text.haul_memmove"
    ".text.haul_memset"
}

/// memset of any length, for callers that have tested the target's address.
///
/// # Safety
/// `target` must be writable for `length` bytes, and fills at this address must use masks.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_fill"))]
unsafe extern "sysv64" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_here(target, byte, length) }
}

/// Calls [`fill`] directly from code that is inlined into other crates. The compiler would call
/// `fill` through the global offset table, which costs a load and an indirect jump: fills of up
/// to 16 bytes take 1.11 of libc's time through the table, and 0.97 with the direct call; packet
/// sizes take 1.10 and 1.05 (Xeon of family 6, model 167). Copies do not gain: they take 0.55
/// through the table, and 0.57 directly.
///
/// # Safety
/// The conditions of [`fill`] apply.
#[inline(always)]
pub(crate) unsafe fn call_fill(target: *mut u8, byte: i32, length: usize) {
    // SAFETY: the assembly calls `fill` by its convention and declares what that clobbers; `fill`
    // has the obligations of this function, which the caller meets.
    unsafe {
        core::arch::asm!(
            "call {fill}",
            fill = sym fill,
            in("rdi") target, in("esi") byte, in("rdx") length,
            clobber_abi("sysv64"),
        );
    }
}

/// memmove of any length under the policy in force, inlined into the caller. A jump to this
/// function would cost the functions that `libhaul` exports a cycle or two.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn copy_by_policy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        match Above::by_policy(target) {
            Some(above) => copy_here(target, source, length, above),
            None => without_masks::copy(target, source, length),
        }
    }
}

/// [`copy`], inlined into the caller.
///
/// The instructions are assembly, so the calling function needs no target feature.
///
/// # Safety
/// The conditions of [`copy`] apply.
#[inline(always)]
unsafe fn copy_here(target: *mut u8, source: *const u8, length: usize, above: Above) -> *mut u8 {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires. An
    // `Above` exists only if the policy uses masks, or used them a moment ago, so the processor has
    // them.
    unsafe {
        if length <= masked::ONE_COPY_MAX {
            if !masked::copy_to_32(above, source, length) {
                return without_masks::copy(target, source, length);
            }
        } else if length <= masked::COPY_MAX {
            masked::copy_33_to_127(target, source, length);
        } else {
            return copy_long(target, source, length);
        }
    }
    crate::arch::same(target)
}

/// memset of any length under the policy in force, inlined into the caller.
///
/// # Safety
/// `target` must be writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn fill_by_policy(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if masked::fills_by_policy(target) {
            fill_here(target, byte, length)
        } else {
            without_masks::fill(target, byte, length)
        }
    }
}

/// [`fill`], inlined into the caller.
///
/// # Safety
/// The conditions of [`fill`] apply.
#[inline(always)]
unsafe fn fill_here(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: as in the copy.
    unsafe {
        if masked::fill_to_255(target, byte, length) {
            crate::arch::same(target)
        } else {
            fill_long(target, byte, length)
        }
    }
}

/// memmove of more than [`masked::COPY_MAX`] bytes. If another thread replaces the policy
/// meanwhile, either policy is correct.
#[inline(always)]
unsafe fn copy_long(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    if CHOSEN.load(Ordering::Relaxed) != AVX512 {
        // SAFETY: the caller's promise.
        return unsafe { copy_longer(target, source, length) };
    }
    // One comparison for both "the target starts inside the source" and, by wrapping, "it does
    // not": see `generic::copy_above_256`.
    let distance = target.addr().wrapping_sub(source.addr());
    // SAFETY: the caller's promise, each branch has the length that its callee requires, and the
    // processor has the features of the chosen instruction set.
    unsafe {
        if length <= BLOCK_MAX {
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

/// The cases that [`copy_long`] does not inline: other instruction sets, sizes that may use another
/// method than registers, and overlap.
#[inline(never)]
unsafe extern "C" fn copy_longer(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        match CHOSEN.load(Ordering::Relaxed) {
            AVX512 => x86_64::copy_avx512(target, source, length),
            AVX512VL => x86_64::copy_avx512vl(target, source, length),
            _ => without_masks::copy(target, source, length),
        }
    }
}

/// memset of more than [`masked::FILL_MAX`] bytes, structured as [`copy_long`].
#[inline(always)]
unsafe fn fill_long(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, each branch has the length that its callee requires, and the
    // processor has the features of the chosen instruction set.
    unsafe {
        // From LOOKUP_MIN on, thresholds choose the method. At these sizes, filling both ends
        // before the middle would also be slower than one line and a loop: 2 KiB in L1 takes 1.00
        // of libc's time, against 0.87 (Xeon of family 6, model 167).
        if length >= LOOKUP_MIN || CHOSEN.load(Ordering::Relaxed) != AVX512 {
            return fill_longer(target, byte, length);
        }
        zmm_high::fill_ends(target, byte, length);
        if length > zmm_high::BLOCK_MAX {
            zmm_high::fill_between(target, byte, length);
        }
    }
    crate::arch::same(target)
}

/// The cases that [`fill_long`] does not inline.
#[inline(never)]
unsafe extern "C" fn fill_longer(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the chosen instruction set is available.
    unsafe {
        match CHOSEN.load(Ordering::Relaxed) {
            AVX512 => x86_64::fill_avx512(target, byte, length),
            AVX512VL => x86_64::fill_avx512vl(target, byte, length),
            _ => without_masks::fill(target, byte, length),
        }
    }
}
