//! memset over cache lines: `generic::copy` without the loads.
//!
//! A block without branches for 257 to 512 bytes, which the copy has, lost 10% here: a loop of
//! stores is too short to hide the branch that leads to it. The head is one register, as the
//! copy's: with two lines fills of 384 to 2048 bytes took libc's time on Zen 4, with one register
//! 0.83 to 0.95 of it, with one line 6% more than with two.

use super::BLOCK_MAX;
use crate::arch::line::LINE;
use crate::arch::{Line, rolled};
use crate::small;

/// memset of any length.
///
/// # Safety
/// `target` is writable for `length` bytes; the processor has `L`'s features.
#[inline(always)]
pub(crate) unsafe fn fill<L: Line>(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller's promise, and the length that each asks for.
    unsafe {
        if length <= small::SMALL_MAX {
            small::fill(target, byte, length);
        } else if length <= BLOCK_MAX {
            fill_65_to_256::<L>(target, byte, length);
        } else {
            fill_above_256::<L>(target, byte, length);
        }
    }
}

/// memset of 65 to 256 bytes, without a branch.
///
/// # Safety
/// As [`fill`], and the length is in that range.
#[inline(always)]
pub(crate) unsafe fn fill_65_to_256<L: Line>(target: *mut u8, byte: u8, length: usize) {
    let inner = small::inner_offset::<128>(length);
    let end = length - LINE;
    // SAFETY: as in `copy_65_to_256`.
    unsafe {
        let line = L::splat(byte);
        line.store(target);
        line.store(target.add(inner));
        line.store(target.add(end - inner));
        line.store(target.add(end));
    }
}

/// memset of 65 to 256 bytes with a branch at 128: see `copy_65_to_256_branching`.
///
/// # Safety
/// As [`fill`], and the length is in that range.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline(always)]
pub(crate) unsafe fn fill_65_to_256_branching<L: Line>(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: as in `copy_65_to_256_branching`.
    unsafe {
        if length <= 2 * LINE {
            let line = L::splat(byte);
            line.store(target);
            line.store(target.add(length - LINE));
        } else {
            fill_65_to_256::<L>(target, byte, length);
        }
    }
}

/// memset of more than 256 bytes.
///
/// # Safety
/// As [`fill`], and `length > 256`.
#[inline(always)]
pub(crate) unsafe fn fill_above_256<L: Line>(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller's promise, and a step is at most the length less one.
    unsafe {
        if L::FILL_STEP == 4 && length > 512 {
            by_steps::<L, 4>(target, byte, length);
        } else {
            by_steps::<L, 2>(target, byte, length);
        }
    }
}

/// # Safety
/// As [`fill_above_256`]; `LINES` is 2 or 4.
#[inline(always)]
unsafe fn by_steps<L: Line, const LINES: usize>(target: *mut u8, byte: u8, length: usize) {
    let step = LINES * LINE;
    // SAFETY: as in `forward` of the copy: length > 256 >= step; every step starts below length -
    // step, at a multiple of ALIGNMENT that the head reaches.
    unsafe {
        let line = L::splat(byte);
        line.store_first(target);
        let tail = length - step;
        let mut at = L::ALIGNMENT - (target.addr() & (L::ALIGNMENT - 1));
        while at < tail {
            line.store_aligned(target.add(at));
            line.store_aligned(target.add(at + LINE));
            if LINES == 4 {
                line.store_aligned(target.add(at + 2 * LINE));
                line.store_aligned(target.add(at + 3 * LINE));
            }
            at = rolled(at + step);
        }
        line.store(target.add(tail));
        line.store(target.add(tail + LINE));
        if LINES == 4 {
            line.store(target.add(tail + 2 * LINE));
            line.store(target.add(tail + 3 * LINE));
        }
    }
}
