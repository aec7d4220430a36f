//! Copies and fills of any size if the policy uses masks for small ones. A caller makes one call
//! and does not need to check the size.
//!
//! If the policy has AVX-512, sizes above 256 bytes are inlined here too, including the loop: a
//! jump to them would have to wait for the mispredicted branch on the size.
//!
//! If data comes from beyond L2, the number of calls in flight limits the speed, and every
//! instruction with a result takes one of the entries that limit that number: four `nop` cost
//! nothing there, four instructions with a result cost 7%. The code therefore has few results:
//! limits are constants (each load cost 3%), and one test covers the policy and the page.

use super::without_masks;
use crate::thresholds::LOOKUP_MIN;

// The text of a fill contains this limit.
const _: () = assert!(LOOKUP_MIN == 2048);

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

/// The body of a naked function that is memmove of any length under the policy in force. Each such
/// function has the whole body, because a jump to it would cost a cycle or two. If another thread
/// replaces the policy meanwhile, either policy is correct.
macro_rules! copy_body {
    () => {
        core::arch::naked_asm!(
            $crate::arch::x86_64::masked::copy_text!(
                whole: "cmp dword ptr [rip + {bits}], 0\nje 89f\n",
                page: "test ecx, dword ptr [rip + {bits}]\njz 90f\n",
                otherwise: [$crate::arch::x86_64::whole::copy_whole_text!()],
                above: "cmp byte ptr [rip + {chosen}], {avx512}\njne 91f\n",
                $crate::arch::x86_64::zmm_high::copy_above_256_text!(),
                "91:\njmp {longer}\n",
            ),
            chosen = sym $crate::policy::CHOSEN,
            avx512 = const $crate::cpu::Isa::Avx512 as u8,
            avx2 = const $crate::cpu::Isa::Avx2 as u8,
            bits = sym $crate::arch::x86_64::masked::COPIES,
            page_bits = const $crate::arch::x86_64::masked::COPY_PAGE_BITS,
            thresholds = sym $crate::thresholds::IN_FORCE,
            lookup = const $crate::thresholds::InForce::COPY_LOOKUP_OFFSET,
            ahead_min = const $crate::arch::generic::AHEAD_MIN,
            ahead = const $crate::arch::generic::AHEAD,
            otherwise = sym $crate::dispatch::by_masks::copy_without_masks,
            above = sym $crate::dispatch::above_64::x86_64::copy_avx2,
            longer = sym $crate::dispatch::by_masks::copy_longer,
        )
    };
}
pub(crate) use copy_body;

/// The body of a naked function that is memset of any length, like [`copy_body`].
macro_rules! fill_body {
    () => {
        core::arch::naked_asm!(
            $crate::arch::x86_64::masked::fill_text!(
                page: "test ecx, dword ptr [rip + {bits}]\njz 90f\n",
                otherwise: [$crate::arch::x86_64::whole::fill_whole_text!()],
                above: "cmp byte ptr [rip + {chosen}], {avx512}\njne 91f\n",
                $crate::arch::x86_64::zmm_high::fill_above_256_text!(),
                "91:\njmp {longer}\n",
            ),
            chosen = sym $crate::policy::CHOSEN,
            avx512 = const $crate::cpu::Isa::Avx512 as u8,
            avx2 = const $crate::cpu::Isa::Avx2 as u8,
            bits = sym $crate::arch::x86_64::masked::FILLS,
            otherwise = sym $crate::dispatch::by_masks::fill_without_masks,
            longer = sym $crate::dispatch::by_masks::fill_longer,
        )
    };
}
pub(crate) use fill_body;

/// memmove of any length under the policy in force.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
#[unsafe(naked)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_copy"))]
pub(crate) unsafe extern "sysv64" fn copy(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    copy_body!()
}

/// memset of any length under the policy in force.
///
/// # Safety
/// `target` must be writable for `length` bytes.
#[unsafe(naked)]
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".text.haul_masked_fill"))]
pub(crate) unsafe extern "sysv64" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    fill_body!()
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

/// memmove if the policy uses no masks, or if a mask would be slow at an address.
///
/// # Safety
/// The conditions of [`copy`] apply.
pub(crate) unsafe extern "sysv64" fn copy_without_masks(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { without_masks::copy(target, source, length) }
}

/// memset if the policy uses no masks, or if a mask would be slow at the address.
///
/// # Safety
/// The conditions of [`fill`] apply.
pub(crate) unsafe extern "sysv64" fn fill_without_masks(
    target: *mut u8,
    byte: i32,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { without_masks::fill(target, byte, length) }
}

/// memmove of more than 256 bytes with another instruction set than AVX-512, with another method
/// than registers, or with a target that starts inside the source.
///
/// # Safety
/// The conditions of [`copy`] apply.
pub(crate) unsafe extern "sysv64" fn copy_longer(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { super::copy_above_64_here(target, source, length) }
}

/// memset of more than 256 bytes with another instruction set than AVX-512, or of a size for which
/// thresholds choose the method.
///
/// # Safety
/// The conditions of [`fill`] apply.
pub(crate) unsafe extern "sysv64" fn fill_longer(
    target: *mut u8,
    byte: i32,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { super::fill_above_64_here(target, byte, length) }
}
