//! Non-temporal copy and fill: the target goes past the caches.
//!
//! # Idea
//!
//! A plain store reads the target's line before it overwrites it, and pushes out a line that
//! somebody may want. A non-temporal store does neither. It pays where the target is larger than
//! the last-level cache or will not be read soon, and costs where it will.
//!
//! Pages are interleaved: four are copied side by side, one line of each in turn, so that four
//! streams of the hardware prefetcher and four DRAM pages are open at once.
//!
//! ```text
//! copy the head up to a line boundary of the target
//! for each group of four pages: for each line of a page: for each page: load, stream
//! the lines that are left one after the other, streamed; the tail plainly; fence
//! ```
//!
//! Streaming stores are ordered with nothing: every path that streamed ends in the fence.

use super::{BLOCK_MAX, copy, fill};
use crate::arch::Line;
use crate::arch::line::LINE;

/// The page size whose streams are interleaved. Larger pages contain these.
const PAGE: usize = 4096;

/// How many pages are copied side by side.
const PAGES: usize = 4;

/// How far ahead of the load the source is prefetched, in bytes.
const AHEAD: usize = 8 * LINE;

/// memmove of any length; streams what is longer than 256 bytes and does not overlap.
///
/// # Safety
/// `source` is readable and `target` writable for `length` bytes; the processor has `L`'s features.
#[inline(always)]
pub(crate) unsafe fn stream_copy<L: Line>(
    mut target: *mut u8,
    mut source: *const u8,
    mut length: usize,
) {
    let apart = target.addr().abs_diff(source.addr()) >= length;
    // SAFETY: the caller's promise. The head makes `target` a multiple of LINE and is at most
    // LINE - 1 < length bytes; groups and lines advance all three together while that much is left.
    unsafe {
        if length <= BLOCK_MAX || !apart {
            return copy::<L>(target, source, length);
        }
        let head = target.addr().wrapping_neg() & (LINE - 1);
        crate::small::copy(target, source, head);
        (target, source, length) = (target.add(head), source.add(head), length - head);
        while length >= PAGES * PAGE {
            stream_group::<L>(target, source);
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
/// `PAGES * PAGE` bytes can be read and written; LINE divides `target`.
#[inline(always)]
unsafe fn stream_group<L: Line>(target: *mut u8, source: *const u8) {
    let mut at = 0;
    while at < PAGE {
        // SAFETY: at + (PAGES - 1) * PAGE + LINE <= PAGES * PAGE. A prefetch never faults.
        unsafe {
            let mut page = 0;
            while page < PAGES * PAGE {
                L::prefetch(source.wrapping_add(at + page + AHEAD));
                page += PAGE;
            }
            page = 0;
            while page < PAGES * PAGE {
                L::load(source.add(at + page)).stream(target.add(at + page));
                page += PAGE;
            }
        }
        at += LINE;
    }
}

/// memset of any length; streams what is longer than 256 bytes.
///
/// # Safety
/// `target` is writable for `length` bytes; the processor has `L`'s features.
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
