//! Small copies and fills with masked loads and stores of AVX-512 and one branch on the size.
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
//! A masked access does not fault for masked-out bytes. If masked-out bytes lie in a page that
//! does not allow the access, however, the microcode needs 150 ns. Such a page is not mapped, was
//! never written to, or is read-only. If the bytes of the mask may lie in two pages, the copy
//! therefore uses pieces instead. A copy of 0 bytes may have any address, and a fifth of a
//! fleet's memmove calls copy 0 bytes. For 0 bytes, an address below the stack pointer replaces
//! both addresses, without a branch, because a branch would be mispredicted as often as it is
//! taken. Fills of 0 bytes are rare.
//!
//! A masked access fetches the lines of masked-out bytes: on Emerald Rapids, 8 bytes at offset 40
//! of a line in memory take 12 ns to load, and 15 ns with a mask of 32 bytes; to store, they take
//! 11 ns, 16 ns with a mask of 32 bytes, and 19 ns with a mask of 64. That processor also does
//! not forward a store under a partial mask to a load: the load waits 5.6 ns instead of 2.1. A
//! fill therefore uses two masks of 32 bytes: the first is full from 32 bytes on, and the second,
//! if it is empty, accesses the line of the first. A fleet's fills take 0.90 of libc's time
//! instead of 0.99 in the last-level cache, and 0.90 instead of 0.97 in L1 with the first bytes
//! read next.
//!
//! If lines come from memory, the store buffer limits the speed. A 64-byte store takes two
//! entries, even if its mask is empty. A call therefore has as few stores as possible, and as few
//! instructions with a result (see `dispatch::by_masks`).
//!
//! zmm16 and up have no SSE halves, so the code needs no `vzeroupper` before the return. The code
//! is assembly because the compiler would choose zmm0, and because uninitialized bytes may be
//! copied but must not be read as integers.
//!
//! # What was tried
//!
//! On Zen 5, two masked accesses of 64 bytes without a branch were faster in L1 (copies take 0.51
//! of libc's time instead of 0.61), and slower for cold data (1.04 instead of 0.93) and if the
//! first bytes are read next. `bench/record/2026-11-25-zen5-2cpu-copy` contains these and the
//! other shapes that were tried on Zen 5, and the records of Intel's processors contain the
//! shapes that were tried on those processors.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

use super::avx512vl;
use crate::arch::line::LINE;
use crate::small;

/// The largest copy in bytes that uses one masked load and store.
pub(crate) const ONE_COPY_MAX: usize = 32;

/// The largest copy in bytes that uses registers of 32 bytes. The limit is not 128, so that one
/// bit of the size gives the offset of the inner pieces.
pub(crate) const COPY_MAX: usize = 127;

/// The largest fill in bytes that uses registers without a loop.
pub(crate) const FILL_MAX: usize = 255;

/// The smallest page, in bytes, on x86-64.
const PAGE: usize = 4096;

/// The bits of `address + 32` that are all zero if a copy of up to [`ONE_COPY_MAX`] bytes at
/// `address` may cross the end of a page.
const COPY_PAGE_BITS: u32 = (PAGE - ONE_COPY_MAX) as u32;

/// The bits of `address + 64` that are all zero if a fill at `address` begins in the last line of a
/// page.
const FILL_PAGE_BITS: u32 = (PAGE - LINE) as u32;

/// [`COPY_PAGE_BITS`] if small copies use masks, else 0. One test of an address therefore says
/// whether a copy there uses masks.
static COPIES: AtomicU32 = AtomicU32::new(0);

/// Like [`COPIES`], for fills.
static FILLS: AtomicU32 = AtomicU32::new(0);

/// A copy of [`COPIES`] for code that is inlined into other crates. Such code reads this static
/// through the global offset table, which costs a load; if there were one static, this crate's
/// code would pay for that load too.
static CALLERS_COPIES: AtomicU32 = AtomicU32::new(0);

/// Like [`CALLERS_COPIES`], for fills.
static CALLERS_FILLS: AtomicU32 = AtomicU32::new(0);

/// Sets whether small copies and fills use masks.
pub(crate) fn set_in_force(by_masks: bool) {
    for (atomic, bits) in [
        (&COPIES, COPY_PAGE_BITS),
        (&CALLERS_COPIES, COPY_PAGE_BITS),
        (&FILLS, FILL_PAGE_BITS),
        (&CALLERS_FILLS, FILL_PAGE_BITS),
    ] {
        atomic.store(if by_masks { bits } else { 0 }, Ordering::SeqCst);
    }
}

/// The address 32 bytes above a copy's target. The address shows whether the target is close to
/// the end of a page. The copy accesses the target relative to this address.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Above(*mut u8);

impl Above {
    /// `None` if the target is in the last bytes of a page, where a mask may be slow, or if the
    /// policy does not use masks. One test of the bits covers both conditions.
    #[inline(always)]
    pub(crate) fn by_policy(target: *mut u8) -> Option<Self> {
        Self::by(target, COPIES.load(Ordering::Relaxed))
    }

    /// Like [`Self::by_policy`], for code that is inlined into other crates.
    #[inline(always)]
    pub(crate) fn by_policy_in_callers(target: *mut u8) -> Option<Self> {
        Self::by(target, CALLERS_COPIES.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn by(target: *mut u8, bits: u32) -> Option<Self> {
        let above: *mut u8;
        // If the compiler could see the sum, it would compute the sum again in callers, which is
        // one more instruction with a result. SAFETY: the instruction accesses no memory.
        unsafe {
            asm!(
                "lea {}, [{} + {}]",
                out(reg) above, in(reg) target, const ONE_COPY_MAX,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        // The lower half of an address contains the offset in its page.
        (above.addr() as u32 & bits != 0).then_some(Self(above))
    }
}

/// memmove of up to [`ONE_COPY_MAX`] bytes. Returns `false`, without a copy, if the source begins
/// in the last bytes of a page, where a mask may be slow.
///
/// If `length` is 0, the memory below the stack pointer replaces both addresses.
///
/// # Safety
/// `source` must be readable and the target writable for `length <= ONE_COPY_MAX` bytes. The
/// processor must have AVX-512 BW and VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn copy_to_32(target: Above, source: *const u8, length: usize) -> bool {
    debug_assert!(length <= ONE_COPY_MAX);
    let source = source.wrapping_add(ONE_COPY_MAX);
    if source.addr() as u32 & COPY_PAGE_BITS == 0 {
        return false;
    }
    // SAFETY: the mask selects `length` bytes, and none at the stack pointer. Only clobbered
    // registers are written.
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
/// `source` must be readable and `target` writable for `length` bytes, which must be more than
/// [`ONE_COPY_MAX`] and at most [`COPY_MAX`]. The processor must have AVX-512 VL.
#[inline(always)]
pub(crate) unsafe fn copy_33_to_127(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length > ONE_COPY_MAX && length <= COPY_MAX);
    let inner = (length & 64) >> 1;
    // The first piece is stored last, so that one store provides the first bytes to a load that
    // follows: a fleet's copies in L1 with the first bytes read next take 0.53 of libc's time
    // instead of 0.55. SAFETY: inner is 32 from 64 bytes on, else 0, so the four pieces of 32 bytes
    // lie inside `length` bytes; they cover [0, 64) and [length - 64, length), or [0, 32) and
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

/// Whether a fill at this address uses masks. It does not use masks in the last line of a page,
/// where a mask may be slow, or if the policy does not use masks.
#[inline(always)]
pub(crate) fn fills_by_policy(target: *mut u8) -> bool {
    fills_by(target, FILLS.load(Ordering::Relaxed))
}

/// Like [`fills_by_policy`], for code that is inlined into other crates.
#[inline(always)]
pub(crate) fn fills_by_policy_in_callers(target: *mut u8) -> bool {
    fills_by(target, CALLERS_FILLS.load(Ordering::Relaxed))
}

#[inline(always)]
fn fills_by(target: *mut u8, bits: u32) -> bool {
    // The lower half of an address contains the offset in its page.
    (target.addr() as u32).wrapping_add(LINE as u32) & bits != 0
}

/// memset of up to [`FILL_MAX`] bytes. Returns `false`, without a write, if `length` is larger.
///
/// The size is compared with a constant: with a limit that must be loaded, a misprediction is
/// detected later (sizes of packets take 1.08 times as long).
///
/// The assembly ends with the smallest sizes, so that a return follows them: with a jump to a
/// return, they take 1.05 to 1.11 times as long. The first half is stored first, so that a load
/// from this half waits less. The code uses the registers of the arguments, so that it can move
/// the return value last. If the return value is moved first, as the compiler would do, a fleet's
/// fills take 1.03 times as long.
///
/// # Safety
/// `target` must be writable for `length` bytes, and should not lie in the last line of a page,
/// where this is slow. The processor must have AVX-512 BW and VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn fill_to_255(target: *mut u8, byte: i32, length: usize) -> bool {
    // SAFETY: the two masks together select `length` bytes. The second mask applies 32 bytes
    // above the first, or at the same address if it is empty. The label `lines` has the lengths
    // that its callee requires. Only clobbered registers are written.
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
                // SAFETY: `length` is above 64 and at most FILL_MAX.
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
/// `target` must be writable for `length` bytes, which must be 65 to [`FILL_MAX`]. The processor
/// must have AVX-512 BW.
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

/// memmove of any length: with masks up to 32 bytes, with AVX-512VL above.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw")]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, the features are enabled here, and each branch has the length
    // that its callee requires.
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

/// memset of any length: with masks up to 64 bytes, with whole lines up to 255, with AVX-512VL
/// above.
///
/// # Safety
/// `target` must be writable for `length` bytes.
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
