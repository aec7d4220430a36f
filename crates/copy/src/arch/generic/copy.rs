//! memmove over cache lines.
//!
//! # Idea
//!
//! ```text
//! n <= 64:   small::copy
//! n <= 128:  two lines, at 0 and n-64
//! n <= 256:  four lines, at 0, 64, n-128 and n-64
//!            all loads before all stores, so any overlap is fine
//! n <= 512:  the first four and the last two or four lines likewise, where eight fit into the
//!            registers
//! more:      save the head and the tail in registers
//!            forward (target below source, or disjoint): align the target up, step up, then tail
//!            backward (target inside the source): align the target's end down, step down, then
//!            head
//! ```
//!
//! The head and the tail are loaded before the loop stores anything, and are stored after it. The
//! loop may therefore overwrite both, and needs no code for a remainder.
//!
//! The head of a forward copy is one register, or one line if [`Line::COPY_ALIGNMENT`] requires it.
//! A longer head saves no store on average, and costs most at the common sizes that are a multiple
//! of 128 or slightly less. On Zen 4, copies of 640 to 2048 bytes take 1.14 to 1.04 of libc's time
//! with a head of two lines, 1.06 to 1.01 with one line, and 0.98 with one register. If the start
//! is moved so that the number of steps depends on the size alone, the loop's end is mispredicted
//! less, but the loop starts later: 1.04 again.
//!
//! # Known to be suboptimal
//!
//! If sizes are random, the branch that ends the loop is mispredicted about once a call. A block
//! for up to 1024 bytes was 3% slower than the loop: its own branch on the size was mispredicted
//! as often. The block of 257 to 512 bytes has a branch at 384, unless [`Line::EIGHT_LINES`] is
//! set. The branch saves a quarter of the stores: copies from memory take 1.00 instead of 1.11 of
//! libc's time, copies in L1 take 0.93 instead of 0.86.

use super::{AHEAD, AHEAD_MIN, BLOCK_MAX, own_step};
use crate::arch::line::LINE;
use crate::arch::{Line, rolled};
use crate::small;

/// memmove of any length.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, and the processor must have
/// `L`'s features.
#[inline(always)]
pub(crate) unsafe fn copy<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise, and each branch has the length that its callee requires.
    unsafe {
        if length <= small::SMALL_MAX {
            small::copy(target, source, length);
        } else if length <= BLOCK_MAX {
            copy_65_to_256::<L>(target, source, length);
        } else {
            copy_above_256::<L>(target, source, length);
        }
    }
}

/// memmove of 65 to 256 bytes, with a branch at 128.
///
/// Four lines without a branch would cover all these sizes, and are faster if no predictor knows
/// the size. But they take twice the C library's time if a predictor knows it: with 65 to 128 bytes
/// they store every byte twice.
///
/// # Safety
/// The conditions of [`copy`] apply, and `length` must be in that range.
#[inline(always)]
pub(crate) unsafe fn copy_65_to_256<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    let end = length - LINE;
    // SAFETY: up to 128 bytes, the two lines lie inside `length` bytes and cover them; both loads
    // precede both stores. Above, so do the four lines.
    unsafe {
        if length <= 2 * LINE {
            let first = L::load(source);
            let last = L::load(source.add(end));
            first.store(target);
            last.store(target.add(end));
        } else {
            L::move_4(
                [target, target.add(LINE), target.add(end - LINE), target.add(end)],
                [source, source.add(LINE), source.add(end - LINE), source.add(end)],
            );
        }
    }
}

/// memmove of more than 256 bytes.
///
/// # Safety
/// The conditions of [`copy`] apply, and `length` must be above 256.
#[inline(always)]
pub(crate) unsafe fn copy_above_256<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    // One comparison covers disjoint and overlapping areas: if the target is below the source,
    // the difference wraps to a huge distance above the source.
    let distance = target.addr().wrapping_sub(source.addr());
    // SAFETY: the caller's promise, each branch has the length that its callee requires, and
    // `backward` is chosen exactly if the target starts inside the source.
    unsafe {
        if length <= 512 && L::HELD >= 8 {
            copy_257_to_512::<L>(target, source, length);
        } else if distance >= length {
            forward::<L>(target, source, length);
        } else {
            backward::<L>(target, source, length);
        }
    }
}

/// # Safety
/// The conditions of [`copy_above_256`] apply, and `length` must be at most 512.
#[inline(always)]
unsafe fn copy_257_to_512<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    let inner = 2 * LINE;
    let end = length - 2 * LINE;
    // SAFETY: `length` is larger than two pieces of two lines and at most four pieces. If it is
    // up to three pieces, the first two pieces and the last one lie inside it and cover it. If it
    // is more, the first two pieces and the last two do. All loads precede all stores.
    unsafe {
        if !L::EIGHT_LINES && length <= 6 * LINE {
            let a = load_2::<L>(source);
            let b = load_2::<L>(source.add(inner));
            let c = load_2::<L>(source.add(end));
            store_2(target, a);
            store_2(target.add(inner), b);
            store_2(target.add(end), c);
            return;
        }
        let a = load_2::<L>(source);
        let b = load_2::<L>(source.add(inner));
        let c = load_2::<L>(source.add(end - inner));
        let d = load_2::<L>(source.add(end));
        store_2(target, a);
        store_2(target.add(inner), b);
        store_2(target.add(end - inner), c);
        store_2(target.add(end), d);
    }
}

/// # Safety
/// The conditions of [`copy_above_256`] apply, and the target must not start inside the source.
#[inline(always)]
unsafe fn forward<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    let step = L::STEP * LINE;
    // SAFETY: length > 256 >= step, so head and tail lie inside. `at` starts at most
    // COPY_ALIGNMENT - 1 below COPY_ALIGNMENT, where the head ends, and grows by `step` while it
    // is below length - step, so each step ends below `length`; the tail covers the remaining
    // bytes. target + at is a multiple of ALIGNMENT because `step` is a multiple of it too. A
    // step completes its loads before it stores, and stores only below what later steps load.
    unsafe {
        let head = L::load(source);
        let tail_start = length - step;
        let tail = load_step::<L>(source.add(tail_start));
        let mut at = L::COPY_ALIGNMENT - (target.addr() & (L::COPY_ALIGNMENT - 1));
        // The step and the prefetched lines, AHEAD behind it, lie inside.
        while L::OWNS_AHEAD && length >= AHEAD_MIN && at < tail_start - AHEAD {
            own_step::<L>(target.add(at + AHEAD), L::STEP);
            let lines = load_step::<L>(source.add(at));
            store_step_aligned(target.add(at), lines);
            at = rolled(at + step);
        }
        while at < tail_start {
            let lines = load_step::<L>(source.add(at));
            store_step_aligned(target.add(at), lines);
            at = rolled(at + step);
        }
        store_step(target.add(tail_start), tail);
        match L::COPY_ALIGNMENT == LINE {
            true => head.store(target),
            false => head.store_first(target),
        }
    }
}

/// # Safety
/// The conditions of [`copy_above_256`] apply, and the target must start inside the source or at
/// the source's start.
#[inline(always)]
unsafe fn backward<L: Line>(target: *mut u8, source: *const u8, length: usize) {
    let step = L::STEP * LINE;
    // SAFETY: the mirror of `forward`. `end` starts at most COPY_ALIGNMENT below `length`, at a
    // multiple of COPY_ALIGNMENT, and shrinks by `step` while it is above `step`, so no step
    // starts below 0; the head covers the remaining bytes.
    unsafe {
        let head = load_step::<L>(source);
        let tail = L::load(source.add(length - LINE));
        let past = target.addr().wrapping_add(length) & (L::COPY_ALIGNMENT - 1);
        let mut end = length - past;
        while end > step {
            end = rolled(end - step);
            let lines = load_step::<L>(source.add(end));
            store_step_aligned(target.add(end), lines);
        }
        tail.store(target.add(length - LINE));
        store_step(target, head);
    }
}

#[inline(always)]
unsafe fn load_2<L: Line>(source: *const u8) -> [L; 2] {
    // SAFETY: the caller can read two lines.
    unsafe { [L::load(source), L::load(source.add(LINE))] }
}

#[inline(always)]
unsafe fn store_2<L: Line>(target: *mut u8, lines: [L; 2]) {
    // SAFETY: the caller can write two lines.
    unsafe {
        lines[0].store(target);
        lines[1].store(target.add(LINE));
    }
}

/// The lines of a step: lines beyond [`Line::STEP`] repeat the first line, and the compiler drops
/// them.
type Step<L> = [L; 4];

#[inline(always)]
unsafe fn load_step<L: Line>(source: *const u8) -> Step<L> {
    // SAFETY: the caller can read STEP lines.
    unsafe {
        let first = L::load(source);
        let second = if L::STEP >= 2 { L::load(source.add(LINE)) } else { first };
        if L::STEP < 4 {
            return [first, second, first, second];
        }
        [first, second, L::load(source.add(2 * LINE)), L::load(source.add(3 * LINE))]
    }
}

#[inline(always)]
unsafe fn store_step<L: Line>(target: *mut u8, lines: Step<L>) {
    // SAFETY: the caller can write STEP lines.
    unsafe {
        lines[0].store(target);
        if L::STEP >= 2 {
            lines[1].store(target.add(LINE));
        }
        if L::STEP >= 4 {
            lines[2].store(target.add(2 * LINE));
            lines[3].store(target.add(3 * LINE));
        }
    }
}

#[inline(always)]
unsafe fn store_step_aligned<L: Line>(target: *mut u8, lines: Step<L>) {
    // SAFETY: the caller can write STEP lines at a multiple of ALIGNMENT, which divides LINE.
    unsafe {
        lines[0].store_aligned(target);
        if L::STEP >= 2 {
            lines[1].store_aligned(target.add(LINE));
        }
        if L::STEP >= 4 {
            lines[2].store_aligned(target.add(2 * LINE));
            lines[3].store_aligned(target.add(3 * LINE));
        }
    }
}
