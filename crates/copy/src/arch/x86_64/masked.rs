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
//! a fleet's calls of memmove, may have any address: the stack takes its place, because a branch is
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
//! come from memory: 64 bytes take two, and an empty mask takes as many as any other. So a call has
//! as few stores as it can, and as few instructions with a result (see `dispatch::by_masks`).
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
//! loop, took 1.11 instead of 1.05 on the sizes of packets. The records of Intel's processors have
//! what was tried there.

use core::arch::asm;
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
const COPY_PAGE_BITS: u32 = (PAGE - ONE_COPY_MAX) as u32;

/// What of the address a line above is zero where a fill begins in the last line of a page.
const FILL_PAGE_BITS: u32 = (PAGE - LINE) as u32;

/// [`COPY_PAGE_BITS`] where small copies go by masks, else 0: one look at an address says whether a
/// copy there is to go by masks.
static COPIES: AtomicU32 = AtomicU32::new(0);

/// As [`COPIES`], of fills.
static FILLS: AtomicU32 = AtomicU32::new(0);

/// [`COPIES`] again, for code that becomes part of its callers: what they can name is found through
/// a table of addresses, here too, and that is a load more.
static CALLERS_COPIES: AtomicU32 = AtomicU32::new(0);

/// As [`CALLERS_COPIES`], of fills.
static CALLERS_FILLS: AtomicU32 = AtomicU32::new(0);

/// Has small copies and fills go by masks, or no longer.
pub(crate) fn put_in_force(by_masks: bool) {
    for (place, bits) in [
        (&COPIES, COPY_PAGE_BITS),
        (&CALLERS_COPIES, COPY_PAGE_BITS),
        (&FILLS, FILL_PAGE_BITS),
        (&CALLERS_FILLS, FILL_PAGE_BITS),
    ] {
        place.store(if by_masks { bits } else { 0 }, Ordering::SeqCst);
    }
}

/// 32 bytes above where a copy's target begins: what says where in a page that is, and from where
/// the target is then accessed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Above(*mut u8);

impl Above {
    /// `None` in the last bytes of a page, where a mask may be slow, and everywhere where the
    /// policy has no masks: one look for both.
    #[inline(always)]
    pub(crate) fn by_policy(target: *mut u8) -> Option<Self> {
        Self::by(target, COPIES.load(Ordering::Relaxed))
    }

    /// As [`Self::by_policy`], in callers of other crates.
    #[inline(always)]
    pub(crate) fn by_policy_in_callers(target: *mut u8) -> Option<Self> {
        Self::by(target, CALLERS_COPIES.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn by(target: *mut u8, bits: u32) -> Option<Self> {
        let above: *mut u8;
        // What the compiler sees through is added up anew in callers: a result more.
        // SAFETY: no access.
        unsafe {
            asm!(
                "lea {}, [{} + {}]",
                out(reg) above, in(reg) target, const ONE_COPY_MAX,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        // The lower half of an address says where in a page it lies.
        (above.addr() as u32 & bits != 0).then_some(Self(above))
    }
}

/// memmove of up to [`ONE_COPY_MAX`] bytes, and whether it was made: not where the source begins in
/// the last bytes of a page, where a mask may be slow.
///
/// The stack below its pointer stands in for the addresses of no bytes.
///
/// # Safety
/// `source` is readable for `length <= ONE_COPY_MAX` bytes, and as many are writable where
/// `target` says; AVX-512 BW and VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn copy_to_32(target: Above, source: *const u8, length: usize) -> bool {
    debug_assert!(length <= ONE_COPY_MAX);
    let source = source.wrapping_add(ONE_COPY_MAX);
    if source.addr() as u32 & COPY_PAGE_BITS == 0 {
        return false;
    }
    // SAFETY: under the mask, which is empty below the stack's pointer, `length` bytes are
    // accessed. Only clobbered registers are written.
    unsafe {
        asm!(
            "bzhi {mask:e}, {mask:e}, {length:e}",
            "cmovz {source}, rsp",
            "cmovz {target}, rsp",
            "kmovd k1, {mask:e}",
            "vmovdqu8 ymm16 {{k1}} {{z}}, ymmword ptr [{source} - {max}]",
            "vmovdqu8 ymmword ptr [{target} - {max}] {{k1}}, ymm16",
            mask = inout(reg) u32::MAX => _, length = in(reg) length, max = const ONE_COPY_MAX,
            source = inout(reg) source => _, target = inout(reg) target.0 => _,
            out("k1") _, out("zmm16") _,
            options(nostack),
        );
    }
    true
}

/// # Safety
/// `source` is readable and `target` writable for `length` bytes, more than [`ONE_COPY_MAX`] and at
/// most [`COPY_MAX`]; AVX-512 VL.
#[inline(always)]
pub(crate) unsafe fn copy_33_to_127(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length > ONE_COPY_MAX && length <= COPY_MAX);
    let inner = (length & 64) >> 1;
    // The first piece is stored last, so that who reads the first bytes finds them in one store: a
    // fleet's copies in L1, first bytes read, took 0.55 of libc's time, and take 0.53.
    // SAFETY: inner is 32 from 64 bytes on, else 0, so the four pieces of 32 bytes lie inside
    // `length` bytes; they cover [0, 64) and [length - 64, length), or [0, 32) and
    // [length - 32, length). Loads precede stores. Only clobbered registers are written.
    unsafe {
        asm!(
            "vmovdqu64 ymm16, ymmword ptr [{source}]",
            "vmovdqu64 ymm17, ymmword ptr [{source} + {inner}]",
            "vmovdqu64 ymm18, ymmword ptr [{source} + {outer} - 32]",
            "vmovdqu64 ymm19, ymmword ptr [{source} + {length} - 32]",
            "vmovdqu64 ymmword ptr [{target} + {length} - 32], ymm19",
            "vmovdqu64 ymmword ptr [{target} + {outer} - 32], ymm18",
            "vmovdqu64 ymmword ptr [{target} + {inner}], ymm17",
            "vmovdqu64 ymmword ptr [{target}], ymm16",
            inner = in(reg) inner, outer = in(reg) length - inner, length = in(reg) length,
            source = in(reg) source, target = in(reg) target,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Whether fills that begin here go by masks: not in the last line of a page, where a mask may be
/// slow, and nowhere where the policy has none.
#[inline(always)]
pub(crate) fn fills_by_policy(target: *mut u8) -> bool {
    fills_by(target, FILLS.load(Ordering::Relaxed))
}

/// As [`fills_by_policy`], in callers of other crates.
#[inline(always)]
pub(crate) fn fills_by_policy_in_callers(target: *mut u8) -> bool {
    fills_by(target, CALLERS_FILLS.load(Ordering::Relaxed))
}

#[inline(always)]
fn fills_by(target: *mut u8, bits: u32) -> bool {
    // The lower half of an address says where in a page it lies.
    (target.addr() as u32).wrapping_add(LINE as u32) & bits != 0
}

/// memset of up to [`FILL_MAX`] bytes, and whether it was made: nothing is written where there are
/// more.
///
/// A size is compared with a constant: behind a load, a wrong guess is found later (sizes of
/// packets took 1.08 times as long).
///
/// The assembly ends with the smallest, so that a return follows them: a jump to one there took
/// 1.05 to 1.11 times as long. The first half is stored first: a reader of it waits for less. The
/// registers are those of the arguments, so that what is returned is moved last: moved first, as
/// the compiler would, a fleet's fills took 1.03 times as long.
///
/// # Safety
/// `target` is writable for `length` bytes, and does not lie in the last line of a page, where this
/// were slow; AVX-512 BW and VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn fill_to_255(target: *mut u8, byte: i32, length: usize) -> bool {
    // SAFETY: the two masks together leave `length` bytes, 32 bytes apart or, where the second is
    // empty, at one place; the lengths that branch to the lines are theirs. Only clobbered
    // registers are written.
    unsafe {
        asm!(
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
            max = const FILL_MAX,
            in("rdi") target, in("esi") byte, in("rdx") length,
            out("rax") _, out("rcx") _,
            long = label { return false },
            lines = label {
                // SAFETY: more than 64 bytes, and at most the largest.
                unsafe { fill_65_to_255(target, byte, length) };
                return true
            },
            out("k1") _, out("k2") _, out("zmm16") _,
            options(nostack),
        );
    }
    true
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
        } else if !Above::by(target, COPY_PAGE_BITS)
            .is_some_and(|target| copy_to_32(target, source, length))
        {
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
        if fills_by(target, FILL_PAGE_BITS) && fill_to_255(target, byte, length) {
            crate::arch::same(target)
        } else {
            avx512vl::fill(target, byte, length)
        }
    }
}
