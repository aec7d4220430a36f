//! Copies and fills where small ones go by masks: any size, so that a caller has nothing to decide.
//!
//! A caller looks where the target lies, which says whether by masks, and calls. Up to 127 and 255
//! bytes there is one branch on the size, beside those that are taken close to a page's end. Longer
//! ones are here too, down to the loop, where the policy has AVX-512: a jump to it waits behind the
//! branch that was mispredicted.
//!
//! Where data comes from beyond L2, what counts is how many calls are in flight, and those are
//! limited by what every instruction with a result takes: four `nop` cost nothing there, four such
//! instructions 7%. So there are as few as can be: flags come from what is computed anyway, limits
//! are constants (each load took 3%), and addresses are those that were looked at. Three results
//! less took a fleet's mixed copies from 0.99 of libc's time to 0.93, first bytes read from 1.16 to
//! 1.05 (Xeon of family 6, model 167).

use core::sync::atomic::Ordering;

use super::above_64::x86_64;
use super::without_masks;
use crate::arch::generic::BLOCK_MAX;
use crate::arch::x86_64::masked::Above;
use crate::arch::x86_64::{masked, zmm_high};
use crate::cpu::Isa;
use crate::policy::{CHOSEN, MASKS};
use crate::thresholds::{LOOKUP_MIN, copies_by_registers};

/// What is chosen where small copies go by masks, and others by this instruction set.
const AVX512: u8 = MASKS | Isa::Avx512 as u8;
/// As [`AVX512`].
const AVX512VL: u8 = MASKS | Isa::Avx512vl as u8;

/// memmove of any length, for callers that have looked at where the target is.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes; `above` is what is above it.
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

/// Where functions begin whose first bytes are small copies and fills: at a line, each in a section
/// of its own.
///
/// Else they begin at a multiple of 16 bytes, and where in a line that is was luck: the same
/// instructions took a fleet's fills in L1 0.92 of libc's time at 32, 0.87 at 48 and 0.84 at 0
/// (Emerald Rapids).
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

/// memset of any length, for callers that have looked at where it begins.
///
/// # Safety
/// `target` is writable for `length` bytes; fills there go by masks.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_fill"))]
unsafe extern "sysv64" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_here(target, byte, length) }
}

/// Calls [`fill`] by its distance, as code in callers of other crates. The compiler would call it
/// through the table of addresses, which is a load and an indirect jump: up to 16 bytes took 1.11
/// of libc's time, and take 0.97, sizes of packets 1.10 and 1.05 (Xeon of family 6, model 167).
/// Copies lose by it: 0.55 and 0.57.
///
/// # Safety
/// As [`fill`].
#[inline(always)]
pub(crate) unsafe fn call_fill(target: *mut u8, byte: i32, length: usize) {
    // SAFETY: a call as in C; the caller's promise.
    unsafe {
        core::arch::asm!(
            "call {fill}",
            fill = sym fill,
            in("rdi") target, in("esi") byte, in("rdx") length,
            clobber_abi("sysv64"),
        );
    }
}

/// memmove of any length by the policy in force, as code in the caller: a jump there costs what
/// `libhaul` exports a cycle or two.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
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

/// [`copy`] as code in the caller.
///
/// Its instructions are assembly, which asks for no feature of the function that it stands in.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_here(target: *mut u8, source: *const u8, length: usize, above: Above) -> *mut u8 {
    // SAFETY: the caller's promise, and the lengths that each asks for; where there is something
    // above, the policy has masks, or had them a moment ago.
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

/// memset of any length by the policy in force, as code in the caller.
///
/// # Safety
/// `target` is writable for `length` bytes.
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

/// [`fill`] as code in the caller.
///
/// # Safety
/// As [`fill`].
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

/// Of a policy that another thread replaces meanwhile, either is right.
#[inline(always)]
unsafe fn copy_long(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    if CHOSEN.load(Ordering::Relaxed) != AVX512 {
        // SAFETY: the caller's promise.
        return unsafe { copy_longer(target, source, length) };
    }
    // One comparison for both "the target starts inside the source" and, by wrapping, "it does
    // not": see `generic::copy_above_256`.
    let distance = target.addr().wrapping_sub(source.addr());
    // SAFETY: the caller's promise, the lengths that each asks for, and the features of what is
    // chosen.
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

/// What is not in the entry: other instruction sets, what is long enough to choose, overlap.
#[inline(never)]
unsafe extern "C" fn copy_longer(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        match CHOSEN.load(Ordering::Relaxed) {
            AVX512 => x86_64::copy_avx512(target, source, length),
            AVX512VL => x86_64::copy_avx512vl(target, source, length),
            _ => without_masks::copy(target, source, length),
        }
    }
}

/// As [`copy_long`], of more than [`masked::FILL_MAX`] bytes.
#[inline(always)]
unsafe fn fill_long(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, the lengths that each asks for, and the features of what is
    // chosen.
    unsafe {
        // From there on thresholds choose, and both ends before the middle take longer than one
        // line and a loop: 2 KiB in L1 1.00 of libc's time and 0.87 (Xeon of family 6, model 167).
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

/// As [`copy_longer`].
#[inline(never)]
unsafe extern "C" fn fill_longer(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise; only what is available was chosen.
    unsafe {
        match CHOSEN.load(Ordering::Relaxed) {
            AVX512 => x86_64::fill_avx512(target, byte, length),
            AVX512VL => x86_64::fill_avx512vl(target, byte, length),
            _ => without_masks::fill(target, byte, length),
        }
    }
}
