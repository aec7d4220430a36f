//! Non-temporal copy and fill: the target bypasses the caches.
//!
//! # Idea
//!
//! A plain store reads the target's line before it overwrites it, and evicts a line that may
//! still be needed. A non-temporal store does neither. Non-temporal stores are faster if the
//! target is larger than the last-level cache or is not read soon, and slower if the target is
//! read soon.
//!
//! A copy has two forms. `PAGES` = 1 copies consecutively and prefetches the source [`AHEAD`] bytes
//! before it is loaded. `PAGES` = 4 interleaves four pages, two lines of each in turn, so that four
//! streams of the hardware prefetcher and four DRAM pages are open at once.
//!
//! ```text
//! copy the head up to a line boundary of the target
//! for each group of PAGES pages: for each two lines of a page: for each page: load, stream
//! stream the remaining lines one after the other; copy the tail with plain stores; fence
//! ```
//!
//! Streaming stores are not ordered with other stores, so every path that streams ends in the
//! fence.
//!
//! # What was tried
//!
//! On Zen 4, copying 64 and 256 MiB with one thread, in GB/s (glibc 2.36: 12): consecutive pages
//! 18; with a prefetch 2 KiB ahead 21, 1 KiB ahead 20, 8 KiB ahead 19; four interleaved pages 15,
//! two 13; blocks of 4 KiB through L1 16; plain stores 12, with `prefetchw` 11.

use super::{BLOCK_MAX, copy, fill};
use crate::arch::Line;
use crate::arch::line::LINE;

/// The size of the pages whose streams are interleaved. Larger pages consist of such pages.
const PAGE: usize = 4096;

/// The distance in bytes between a prefetch of the source and its load.
const AHEAD: usize = 2048;

/// The number of bytes that are copied in one page before the copy continues in the next page.
const TURN: usize = 2 * LINE;

/// memmove of any length. Streams copies that are longer than 256 bytes and do not overlap.
///
/// # Safety
/// `source` must be readable and `target` writable for `length` bytes, and the processor must have
/// `L`'s features.
#[inline(always)]
pub(crate) unsafe fn stream_copy<L: Line, const PAGES: usize>(
    mut target: *mut u8,
    mut source: *const u8,
    mut length: usize,
) {
    let apart = target.addr().abs_diff(source.addr()) >= length;
    // SAFETY: the caller's promise. The head makes `target` a multiple of LINE and is at most
    // LINE - 1 < length bytes; each group and each line changes all three variables together, and
    // only while that many bytes remain.
    unsafe {
        if length <= BLOCK_MAX || !apart {
            return copy::<L>(target, source, length);
        }
        let head = target.addr().wrapping_neg() & (LINE - 1);
        crate::small::copy(target, source, head);
        (target, source, length) = (target.add(head), source.add(head), length - head);
        while length >= PAGES * PAGE {
            stream_group::<L, PAGES>(target, source);
            (target, source) = (target.add(PAGES * PAGE), source.add(PAGES * PAGE));
            length -= PAGES * PAGE;
        }
        while length >= LINE {
            L::load(source).stream(target);
            (target, source) = (target.add(LINE), source.add(LINE));
            length -= LINE;
        }
        crate::small::copy(target, source, length);
    }
    L::fence();
}

/// # Safety
/// `source` must be readable and `target` writable for `PAGES * PAGE` bytes, and `target` must be a
/// multiple of LINE.
#[inline(always)]
unsafe fn stream_group<L: Line, const PAGES: usize>(target: *mut u8, source: *const u8) {
    let mut at = 0;
    while at < PAGE {
        let mut page = at;
        while page < PAGES * PAGE {
            // SAFETY: page + TURN <= PAGES * PAGE, because TURN divides PAGE. A prefetch never
            // faults.
            unsafe {
                let (target, source) = (target.add(page), source.add(page));
                L::prefetch(source.wrapping_add(AHEAD));
                L::prefetch(source.wrapping_add(AHEAD + LINE));
                L::load(source).stream(target);
                L::load(source.add(LINE)).stream(target.add(LINE));
            }
            page += PAGE;
        }
        at += TURN;
    }
}

/// memset of any length. Streams fills that are longer than 256 bytes.
///
/// # Safety
/// `target` must be writable for `length` bytes, and the processor must have `L`'s features.
#[inline(always)]
pub(crate) unsafe fn stream_fill<L: Line>(mut target: *mut u8, byte: u8, mut length: usize) {
    // SAFETY: as in `stream_copy`.
    unsafe {
        if length <= BLOCK_MAX {
            return fill::<L>(target, byte, length);
        }
        let head = target.addr().wrapping_neg() & (LINE - 1);
        crate::small::fill(target, byte, head);
        (target, length) = (target.add(head), length - head);
        let line = L::splat(byte);
        while length >= LINE {
            line.stream(target);
            target = target.add(LINE);
            length -= LINE;
        }
        crate::small::fill(target, byte, length);
    }
    L::fence();
}
