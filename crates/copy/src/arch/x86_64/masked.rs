//! Copies and fills of up to 256 bytes with the registers of AVX-512, and with masks for the
//! smallest.
//!
//! # Idea
//!
//! ```text
//! copy, n <= 15:   16 bytes under a mask, then the first 8 whole (n < 8: to a scratch)
//!       n <= 32:   16 bytes at 0 and at n-16
//!       n <= 63:   32 bytes at 0 and at n-32
//! fill, n <= 64:   32 bytes at 0 and at 32, each under its half of a mask
//! both, n <= 128:  64 bytes at 0 and at n-64
//!       n <= 256:  64 bytes at 0, 64, n-128, n-64
//! ```
//!
//! Three properties decide, and the code is a compromise between them:
//!
//! - A branch on a size that no predictor knows costs 15 to 20 cycles every few calls. Masks need
//!   no branch up to 15 bytes, which are more than half of a fleet's calls.
//! - A branch on a size that a predictor knows is free, and each unnecessary store costs half a
//!   cycle. Above 15 bytes, the code therefore has the stores that the C library has.
//! - The processor does not forward a store under a partial mask to a load: a program that reads
//!   the target right after the copy waits 10 ns instead of 5. The first 8 bytes are therefore
//!   stored again, whole. Zen 4 does not forward a store under a full mask either.
//!
//! On Emerald Rapids, one mask of 32 bytes and four stores of 32 bytes up to 127 bytes take 0.50 of
//! the C library's time instead of 0.65 for a fleet's sizes in a random order, but 1.17 instead of
//! 0.73 if a predictor knows the sizes and the program reads the target. Branches at 8 and 16 take
//! 0.87 and 0.77. A call with one size, not read, takes at most 1.08 of the C library's time; with
//! four stores it takes up to 1.8.
//!
//! A masked access does not fault for masked-out bytes. But if these lie in a page that does not
//! allow the access, the microcode needs 150 ns. Such a page is not mapped, was never written to,
//! or is read-only. If the bytes of the mask may lie in two pages, the copy therefore uses whole
//! registers instead ([`super::whole`]). A copy of 0 bytes may have any address, so it returns
//! after a branch. An address without an effect for both ends instead of the branch makes a
//! program that reads the target wait longer for every other copy: 1.17 of the C library's time
//! instead of 1.01 for 1 byte. Fills of 0 bytes are rare.
//!
//! A fill's first mask is full from 32 bytes on, and the second accesses the first's line if it is
//! empty. A masked access fetches the lines of masked-out bytes: on Emerald Rapids, 8 bytes at
//! offset 40 of a line in memory take 11 ns to store, 16 ns with a mask of 32 bytes, and 19 ns with
//! a mask of 64.
//!
//! zmm16 and up have no SSE halves, so the code needs no `vzeroupper` before the return. The code
//! is assembly because the compiler would choose zmm0, because uninitialized bytes may be copied
//! but must not be read as integers, and because the order of the blocks matters: a size from 64
//! bytes on takes no branch before its block.
//!
//! # What was tried
//!
//! `bench/record/2026-11-25-zen5-2cpu-copy` and the records of Intel's processors have other
//! shapes. The masks of these records reach to 32 bytes for copies.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::avx512;

/// The smallest page, in bytes, on x86-64.
const PAGE: usize = 4096;

/// The number of bytes that a copy's masked accesses cover.
const COPY_MASK: usize = 16;

/// The number of bytes that a fill's masked accesses cover.
const FILL_MASK: usize = 64;

/// The bits of `address + 16` that are all zero if a masked access at `address` may cross the end
/// of a page.
pub(crate) const COPY_PAGE_BITS: u32 = (PAGE - COPY_MASK) as u32;

/// Like [`COPY_PAGE_BITS`], for the two masks of a fill and `address + 64`.
const FILL_PAGE_BITS: u32 = (PAGE - FILL_MASK) as u32;

/// [`COPY_PAGE_BITS`] if small copies use masks, else 0. One test of an address therefore says
/// whether a copy there uses masks.
pub(crate) static COPIES: AtomicU32 = AtomicU32::new(0);

/// Like [`COPIES`], for fills.
pub(crate) static FILLS: AtomicU32 = AtomicU32::new(0);

/// Whether copies in code that is inlined into other crates are calls of code with masks. It is a
/// separate static because that code reads it through the global offset table, which costs a load;
/// if there were one static, this crate's code would pay for that load too. An address without the
/// table would save 1% of the calls with pieces, but could not be linked into a shared library.
static CALLERS_COPIES: AtomicBool = AtomicBool::new(false);

/// Like [`CALLERS_COPIES`], for fills.
static CALLERS_FILLS: AtomicBool = AtomicBool::new(false);

/// Sets whether small copies and fills use masks, and whether copies do in code that is inlined
/// into other crates.
pub(crate) fn set_in_force(by_masks: bool, callers_copies: bool) {
    for (atomic, bits) in [(&COPIES, COPY_PAGE_BITS), (&FILLS, FILL_PAGE_BITS)] {
        atomic.store(if by_masks { bits } else { 0 }, Ordering::SeqCst);
    }
    CALLERS_COPIES.store(callers_copies, Ordering::SeqCst);
    CALLERS_FILLS.store(by_masks, Ordering::SeqCst);
}

/// Whether copies in code that is inlined into other crates are calls of code with masks.
#[inline(always)]
pub(crate) fn copies_for_callers() -> bool {
    CALLERS_COPIES.load(Ordering::Relaxed)
}

/// Like [`copies_for_callers`], for fills.
#[inline(always)]
pub(crate) fn fills_for_callers() -> bool {
    CALLERS_FILLS.load(Ordering::Relaxed)
}

/// The text of a memmove: `rdi` is the target, `rsi` the source, `rdx` the length, `rax` the
/// result. Only registers that a call may change are written.
///
/// `$whole` decides whether sizes from 64 bytes on may use AVX-512, and `$page` whether masks may
/// be used at the target's address plus 16 in `ecx`; either jumps to `90`, with the text
/// `$otherwise`, a memmove of any size. Sizes above 256 bytes continue at `40`, with the text
/// `$above`.
macro_rules! copy_text {
    (
        whole: $whole:literal,
        page: $page:literal,
        otherwise: [$($otherwise:tt)*],
        above: $($above:tt)*
    ) => {
        concat!(
            "mov rax, rdi\n",
            "cmp rdx, 64\n",
            "jb 20f\n",
            $whole,
            "cmp rdx, 128\n",
            "ja 30f\n",
            "vmovdqu64 zmm16, zmmword ptr [rsi]\n",
            "vmovdqu64 zmm17, zmmword ptr [rsi + rdx - 64]\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm17\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "ret\n",
            "30:\n",
            "cmp rdx, 256\n",
            "ja 40f\n",
            "vmovdqu64 zmm16, zmmword ptr [rsi]\n",
            "vmovdqu64 zmm17, zmmword ptr [rsi + 64]\n",
            "vmovdqu64 zmm18, zmmword ptr [rsi + rdx - 128]\n",
            "vmovdqu64 zmm19, zmmword ptr [rsi + rdx - 64]\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 128], zmm18\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm19\n",
            "vmovdqu64 zmmword ptr [rdi + 64], zmm17\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "ret\n",
            "40:\n",
            $($above)*
            // Below 64 bytes. The first piece is stored last, so that one store provides the first
            // bytes to a load that follows.
            ".p2align 5\n",
            "20:\n",
            "lea ecx, [rdi + 16]\n",
            $page,
            "cmp edx, 32\n",
            "ja 60f\n",
            "cmp edx, 16\n",
            "jb 70f\n",
            "vmovdqu64 xmm16, xmmword ptr [rsi]\n",
            "vmovdqu64 xmm17, xmmword ptr [rsi + rdx - 16]\n",
            "vmovdqu64 xmmword ptr [rdi + rdx - 16], xmm17\n",
            "vmovdqu64 xmmword ptr [rdi], xmm16\n",
            "ret\n",
            ".p2align 5\n",
            "70:\n",
            "lea ecx, [rsi + 16]\n",
            "test ecx, {page_bits}\n",
            "jz 90f\n",
            "test edx, edx\n",
            "jz 80f\n",
            "mov ecx, -1\n",
            "bzhi ecx, ecx, edx\n",
            "kmovd k1, ecx\n",
            "vmovdqu8 xmm16 {{k1}} {{z}}, xmmword ptr [rsi]\n",
            "vmovdqu8 xmmword ptr [rdi] {{k1}}, xmm16\n",
            // The scratch lies in the 128 bytes below the stack pointer, which belong to this
            // function.
            "lea r8, [rsp - 32]\n",
            "cmp edx, 8\n",
            "cmovae r8, rdi\n",
            "vmovq qword ptr [r8], xmm16\n",
            "80:\n",
            "ret\n",
            ".p2align 5\n",
            "60:\n",
            "vmovdqu64 ymm16, ymmword ptr [rsi]\n",
            "vmovdqu64 ymm17, ymmword ptr [rsi + rdx - 32]\n",
            "vmovdqu64 ymmword ptr [rdi + rdx - 32], ymm17\n",
            "vmovdqu64 ymmword ptr [rdi], ymm16\n",
            "ret\n",
            "90:\n",
            $($otherwise)*
        )
    };
}
pub(crate) use copy_text;

/// The text of a memset: `rdi` is the target, `esi` the byte, `rdx` the length, `rax` the result.
///
/// `$page` decides whether masks may be used at the target's address plus 64 in `ecx`; it jumps
/// to `90` otherwise, with the text `$otherwise`, a memset of any size. Sizes above 256 bytes
/// continue at `40`, with the text `$above`. The smallest sizes come first, unlike those of a copy:
/// four fifths of a fleet's fills have at most 64 bytes.
macro_rules! fill_text {
    (page: $page:literal, otherwise: [$($otherwise:tt)*], above: $($above:tt)*) => {
        concat!(
            "mov rax, rdi\n",
            "lea ecx, [rdi + 64]\n",
            $page,
            "vpbroadcastb zmm16, esi\n",
            "cmp rdx, 256\n",
            "ja 40f\n",
            "cmp rdx, 64\n",
            "ja 30f\n",
            "mov rcx, -1\n",
            "bzhi rcx, rcx, rdx\n",
            "kmovd k1, ecx\n",
            "shr rcx, 32\n",
            "kmovd k2, ecx\n",
            "lea rcx, [rdi + 32]\n",
            "cmovz rcx, rdi\n",
            // The first half is stored first, so that a load from it waits less.
            "vmovdqu8 ymmword ptr [rdi] {{k1}}, ymm16\n",
            "vmovdqu8 ymmword ptr [rcx] {{k2}}, ymm16\n",
            "ret\n",
            "30:\n",
            "cmp rdx, 128\n",
            "ja 35f\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "ret\n",
            "35:\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 128], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + rdx - 64], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi + 64], zmm16\n",
            "vmovdqu64 zmmword ptr [rdi], zmm16\n",
            "ret\n",
            "40:\n",
            $($above)*
            "90:\n",
            $($otherwise)*
        )
    };
}
pub(crate) use fill_text;

/// memmove of any length: as described above up to 256 bytes, with AVX-512 above.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes. The processor must have
/// AVX-512 BW and VL, and BMI2.
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_any(target, source, length) }
}

/// memset of any length: as described above up to 256 bytes, with AVX-512 above.
///
/// # Safety
/// `target` must be writable for `length` bytes. The processor must have AVX-512 BW and VL, and
/// BMI2.
pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { fill_any(target, byte, length) }
}

/// # Safety
/// The conditions of [`copy`] apply.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_any(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    core::arch::naked_asm!(
        copy_text!(
            whole: "",
            page: "test ecx, {page_bits}\njz 90f\n",
            otherwise: ["jmp {otherwise}\n"],
            above: "jmp {otherwise}\n",
        ),
        page_bits = const COPY_PAGE_BITS,
        otherwise = sym copy_otherwise,
    )
}

/// # Safety
/// The conditions of [`fill`] apply.
#[unsafe(naked)]
unsafe extern "sysv64" fn fill_any(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    core::arch::naked_asm!(
        fill_text!(
            page: "test ecx, {page_bits}\njz 90f\n",
            otherwise: ["jmp {otherwise}\n"],
            above: "jmp {otherwise}\n",
        ),
        page_bits = const FILL_PAGE_BITS,
        otherwise = sym fill_otherwise,
    )
}

/// The copies for which [`copy_text`] has no code.
unsafe extern "sysv64" fn copy_otherwise(
    target: *mut u8,
    source: *const u8,
    length: usize,
) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { avx512::copy(target, source, length) }
}

/// The fills for which [`fill_text`] has no code.
unsafe extern "sysv64" fn fill_otherwise(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { avx512::fill(target, byte, length) }
}
