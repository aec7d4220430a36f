//! The algorithms, written once over [`Line`](super::Line).
//!
//! Every function here is `#[inline(always)]`: it is inlined into the functions of the instruction
//! set files, which enable the features that it needs.
//!
//! Steps are written out, without closures, iterators or loops over registers. The crate is
//! `no_builtins`, so link-time optimization skips it, although the compiler leaves unrolling to
//! that pass: with `lto = "thin"`, a `for` over four lines stayed a loop over the stack, and a
//! copy of 65 to 256 bytes takes twice libc's time instead of 0.8 of it. A test reads the crate's
//! assembly with and without link-time optimization.
//!
//! From the bottom up:
//!
//! - `copy`: memmove over cache lines;
//! - `fill`: memset over cache lines;
//! - `stream`: memmove and memset that bypass the caches.

mod copy;
mod fill;
mod stream;

pub(crate) use copy::{copy, copy_65_to_256, copy_above_256};
pub(crate) use fill::{fill, fill_65_to_256, fill_above_256};
pub(crate) use stream::{stream_copy, stream_fill};

use crate::arch::Line;
use crate::arch::line::LINE;

/// The largest size in bytes that is copied without a loop.
pub(crate) const BLOCK_MAX: usize = 256;

/// With [`Line::OWNS_AHEAD`], the smallest size whose target is prefetched for writing, and how far
/// ahead of the stores, in bytes.
///
/// If another processor has read the target since it was last written, as in a message queue, a
/// store waits until that processor has given the line up. Stores retire in order, so that these
/// waits add up; prefetches overlap them. On Emerald Rapids, UCX's messages of 256 KiB, which it
/// copies in pieces of 8 KiB, take 0.90 of libc's time with prefetches and 1.10 without. If the
/// target is in the own L1, a copy takes as long as without, or up to 1.15 of its time if the
/// source is not aligned as the target is. Prefetches of every second line take several times as
/// long as none (`bench/record/2026-11-28-emerald-rapids-2cpu-copy`).
pub(crate) const AHEAD_MIN: usize = 2304;
pub(crate) const AHEAD: usize = 512;

/// Prefetches the two or four lines of a step for writing.
#[inline(always)]
fn own_step<L: Line>(target: *const u8, lines: usize) {
    L::prefetch_to_write(target);
    L::prefetch_to_write(target.wrapping_add(LINE));
    if lines == 4 {
        L::prefetch_to_write(target.wrapping_add(2 * LINE));
        L::prefetch_to_write(target.wrapping_add(3 * LINE));
    }
}
