//! Metadata of a heap in a file, and of a private one where the kernel counts what can be written
//! to (RLIMIT_DATA): it gets memory before it is touched. The file is sparse, and where
//! the file system is full (of other programs' files, for one) the first touch of a page would be a
//! signal. So it is asked for where it comes into use, and a refusal is an error of the request.
//! What is there is a bit each, which all processes see; it is never given back.
//!
//! - The words of a page and of its slices: before the page is opened.
//! - The words of a span's slots, its count, and what leads to it: before it is built.
//! - A cache's record: before its word is read.

use core::ops::Range;

use super::Memory;
use crate::layout::{PAGE_SLICES, RESERVE, SLICE};
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::step::step;
use crate::protocol::word::CacheId;
use crate::sync::AtomicU16;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sys::{self, machine};
use crate::tables::CacheRecord;

/// Slot words that are brought at once where a span's were not there: two pages, for 256 KiB in
/// blocks of 64 B and 16 MiB in blocks of 4 KiB. More at once would be a longer wait of one
/// allocation, some 2.5 us a page.
const WORDS_AHEAD: usize = 2 * RESERVE / size_of::<AtomicU16>();

const _: () = assert!(CLASSES <= u64::BITS as usize);

impl Memory {
    /// Sees to it that words of the metadata can be touched; false where there is no memory for
    /// them. Reads a word or two where it was done before; else a system call.
    #[inline]
    pub(crate) fn reserve<T>(&self, words: &[T]) -> bool {
        self.is_reserved(words) || self.bring(words)
    }

    /// Whether words of the metadata can be touched.
    #[inline]
    pub(crate) fn is_reserved<T>(&self, words: &[T]) -> bool {
        if !self.is_reserved || words.is_empty() {
            return true;
        }
        let (bits, pieces) = (self.tables.reserved(), pieces(self.tables.place_of(words)));
        pieces.into_iter().all(|piece| bits[piece / 64].load(Acquire) >> (piece % 64) & 1 == 1)
    }

    /// Has the kernel make words of the metadata present for writing without writing to them, where
    /// it can (5.14): elsewhere the first write does it. False where there is no memory for them.
    #[cold]
    pub(crate) fn bring<T>(&self, words: &[T]) -> bool {
        let page = machine::page_bytes();
        let place = self.tables.place_of(words);
        let place = place.start & !(page - 1)..place.end.next_multiple_of(page);
        if !self.is_reserved {
            let start = self.region.metadata().addr().get() + place.start;
            return sys::memory::populate(start, place.len()).is_ok();
        }
        if !self.region.bring_metadata(place.start, place.len()) {
            return false;
        }
        step!("reserve.before_bits");
        let bits = self.tables.reserved();
        for piece in pieces(place) {
            if let Some(word) = bits.get(piece / 64) {
                word.fetch_or(1 << (piece % 64), Release);
            }
        }
        true
    }

    /// Sees to it that the words of these pages and of their slices can be touched.
    pub(super) fn reserve_pages(&self, pages: Range<usize>) -> bool {
        let tables = &self.tables;
        self.reserve(&tables.pages()[pages.clone()])
            && self.reserve(&tables.page_times()[pages.clone()])
            && self.reserve(&tables.page_runs()[pages.clone()])
            && self.reserve(&tables.slices()[pages.start * PAGE_SLICES..pages.end * PAGE_SLICES])
    }

    /// Sees to it that everything can be touched that a span of `class` at `head` needs.
    pub(crate) fn reserve_span(&self, head: usize, class: usize) -> bool {
        if !self.is_reserved {
            return true;
        }
        let (tables, about) = (&self.tables, &TABLE[class]);
        let count = about.span_slices as usize;
        let order = count.trailing_zeros() as usize;
        let slots = (head * SLICE) >> about.shift..((head + count) * SLICE) >> about.shift;
        let (bits, upper) = tables.partial_words(class);
        (self.has_spans(class) || self.reserve(&bits[upper..]))
            && self.reserve_slots(tables.slots(about.shift), slots)
            && self.reserve(&tables.span_free(order)[head >> order..=head >> order])
            && self.reserve(&bits[head / 64..=head / 64])
    }

    /// Sees to it that the words of these slots can be touched, and where they could not yet, those
    /// of some more behind them, if there is memory for these too.
    fn reserve_slots(&self, words: &[AtomicU16], slots: Range<usize>) -> bool {
        let ahead = slots.start..slots.end.max(slots.start + WORDS_AHEAD).min(words.len());
        self.is_reserved(&words[slots.clone()])
            || self.bring(&words[ahead])
            || self.bring(&words[slots])
    }

    /// Whether there can be a span of `class`: else not even a look for one may be had.
    #[inline]
    pub(crate) fn has_spans(&self, class: usize) -> bool {
        !self.is_reserved || self.known.load(Relaxed) >> class & 1 == 1 || self.learns_of(class)
    }

    #[cold]
    fn learns_of(&self, class: usize) -> bool {
        let (bits, upper) = self.tables.partial_words(class);
        let has_spans = self.is_reserved(&bits[upper..]);
        self.known.fetch_or(u64::from(has_spans) << class, Relaxed);
        has_spans
    }

    /// The records of caches that were ever claimed, and perhaps some more, with their identities.
    pub(crate) fn known_caches(&self) -> impl Iterator<Item = (CacheId, &CacheRecord)> {
        let records = self.tables.caches().iter().enumerate();
        let known = records.filter(|(_, record)| self.is_reserved(core::slice::from_ref(*record)));
        known.map(|(index, record)| (index as CacheId + 1, record))
    }
}

/// The pieces that a part of the metadata lies in.
fn pieces(place: Range<usize>) -> Range<usize> {
    place.start / RESERVE..place.end.div_ceil(RESERVE)
}
