//! Small copies and fills by masked loads and stores of AVX-512: one branch on the size.
//!
//! # Idea
//!
//! ```text
//! copy, n <= 32:   32 bytes under a mask: a load and a store
//!       n <= 127:  32 bytes at 0, k, n-32-k, n-32, k = 32 where n >= 64, else 0
//! fill, n <= 64:   32 bytes at 0 and 32, each under its half of a mask
//!       n <= 255:  64 bytes at 0, k, n-64-k, n-64, k = 64 where n >= 128, else 0
//! ```
//!
//! A masked access does not fault for what it masks out, but takes the microcode 150 ns if that
//! lies in a page that cannot be accessed that way: not mapped, never written to, or read-only. So
//! where the bytes of the mask lie in two pages, pieces go instead. A copy of no bytes, a fifth of
//! a fleet's calls of memmove, may have any address: a scratch takes its place, because a branch is
//! mispredicted as often as it is taken. Fills of none are rare.
//!
//! A masked access does fetch the lines that it masks out: 8 bytes at 40 of a line that is in
//! memory take 12 ns to load, 32 under a mask 15; to store 11, 16 and, as 64 under a mask, 19
//! (Emerald Rapids). And that processor does not forward what was stored under a mask that is not
//! full to a load: the reader waits 5.6 ns instead of 2.1. So a fill has two masks of 32 bytes, of
//! which the first is full from 32 bytes on and the second touches the first's line where it is
//! empty: 0.90 of libc's time instead of 0.99 in the last-level cache, 0.90 instead of 0.97 where
//! the first bytes are read in L1.
//!
//! What a processor has of entries for stores that wait for their line is the limit where lines
//! come from memory: 64 bytes take two, and an empty mask or a scratch takes as many as any other.
//! So a call has as few stores as it can.
//!
//! zmm16 and up have no SSE halves: no `vzeroupper` before the return. Assembly, because the
//! compiler would choose zmm0, and because bytes that were never written may be copied, but are no
//! integers.
//!
//! # What was tried
//!
//! Geometric mean of libc's time on Zen 5 over four of a fleet's programs and three of haul's
//! distributions: in L1 and cold; nothing read after, the first 8 bytes read. Copies, as here 0.61
//! 0.66, 0.93 0.98; two masked accesses of 64 bytes and no branch 0.51 0.71, 1.04 1.08; 64 bytes by
//! two masks of 32 and a branch there 0.54 0.65, 1.04 1.03. Fills, as here
//! 0.94 1.01, 1.04 1.14; four stores of 64 bytes, the first masked, the others to a scratch where
//! there is no more, and no branch 0.85 1.06, 1.64 1.30; one masked store of 32 bytes and branches
//! at 32 and 128 1.05 0.99, 0.95 1.14. Whole lines from both ends up to 1,024 bytes, without a
//! loop, took 1.11 instead of 1.05 on the sizes of packets. The record of Emerald Rapids has what
//! was tried there.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use super::avx512vl;
use crate::arch::line::LINE;
use crate::small;

/// The largest copy in bytes that goes by one masked load and store.
pub(crate) const ONE_COPY_MAX: usize = 32;

/// The largest copy in bytes that goes by registers of 32 bytes. Not 128: one bit of the size then
/// says where the inner pieces lie.
pub(crate) const COPY_MAX: usize = 127;

/// The largest fill in bytes that goes by registers without a loop.
pub(crate) const FILL_MAX: usize = 255;

/// The smallest page, in bytes, on x86-64.
const PAGE: usize = 4096;

/// What of the address 32 bytes above is zero where a copy of up to [`ONE_COPY_MAX`] bytes begins
/// in the last bytes of a page.
pub(crate) const COPY_PAGE_BITS: u32 = (PAGE - ONE_COPY_MAX) as u32;

/// What of the address a line above is zero where a fill begins in the last line of a page.
pub(crate) const FILL_PAGE_BITS: u32 = (PAGE - LINE) as u32;

/// [`COPY_PAGE_BITS`] where small copies go by masks, else 0: one look at an address says whether a
/// copy there is to go by masks.
pub(crate) static COPIES: AtomicU32 = AtomicU32::new(0);

/// As [`COPIES`], of fills.
static FILLS: AtomicU32 = AtomicU32::new(0);

/// Has small copies and fills go by masks, or no longer.
pub(crate) fn put_in_force(by_masks: bool) {
    let where_by_masks = |bits| if by_masks { bits } else { 0 };
    COPIES.store(where_by_masks(COPY_PAGE_BITS), Ordering::SeqCst);
    FILLS.store(where_by_masks(FILL_PAGE_BITS), Ordering::SeqCst);
}

/// Whether a copy of up to [`ONE_COPY_MAX`] bytes is as fast as it should be between these: neither
/// begins in the last bytes of a page. `bits` are [`COPY_PAGE_BITS`], or none where nothing is.
#[inline(always)]
pub(crate) fn are_ends_fast(target: *const u8, source: *const u8, bits: u32) -> bool {
    // The lower half of an address says where in a page it lies.
    let in_page = |start: *const u8| (start.addr() as u32).wrapping_add(ONE_COPY_MAX as u32) & bits;
    in_page(source) != 0 && in_page(target) != 0
}

/// # Safety
/// `source` is readable and `target` writable for `length <= ONE_COPY_MAX` bytes; AVX-512 BW and
/// VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn copy_to_32(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= ONE_COPY_MAX);
    let mut scratch = MaybeUninit::<[u8; ONE_COPY_MAX]>::uninit();
    let scratch: *mut u8 = crate::opaque::same(scratch.as_mut_ptr().cast());
    // SAFETY: under the mask, which is empty at the scratch, `length` bytes are accessed. Only
    // clobbered registers are written.
    unsafe {
        asm!(
            "bzhi {mask:e}, {mask:e}, {length:e}",
            "cmovz {source}, {scratch}",
            "cmovz {target}, {scratch}",
            "kmovd k1, {mask:e}",
            "vmovdqu8 ymm16 {{k1}} {{z}}, ymmword ptr [{source}]",
            "vmovdqu8 ymmword ptr [{target}] {{k1}}, ymm16",
            mask = inout(reg) u32::MAX => _, length = in(reg) length, scratch = in(reg) scratch,
            source = inout(reg) source => _, target = inout(reg) target => _,
            out("k1") _, out("zmm16") _,
            options(nostack),
        );
    }
}

/// # Safety
/// `source` is readable and `target` writable for `length` bytes, more than [`ONE_COPY_MAX`] and at
/// most [`COPY_MAX`]; AVX-512 VL.
#[inline(always)]
pub(crate) unsafe fn copy_33_to_127(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length > ONE_COPY_MAX && length <= COPY_MAX);
    let inner = (length & 64) >> 1;
    // SAFETY: inner is 32 from 64 bytes on, else 0, so the four pieces of 32 bytes lie inside
    // `length` bytes; they cover [0, 64) and [length - 64, length), or [0, 32) and
    // [length - 32, length). Loads precede stores. Only clobbered registers are written.
    unsafe {
        asm!(
            "vmovdqu64 ymm16, ymmword ptr [{source}]",
            "vmovdqu64 ymm17, ymmword ptr [{source} + {inner}]",
            "vmovdqu64 ymm18, ymmword ptr [{source} + {outer} - 32]",
            "vmovdqu64 ymm19, ymmword ptr [{source} + {length} - 32]",
            "vmovdqu64 ymmword ptr [{target}], ymm16",
            "vmovdqu64 ymmword ptr [{target} + {inner}], ymm17",
            "vmovdqu64 ymmword ptr [{target} + {outer} - 32], ymm18",
            "vmovdqu64 ymmword ptr [{target} + {length} - 32], ymm19",
            inner = in(reg) inner, outer = in(reg) length - inner, length = in(reg) length,
            source = in(reg) source, target = in(reg) target,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack, preserves_flags),
        );
    }
}

/// What came of a fill.
pub(crate) enum Fill {
    Done,
    /// Nothing was written: more than [`FILL_MAX`] bytes.
    Long,
    /// Nothing was written: it begins in the last line of a page, where a mask may be slow, or
    /// small fills do not go by masks.
    AtPageEnd,
}

/// memset of up to [`FILL_MAX`] bytes, which leaves longer ones and the ends of pages to others.
///
/// Where the fill begins is looked at first, and by what is in memory in one of the two functions,
/// so that a caller whose small copies may not go by masks has no branch of its own for that. A
/// size is compared with a constant: behind a load, a wrong guess is found later (sizes of packets
/// took 1.08 times as long).
///
/// The assembly ends with the smallest, so that a return follows them: a jump to one there took
/// 1.05 to 1.11 times as long. The first half is stored first: a reader of it waits for less. The
/// registers are those of the arguments, so that what is returned is moved last: moved first, as
/// the compiler would, a fleet's fills took 1.03 times as long.
macro_rules! fill_to_255 {
    ($(#[$doc:meta])* $name:ident: $test:literal, $($bits:tt)*) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) unsafe fn $name(target: *mut u8, byte: i32, length: usize) -> Fill {
            // SAFETY: the two masks together leave `length` bytes, 32 bytes apart or, where the
            // second is empty, at one place; the lengths that branch to the lines are theirs. Only
            // clobbered registers are written.
            unsafe {
                asm!(
                    "lea eax, [rdi + 64]",
                    $test,
                    "jz {page_end}",
                    "vpbroadcastb ymm16, esi",
                    "cmp rdx, {max}",
                    "ja {long}",
                    "cmp rdx, 64",
                    "ja {lines}",
                    "mov rax, -1",
                    "bzhi rax, rax, rdx",
                    "kmovd k1, eax",
                    "shr rax, 32",
                    "kmovd k2, eax",
                    "lea rcx, [rdi + 32]",
                    "cmovz rcx, rdi",
                    "vmovdqu8 ymmword ptr [rdi] {{k1}}, ymm16",
                    "vmovdqu8 ymmword ptr [rcx] {{k2}}, ymm16",
                    max = const FILL_MAX, bits = $($bits)*,
                    in("rdi") target, in("esi") byte, in("rdx") length,
                    out("rax") _, out("rcx") _,
                    long = label { return Fill::Long },
                    page_end = label { return Fill::AtPageEnd },
                    lines = label {
                        // SAFETY: more than 64 bytes, and at most the largest.
                        unsafe { fill_65_to_255(target, byte, length) };
                        return Fill::Done
                    },
                    out("k1") _, out("k2") _, out("zmm16") _,
                    options(nostack),
                );
            }
            Fill::Done
        }
    };
}

fill_to_255! {
    /// A fill by masks, whatever the policy.
    ///
    /// # Safety
    /// `target` is writable for `length` bytes; AVX-512 BW and VL, and BMI2.
    fill_to_255: "test eax, {bits}", const FILL_PAGE_BITS
}

fill_to_255! {
    /// A fill by masks where the policy has them, else [`Fill::AtPageEnd`] of any length.
    ///
    /// # Safety
    /// `target` is writable for `length` bytes.
    fill_to_255_by_policy: "test dword ptr [rip + {bits}], eax", sym FILLS
}

/// # Safety
/// `target` is writable for `length` bytes, 65 to [`FILL_MAX`]; AVX-512 BW.
#[inline(always)]
unsafe fn fill_65_to_255(target: *mut u8, byte: i32, length: usize) {
    debug_assert!(length > LINE && length <= FILL_MAX);
    let inner = (length & 128) >> 1;
    // SAFETY: inner is 64 from 128 bytes on, else 0, so the four lines lie inside `length` bytes;
    // they cover [0, 128) and [length - 128, length), or [0, 64) and [length - 64, length). Only
    // clobbered registers are written.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "vmovdqu64 zmmword ptr [{target} + {length} - 64], zmm16",
            "vmovdqu64 zmmword ptr [{target}], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {inner}], zmm16",
            "vmovdqu64 zmmword ptr [{target} + {outer} - 64], zmm16",
            inner = in(reg) inner, outer = in(reg) length - inner, length = in(reg) length,
            target = in(reg) target, byte = in(reg) byte,
            out("zmm16") _,
            options(nostack, preserves_flags),
        );
    }
}

/// memmove of any length: by masks up to 32 bytes, above by AVX-512VL.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw")]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, the features are enabled here, and the lengths that each asks
    // for.
    unsafe {
        if length > COPY_MAX {
            return avx512vl::copy(target, source, length);
        }
        if length > ONE_COPY_MAX {
            copy_33_to_127(target, source, length);
        } else if are_ends_fast(target, source, COPY_PAGE_BITS) {
            copy_to_32(target, source, length);
        } else {
            small::copy(target, source, length);
        }
    }
    crate::arch::same(target)
}

/// memset of any length: by masks up to 255 bytes, above by AVX-512VL.
///
/// # Safety
/// `target` is writable for `length` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw")]
pub(crate) unsafe extern "C" fn fill(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the features are enabled here.
    unsafe {
        match fill_to_255(target, byte, length) {
            Fill::Done => crate::arch::same(target),
            Fill::Long | Fill::AtPageEnd => avx512vl::fill(target, byte, length),
        }
    }
}
