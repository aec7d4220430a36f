//! Copies and fills where small ones go by masks: any size, so that a caller has nothing to decide.
//!
//! Up to 127 and 255 bytes there is one branch on the size, beside one that is taken close to a
//! page's end. Longer ones are here too, down to the loop, where the policy has AVX-512: a jump
//! to it waits behind the branch that was mispredicted.
//!
//! Where data comes from beyond L2, what counts is how many calls are in flight, and those are
//! limited by what every instruction with a result takes: four `nop` cost nothing there, four such
//! instructions 7%. So there are as few as can be: flags come from what is computed anyway, and
//! limits are constants (each load took 3%). Through C one load says whether small ones go by
//! masks.

use core::sync::atomic::Ordering;

use super::above_64::x86_64;
use super::without_masks;
use crate::arch::generic::BLOCK_MAX;
use crate::arch::x86_64::masked::Fill;
use crate::arch::x86_64::{masked, zmm_high};
use crate::cpu::Isa;
use crate::policy::{CHOSEN, MASKS};
use crate::thresholds::{copies_by_registers, fills_by_registers};

/// What is chosen where small copies go by masks, and others by this instruction set.
const AVX512: u8 = MASKS | Isa::Avx512 as u8;
/// As [`AVX512`].
const AVX512VL: u8 = MASKS | Isa::Avx512vl as u8;

/// memmove of any length.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes; a policy with masks is in force,
/// or was a moment ago.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_copy"))]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and those that call this have looked at the policy.
    unsafe { copy_here(target, source, length, || masked::COPY_PAGE_BITS) }
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

/// memset of any length, by the policy in force.
///
/// # Safety
/// `target` is writable for `length` bytes.
#[inline(never)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_fill"))]
unsafe extern "sysv64" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_by_policy(target, byte, length) }
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

/// As [`copy`], by the policy in force, as code in the caller: a jump there costs what `libhaul`
/// exports a cycle or two. Whether by masks it finds out where that costs least: up to 32 bytes by
/// the look at the ends' pages, above 127 by that at the instruction set.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn copy_by_policy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_here(target, source, length, || masked::COPIES.load(Ordering::Relaxed)) }
}

/// The text of both; `bits` are [`masked::COPY_PAGE_BITS`], or none where not by masks.
///
/// Its instructions are assembly, which asks for no feature of the function that it stands in.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes; bits only where the processor has
/// the features of masks.
#[inline(always)]
unsafe fn copy_here(
    target: *mut u8,
    source: *const u8,
    length: usize,
    bits: impl Fn() -> u32,
) -> *mut u8 {
    // SAFETY: the caller's promise, and the lengths that each asks for.
    unsafe {
        if length <= masked::ONE_COPY_MAX {
            if !masked::are_ends_fast(target, source, bits()) {
                return without_masks::copy(target, source, length);
            }
            masked::copy_to_32(target, source, length);
        } else if length <= masked::COPY_MAX {
            if bits() == 0 {
                return without_masks::copy(target, source, length);
            }
            masked::copy_33_to_127(target, source, length);
        } else {
            return copy_long(target, source, length);
        }
    }
    crate::arch::same(target)
}

/// [`fill`] as code in the caller, see [`copy_by_policy`].
///
/// # Safety
/// `target` is writable for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn fill_by_policy(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: as in the copy.
    unsafe {
        match masked::fill_to_255_by_policy(target, byte, length) {
            Fill::Done => crate::arch::same(target),
            Fill::Long => fill_long(target, byte, length),
            Fill::AtPageEnd => without_masks::fill(target, byte, length),
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
        if CHOSEN.load(Ordering::Relaxed) != AVX512 {
            return fill_longer(target, byte, length);
        }
        zmm_high::fill_ends(target, byte, length);
        if length > zmm_high::BLOCK_MAX {
            if !fills_by_registers(length) {
                return fill_longer(target, byte, length);
            }
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
