//! The search for a run: it follows the words from the groups down to the pages.

use core::ops::Range;

use super::free::{Free, PageFree, make_consistent};
use super::{FANOUT, Runs};
use crate::sync::{AtomicU64, Ordering::SeqCst};

/// The target of a search: `count` slices that begin at a multiple of `align`, a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) count: usize,
    pub(crate) align: usize,
    /// The search covers the node's slices `from..end`; both numbers are multiples of the slices
    /// per page.
    pub(crate) from: usize,
    pub(crate) end: usize,
    /// Some pages have a run of `count` slices, but not at a multiple of `align`. After the
    /// search has read this many such pages, it follows only runs that are long enough to contain
    /// an aligned run. This limits the duration of a search.
    pub(crate) tries: usize,
}

/// One search.
pub(super) struct Search<'a> {
    pub(super) runs: &'a Runs<'a>,
    pub(super) wanted: &'a Wanted,
    /// The search follows a run within a page or group only if the run has at least this many
    /// slices.
    pub(super) least: usize,
    pub(super) tries: usize,
    /// The number of free slices directly before the current position.
    pub(super) before: usize,
}

impl Search<'_> {
    /// Searches the pages or groups of a level. If their words are corrupt, the result may be
    /// outside the node.
    pub(super) fn search_level(&mut self, level: usize, range: Range<usize>) -> Option<usize> {
        let words = self.runs.level(level);
        let range = range.start..range.end.min(words.len());
        match level {
            0 => self.search_words(level, words, range, |word| PageFree(word).free()),
            _ => self.search_words(level, words, range, Free),
        }
    }

    #[inline(always)]
    fn search_words(
        &mut self,
        level: usize,
        words: &[AtomicU64],
        range: Range<usize>,
        read: impl Fn(u64) -> Free,
    ) -> Option<usize> {
        let width = self.runs.width(level);
        let Wanted { count, from, end, .. } = *self.wanted;
        let range = range.start.max(from / width)..range.end.min(end.div_ceil(width));
        for index in range {
            let start = index * width;
            let word = words[index].load(SeqCst);
            let free = read(word);
            let is_long = free.longest() >= self.least || self.before + free.start() >= count;
            if !is_long && start >= from {
                self.pass(free, width);
                continue;
            }
            let found = match level {
                0 => self.search_page(start, free, PageFree(word).mask()),
                _ => self.search_group(level, index),
            };
            if found.is_some() {
                return found;
            }
            if level == 0 {
                make_consistent(&words[index]);
            }
        }
        None
    }

    /// Searches a group. Corrects the group's counts if it contains no such run.
    fn search_group(&mut self, level: usize, index: usize) -> Option<usize> {
        let found = self.search_level(level - 1, index * FANOUT..(index + 1) * FANOUT);
        if found.is_none() {
            self.runs.recompute_group(level, index);
        }
        found
    }

    /// Searches the runs of a page that begins at `start`. The page's first run continues the
    /// free slices directly before the page.
    fn search_page(&mut self, start: usize, free: Free, mask: u32) -> Option<usize> {
        let width = self.runs.page_slices;
        let found = self.fit(start.saturating_sub(self.before), self.before + free.start());
        if found.is_some() {
            return found;
        }
        let mut at = mask.trailing_ones();
        // After each run there is a slice that is not free.
        while let Some(rest) = mask.checked_shr(at).filter(|rest| *rest != 0) {
            at += rest.trailing_zeros();
            let length = (mask >> at).trailing_ones();
            let found = self.fit(start + at as usize, length as usize);
            if found.is_some() {
                return found;
            }
            at += length;
        }
        self.pass(free, width);
        self.tries += 1;
        if self.tries >= self.wanted.tries {
            self.least = self.wanted.count + self.wanted.align - 1;
        }
        None
    }

    /// Moves past a page or group, and remembers the free slices at its end, which the next page
    /// may continue. So the search finds and corrects a corrupt count at the page where the run
    /// begins.
    #[inline]
    fn pass(&mut self, free: Free, width: usize) {
        let end = free.end().min(width);
        self.before = if free.start() >= width { self.before + width } else { end };
    }

    /// The first position in a free run for the wanted slices; `None` if they do not fit.
    #[inline]
    fn fit(&self, start: usize, length: usize) -> Option<usize> {
        let Wanted { count, align, .. } = *self.wanted;
        if length < count {
            return None;
        }
        // A mask is used, because a division would take as long as the rest of the iteration.
        let at = ((self.runs.first + start + align - 1) & !(align - 1)) - self.runs.first;
        (at + count <= start + length).then_some(at)
    }
}
