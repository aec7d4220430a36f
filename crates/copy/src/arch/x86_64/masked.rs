//! Small copies and fills by masked loads and stores of AVX-512: no branch on the size.
//!
//! # Idea
//!
//! ```text
//! copy, n <= 128:  k = the lowest min(n, 64) bits
//!                  64 bytes at 0 under k, 64 at max(n, 64) - 64 under k: loads, then stores
//! fill, n <= 255:  64 bytes at 0 under k
//!                  n > 64: 64 bytes at three places that cover the rest; else three times to a
//!                  scratch
//! ```
//!
//! A mask that is all ones costs nothing, so one mask serves both halves: the second, where n is 64
//! or less, moves the same bytes again. A fill's other stores go elsewhere then, because a load
//! that follows would have to wait for the last of several stores to its bytes.
//!
//! A masked access does not fault for what it masks out, but takes the microcode 150 ns if that
//! lies in a page that cannot be accessed that way: not mapped, never written to, or read-only. So
//! what comes within 64 bytes of a page's end goes by pieces. A copy of no bytes, a fifth of a
//! fleet's calls of memmove, may have any address: a scratch takes its place, because a branch is
//! mispredicted as often as it is taken (0.43 instead of 0.51). Fills of none are rare.
//!
//! zmm16 and up have no SSE halves: no `vzeroupper` before the return. Assembly, because the
//! compiler would choose zmm0, and because bytes that were never written may be copied, but are no
//! integers.
//!
//! # What was tried
//!
//! Geometric mean over a fleet's distributions in L1, of libc's time: nothing read after, the first
//! 8 bytes read. Copies: one access to 64 bytes and a branch there 0.43, 0.56; four up to 256 bytes
//! 0.39, 0.65; the second half at 64 under a mask of its own 0.40, 0.55, but within 128 bytes of a
//! page's end. Fills: one store and a branch at 64 0.84, 0.96; two to 128 0.81, 1.02; four to the
//! same 64 bytes 0.67, 1.06; to a scratch 0.68, 0.91. Of the sizes of one program that fills 16 to
//! 31 bytes mostly, where the first bytes are read: 1.18 of libc's time; the masked store last
//! 1.35, four stores of 32 bytes 1.30, an address for no bytes chosen before it 1.22.

use core::arch::asm;
use core::arch::x86_64::_bzhi_u64;
use core::hint::select_unpredictable as select;
use core::mem::MaybeUninit;

use super::avx512vl;
use crate::arch::line::LINE;
use crate::small;

/// The largest copy in bytes that goes by masks.
pub(crate) const COPY_MAX: usize = 128;

/// The largest fill in bytes that goes by masks: `bzhi` looks at the lowest eight bits of a size.
pub(crate) const FILL_MAX: usize = 255;

/// The smallest page, in bytes, on x86-64.
const PAGE: usize = 4096;

/// Whether 64 bytes from `address` on lie in two pages.
#[inline(always)]
fn crosses(address: usize) -> bool {
    address & (PAGE - 1) > PAGE - LINE
}

/// Whether a masked copy is as fast as it should be at these places.
#[inline(always)]
pub(crate) fn is_copy_fast(target: *mut u8, source: *const u8) -> bool {
    !(crosses(source.addr()) || crosses(target.addr()))
}

/// Whether a masked fill is as fast as it should be at this place.
#[inline(always)]
pub(crate) fn is_fill_fast(target: *mut u8) -> bool {
    !crosses(target.addr())
}

/// # Safety
/// `source` is readable and `target` writable for `length <= COPY_MAX` bytes; AVX-512 BW and VL,
/// and BMI2.
#[inline(always)]
pub(crate) unsafe fn copy_to_128(target: *mut u8, source: *const u8, length: usize) {
    debug_assert!(length <= COPY_MAX);
    let mut scratch = MaybeUninit::<[u8; LINE]>::uninit();
    let scratch = crate::opaque::same(scratch.as_mut_ptr().cast());
    let source = select(length == 0, scratch.cast_const(), source);
    let target = select(length == 0, scratch, target);
    let end = length.saturating_sub(LINE);
    // SAFETY: the caller has BMI2.
    let mask = unsafe { _bzhi_u64(u64::MAX, length as u32) };
    // SAFETY: under the mask, which is empty at the scratch, the first access is to the first
    // min(length, 64) bytes and the second to as many that end at `length`. Loads precede stores.
    // Only clobbered registers are written.
    unsafe {
        asm!(
            "kmovq k1, {mask}",
            "vmovdqu8 zmm16 {{k1}} {{z}}, zmmword ptr [{source}]",
            "vmovdqu8 zmm17 {{k1}} {{z}}, zmmword ptr [{source} + {end}]",
            "vmovdqu8 zmmword ptr [{target}] {{k1}}, zmm16",
            "vmovdqu8 zmmword ptr [{target} + {end}] {{k1}}, zmm17",
            mask = in(reg) mask, end = in(reg) end,
            source = in(reg) source, target = in(reg) target,
            out("k1") _, out("zmm16") _, out("zmm17") _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// `target` is writable for `length <= FILL_MAX` bytes; AVX-512 BW and VL, and BMI2.
#[inline(always)]
pub(crate) unsafe fn fill_to_255(target: *mut u8, byte: i32, length: usize) {
    debug_assert!(length <= FILL_MAX);
    let mut scratch = MaybeUninit::<[u8; LINE]>::uninit();
    let scratch = crate::opaque::same(scratch.as_mut_ptr().cast());
    let rest = select(length > LINE, target, scratch);
    let end = length.saturating_sub(LINE);
    let inner = end.min(LINE);
    // SAFETY: the caller has BMI2.
    let mask = unsafe { _bzhi_u64(u64::MAX, length as u32) };
    // SAFETY: under the mask, the first store is to the first min(length, 64) bytes. Where there
    // are more, the others lie at min(end, 64), at what that leaves of `end`, and at `end`, each
    // with 64 bytes below `length`: they cover [64, 128) or all, and the last two lines. Else all
    // three are the scratch. Only clobbered registers are written.
    unsafe {
        asm!(
            "kmovq k1, {mask}",
            "vpbroadcastb zmm16, {byte:e}",
            "vmovdqu8 zmmword ptr [{target}] {{k1}}, zmm16",
            "vmovdqu64 zmmword ptr [{rest} + {end}], zmm16",
            "vmovdqu64 zmmword ptr [{rest} + {outer}], zmm16",
            "vmovdqu64 zmmword ptr [{rest} + {inner}], zmm16",
            mask = in(reg) mask, byte = in(reg) byte, target = in(reg) target,
            rest = in(reg) rest, end = in(reg) end, inner = in(reg) inner, outer = in(reg) end - inner,
            out("k1") _, out("zmm16") _,
            options(nostack, preserves_flags),
        );
    }
}

/// memmove of any length: by masks up to 128 bytes, above by AVX-512VL.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes.
#[target_feature(enable = "avx2,bmi2,avx512f,avx512vl,avx512bw")]
pub(crate) unsafe extern "C" fn copy(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's promise, and the features are enabled here.
    unsafe {
        if length > COPY_MAX || length > small::SMALL_MAX && !is_copy_fast(target, source) {
            return avx512vl::copy(target, source, length);
        }
        if is_copy_fast(target, source) {
            copy_to_128(target, source, length);
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
        if length > FILL_MAX || !is_fill_fast(target) {
            return avx512vl::fill(target, byte, length);
        }
        fill_to_255(target, byte, length);
    }
    crate::arch::same(target)
}
