//! memset over cache lines: `generic::copy` without the loads.
//!
//! The copy has a block without branches for 257 to 512 bytes; such a block made fills 10%
//! slower, because a loop of stores is too short to hide the branch that leads to the block. The
//! head is one register, as in the copy: on Zen 4, fills of 384 to 2048 bytes take 0.83 to 0.95
//! of libc's time with a head of one register. With a head of two lines, fills take libc's time,
//! and with a head of one line 6% more.

use super::{AHEAD, AHEAD_MIN, BLOCK_MAX, own_step};
use crate::arch::line::LINE;
use crate::arch::{Line, rolled};
use crate::small;

/// memset of any length.
///
/// # Safety
/// `target` must be writable for `length` bytes, and the processor must have `L`'s features.
#[inline(always)]
pub(crate) unsafe fn fill<L: Line>(target: *mut u8, byte: u8, length: usize) {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
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

/// memset of 65 to 256 bytes, with a branch at 128 like `copy_65_to_256`.
///
/// # Safety
/// The conditions of [`fill`] apply, and `length` must be in that range.
#[inline(always)]
pub(crate) unsafe fn fill_65_to_256<L: Line>(target: *mut u8, byte: u8, length: usize) {
    let end = length - LINE;
    // SAFETY: as in `copy_65_to_256`.
    unsafe {
        let line = L::splat(byte);
        line.store(target);
        if length > 2 * LINE {
            line.store(target.add(LINE));
            line.store(target.add(end - LINE));
        }
        line.store(target.add(end));
    }
}

/// memset of more than 256 bytes.
///
/// # Safety
/// The conditions of [`fill`] apply, and `length` must be above 256.
#[inline(always)]
pub(crate) unsafe fn fill_above_256<L: Line>(target: *mut u8, byte: u8, length: usize) {
    let step = L::FILL_STEP * LINE;
    // SAFETY: as in `forward` of the copy: length > 256 >= step; every step starts below length -
    // step, at a multiple of ALIGNMENT that the head reaches.
    unsafe {
        let line = L::splat(byte);
        line.store_first(target);
        let tail = length - step;
        let mut at = L::ALIGNMENT - (target.addr() & (L::ALIGNMENT - 1));
        // The step and the prefetched lines, AHEAD behind it, lie inside.
        while L::OWNS_AHEAD && length >= AHEAD_MIN && at < tail - AHEAD {
            own_step::<L>(target.add(at + AHEAD), L::FILL_STEP);
            store_step_aligned(target.add(at), line);
            at = rolled(at + step);
        }
        while at < tail {
            store_step_aligned(target.add(at), line);
            at = rolled(at + step);
        }
        line.store(target.add(tail));
        line.store(target.add(tail + LINE));
        if L::FILL_STEP == 4 {
            line.store(target.add(tail + 2 * LINE));
            line.store(target.add(tail + 3 * LINE));
        }
    }
}

#[inline(always)]
unsafe fn store_step_aligned<L: Line>(target: *mut u8, line: L) {
    // SAFETY: the caller can write FILL_STEP lines at a multiple of ALIGNMENT, which divides LINE.
    unsafe {
        line.store_aligned(target);
        line.store_aligned(target.add(LINE));
        if L::FILL_STEP == 4 {
            line.store_aligned(target.add(2 * LINE));
            line.store_aligned(target.add(3 * LINE));
        }
    }
}
