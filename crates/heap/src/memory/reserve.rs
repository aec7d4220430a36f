//! Memory for the metadata of a heap in a file, and of a private heap if the kernel counts
//! writable memory (RLIMIT_DATA). The metadata is sparse. If the file system is full, for example
//! because of other files, the first access to a page would raise a signal. So the heap requests
//! the memory before it uses the metadata, and a refusal is an error of the request. One bit per
//! piece of metadata, visible to all processes, records that the piece has memory. The memory is
//! never given back.
//!
//! - The page word and the slice words for a page: before the page is opened.
//! - The slot words for a span, its count, and its bitmap words: before the span is built.
//! - A cache record: before its word is read.

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

/// Slot words that the kernel maps at once if slot words for a span have no memory: two pages,
/// for 256 KiB in blocks of 64 B or 16 MiB in blocks of 4 KiB. More would make one allocation
/// wait longer, some 2.5 us per page.
const WORDS_AHEAD: usize = 2 * RESERVE / size_of::<AtomicU16>();

const _: () = assert!(CLASSES <= u64::BITS as usize);

impl Memory {
    /// Ensures that words of the metadata can be accessed. Returns false if there is no memory
    /// for them. Reads a word or two if the words already have memory; otherwise makes a system
    /// call.
    #[inline]
    pub(crate) fn reserve<T>(&self, words: &[T]) -> bool {
        self.is_reserved(words) || self.bring(words)
    }

    /// Whether words of the metadata can be accessed.
    #[inline]
    pub(crate) fn is_reserved<T>(&self, words: &[T]) -> bool {
        if !self.is_reserved || words.is_empty() {
            return true;
        }
        let (bits, pieces) = (self.tables.reserved(), pieces(self.tables.range_of(words)));
        pieces.into_iter().all(|piece| bits[piece / 64].load(Acquire) >> (piece % 64) & 1 == 1)
    }

    /// Makes the kernel provide pages for words of the metadata without a write, if the kernel
    /// can (from Linux 5.14). With older kernels, the first write gets the pages. Returns false
    /// if there is no memory for them.
    #[cold]
    pub(crate) fn bring<T>(&self, words: &[T]) -> bool {
        let page = machine::page_bytes();
        let range = self.tables.range_of(words);
        let range = range.start & !(page - 1)..range.end.next_multiple_of(page);
        if !self.is_reserved {
            let start = self.region.metadata().addr().get() + range.start;
            return sys::memory::populate(start, range.len()).is_ok();
        }
        if !self.region.bring_metadata(range.start, range.len()) {
            return false;
        }
        step!("reserve.before_bits");
        let bits = self.tables.reserved();
        for piece in pieces(range) {
            if let Some(word) = bits.get(piece / 64) {
                word.fetch_or(1 << (piece % 64), Release);
            }
        }
        true
    }

    /// Ensures that the page words and slice words for these pages can be accessed.
    pub(super) fn reserve_pages(&self, pages: Range<usize>) -> bool {
        let tables = &self.tables;
        self.reserve(&tables.pages()[pages.clone()])
            && self.reserve(&tables.page_times()[pages.clone()])
            && self.reserve(&tables.page_runs()[pages.clone()])
            && self.reserve(&tables.slices()[pages.start * PAGE_SLICES..pages.end * PAGE_SLICES])
    }

    /// Ensures that all metadata that a span of `class` at `head` needs can be accessed.
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

    /// Ensures that these slot words can be accessed. If they have no memory yet, also makes the
    /// kernel map some of the following words, if there is memory for them.
    fn reserve_slots(&self, words: &[AtomicU16], slots: Range<usize>) -> bool {
        let ahead = slots.start..slots.end.max(slots.start + WORDS_AHEAD).min(words.len());
        self.is_reserved(&words[slots.clone()])
            || self.bring(&words[ahead])
            || self.bring(&words[slots])
    }

    /// Whether there can be a span of `class`. If not, a search must not even read the class's
    /// bitmap.
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

    /// The cache records that were ever claimed, and possibly some more, with their numbers.
    pub(crate) fn known_caches(&self) -> impl Iterator<Item = (CacheId, &CacheRecord)> {
        let records = self.tables.caches().iter().enumerate();
        let known = records.filter(|(_, record)| self.is_reserved(core::slice::from_ref(*record)));
        known.map(|(index, record)| (index as CacheId + 1, record))
    }
}

/// The pieces that contain a range of the metadata.
fn pieces(range: Range<usize>) -> Range<usize> {
    range.start / RESERVE..range.end.div_ceil(RESERVE)
}
