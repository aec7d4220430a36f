//! Runs of free slices: a mask of the free slices for each page; and for each page and each group
//! of pages, the number of free slices at the start, at the end, and in the longest run. A group
//! contains [`FANOUT`] pages, a group of the next level contains [`FANOUT`] groups, and so on. So
//! a search reads some dozen words to find a run of any length, in one page or several,
//! independently of the number of live blocks.
//!
//! The words are hints, which report too many free slices rather than too few. A thread that
//! frees slices records this in the page's word, and in the words of groups that report fewer
//! slices, unless it is already recorded ([`freed`]). A thread that claims slices records
//! nothing. So each time that a block is allocated and freed again, only one compare-and-swap is
//! needed. If a page's word misleads a search, the search records the page's current free slices
//! ([`Runs::note_page`]). If a group's word misleads a search, the search corrects the group. If
//! a process dies before it records a run, the next thread that records the whole page adds the
//! run ([`Runs::note`]).
//!
//! A thread that lowers a word computes it from the words below and stores it with a
//! compare-and-swap, until the word equals the computed value. If another thread raises a word
//! below meanwhile, at least one of the two threads reads the other's change, because a barrier
//! separates the change below from the read of the word above.
//!
//! From the bottom up:
//!
//! - `free`: the words of pages and groups;
//! - `search`: the search for a run.

mod free;
mod search;
#[cfg(all(test, not(loom)))]
mod tests;

use core::ops::Range;

use self::free::{Free, PageFree, join, make_consistent};
use self::search::Search;
use super::step::step;
use crate::sync::{AtomicU64, Ordering::SeqCst, barrier};

pub(crate) use self::search::Wanted;

/// The number of pages, or groups of the level below, per group. With 32 per group, an allocation
/// of 262,145 B and its free needed 400 to 640 ns with 10,000 live blocks (two runs on Zen 4),
/// and 236 ns with ten live blocks.
pub(crate) const FANOUT: usize = 1 << FANOUT_SHIFT;

const FANOUT_SHIFT: usize = 3;

/// The number of levels: one for pages, and five for groups. The longest run in a group of the
/// last level is 2^20 slices.
pub(crate) const LEVELS: usize = 6;

/// The words of one node.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    pages: &'a [AtomicU64],
    /// The words of the groups, from the lowest level up.
    groups: &'a [AtomicU64],
    /// The node's first slice. It is needed because alignment is relative to the start of the
    /// heap.
    first: usize,
    page_slices: usize,
}

/// The number of words in a level, for `pages` pages.
const fn level_words(pages: usize, level: usize) -> usize {
    let shift = level * FANOUT_SHIFT;
    (pages + (1 << shift) - 1) >> shift
}

/// The number of words for the groups of `pages` pages, in the levels below `end`.
const fn words_below(pages: usize, end: usize) -> usize {
    let (mut words, mut level) = (0, 1);
    while level < end {
        words += level_words(pages, level);
        level += 1;
    }
    words
}

/// The number of words for the groups of `pages` pages.
pub(crate) const fn group_words(pages: usize) -> usize {
    words_below(pages, LEVELS)
}

/// Records in a page's word that the slices in `mask` are free, one bit per slice. Returns a mask
/// of all slices that are now recorded as free, or `None` if the slices in `mask` were already
/// recorded. If it returns a mask, the caller must [raise](Runs::raise_groups) the groups.
#[inline]
pub(crate) fn freed(page: &AtomicU64, mask: u32) -> Option<u32> {
    let mut old = page.load(SeqCst);
    loop {
        let noted = PageFree(old).mask();
        let new = if noted & mask == mask { old } else { PageFree::of_mask(noted | mask).0 };
        // The compare-and-swap is needed even if the word does not change. It ensures that a
        // thread that is recording fewer free slices for the page detects that these slices are
        // free.
        match page.compare_exchange(old, new, SeqCst, SeqCst) {
            Ok(_) if new == old => return None,
            Ok(_) => return Some(noted | mask),
            Err(other) => old = other,
        }
    }
}

impl<'a> Runs<'a> {
    /// The runs of a node. `first` is the node's first slice, `pages` has a word for each page of
    /// `page_slices` slices, and `groups` has the [`group_words`] words for the groups of these
    /// pages.
    pub(crate) fn new(
        pages: &'a [AtomicU64],
        groups: &'a [AtomicU64],
        first: usize,
        page_slices: usize,
    ) -> Self {
        Self { pages, groups, first, page_slices }
    }

    /// Raises the counts of a page's groups to the counts that follow from the words below, from
    /// the lowest level up to a group that already reports enough. A thread calls this after
    /// [`freed`] has recorded more free slices.
    #[inline(never)]
    pub(crate) fn raise_groups(&self, page: usize) {
        let mut index = page;
        for level in 1..LEVELS {
            step!("runs.note.between");
            index /= FANOUT;
            let word = &self.level(level)[index];
            barrier!();
            let mut old = word.load(SeqCst);
            loop {
                let new = self.joined(level, index).max(Free(old));
                if new == Free(old) {
                    return;
                }
                match word.compare_exchange(old, new.0, SeqCst, SeqCst) {
                    Ok(_) => break,
                    Err(other) => old = other,
                }
            }
        }
    }

    /// Records the free slices in a page that `read` returns, and recomputes all groups of the
    /// page. Returns the slices that are now recorded as free.
    pub(crate) fn note(&self, page: usize, read: impl Fn() -> u32) -> u32 {
        let noted = self.note_page(page, read);
        let mut index = page;
        for level in 1..LEVELS {
            step!("runs.note.between");
            index /= FANOUT;
            self.recompute_group(level, index);
        }
        noted
    }

    /// Records the free slices in a page that `read` returns, but does not change the page's
    /// groups, which may then report too many. Returns the slices that are now recorded as free.
    pub(crate) fn note_page(&self, page: usize, read: impl Fn() -> u32) -> u32 {
        PageFree(recompute(&self.pages[page], || PageFree::of_mask(read()).0)).mask()
    }

    fn recompute_group(&self, level: usize, index: usize) {
        recompute(&self.level(level)[index], || self.joined(level, index).0);
    }

    /// Whether a run that a search found is free, according to the words of its pages. If not,
    /// corrects the groups that misled the search.
    pub(crate) fn is_noted(&self, run: &Range<usize>) -> bool {
        let width = self.page_slices;
        let is_noted = |page: usize| self.has_noted(page, mask_of(run, page * width, width));
        let mut pages = run.start / width..run.end.div_ceil(width);
        let Some(wrong) = pages.find(|page| !is_noted(*page)) else { return true };
        make_consistent(&self.pages[wrong]);
        let mut index = wrong;
        for level in 1..LEVELS {
            index /= FANOUT;
            self.recompute_group(level, index);
        }
        false
    }

    /// Whether these slices of a page are recorded as free.
    #[inline]
    pub(crate) fn has_noted(&self, page: usize, mask: u32) -> bool {
        PageFree(self.pages[page].load(SeqCst)).mask() & mask == mask
    }

    /// The start of the lowest run that matches `wanted`, counted from the node's first slice. A
    /// hint.
    ///
    /// A hole that crosses pages is recorded page by page, the lowest first. A search that reads
    /// the lower page before and the upper one afterwards finds the upper part alone. If a thread
    /// took a run there, it could leave two holes that are too small for such a run. So such a
    /// search is repeated.
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<usize> {
        /// The thread that records the hole may lose its processor before it raises the groups.
        const ATTEMPTS: usize = 8;
        for _ in 1..ATTEMPTS {
            let found = self.find_once(wanted)?;
            if !self.is_middle(found, wanted) {
                return Some(found);
            }
        }
        self.find_once(wanted)
    }

    /// Whether the slice before a run is recorded as free, so that the run may begin there.
    fn is_middle(&self, found: usize, wanted: &Wanted) -> bool {
        if wanted.align != 1 || found <= wanted.from {
            return false;
        }
        let (page, slice) = ((found - 1) / self.page_slices, (found - 1) % self.page_slices);
        // If the words are corrupt, the run may be outside the node.
        let is_middle = page < self.pages.len() && self.has_noted(page, 1 << slice);
        if is_middle {
            self.raise_groups(page);
        }
        is_middle
    }

    fn find_once(&self, wanted: &Wanted) -> Option<usize> {
        let Wanted { from, end, count, .. } = *wanted;
        if from >= end {
            return None;
        }
        let (mut from, mut last) = (from / self.page_slices, (end - 1) / self.page_slices);
        let mut level = 0;
        while level < LEVELS - 1 && last - from >= FANOUT {
            (from, last, level) = (from / FANOUT, last / FANOUT, level + 1);
        }
        let mut search = Search { runs: self, wanted, least: count, tries: 0, before: 0 };
        search.search_level(level, from..last + 1)
    }

    /// The number of slices of a page or group of a level.
    #[inline]
    fn width(&self, level: usize) -> usize {
        self.page_slices << (level * FANOUT_SHIFT)
    }

    /// The words of a level.
    fn level(&self, level: usize) -> &'a [AtomicU64] {
        if level == 0 {
            return self.pages;
        }
        let pages = self.pages.len();
        &self.groups[words_below(pages, level)..][..level_words(pages, level)]
    }

    /// Computes a group's counts from the words below, which are in shared memory and may be
    /// corrupt.
    fn joined(&self, level: usize, index: usize) -> Free {
        let (below, width) = (self.level(level - 1), self.width(level - 1));
        let parts = &below[index * FANOUT..((index + 1) * FANOUT).min(below.len())];
        let joined = match level {
            1 => join(parts, width, |word| PageFree(word).free()),
            _ => join(parts, width, Free),
        };
        if parts.len() == FANOUT { joined } else { Free::new(joined.start(), joined.longest(), 0) }
    }
}

/// A mask of the slices of `run` among the `width` slices from `first` on.
#[inline]
pub(crate) fn mask_of(run: &Range<usize>, first: usize, width: usize) -> u32 {
    let (from, end) = (run.start.max(first) - first, run.end.min(first + width) - first);
    (!0 << from) & (!0 >> (u32::BITS as usize - end))
}

/// How often one call may compute a word. It computes a word again if another thread changed the
/// word or the words below. A peer that corrupts the metadata can do so forever.
const ATTEMPTS: usize = 1000;

/// Sets a word to the value that `read` computes, and returns the value.
fn recompute(word: &AtomicU64, read: impl Fn() -> u64) -> u64 {
    let mut new = 0;
    for _ in 0..ATTEMPTS {
        barrier!();
        let old = word.load(SeqCst);
        new = read();
        if old == new {
            break;
        }
        let _ = word.compare_exchange(old, new, SeqCst, SeqCst);
        step!("runs.recompute.between");
    }
    new
}
