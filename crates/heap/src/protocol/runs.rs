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

use core::ops::Range;

use super::step::step;
use crate::sync::{AtomicU64, Ordering::SeqCst, barrier};

/// Pages, or groups of the level below, per group. With 32 per group, an allocation of 262,145 B
/// and its free needed 400 to 640 ns with 10,000 live blocks (two runs on Zen 4), and 236 ns with
/// ten live blocks.
pub(crate) const FANOUT: usize = 1 << FANOUT_SHIFT;

const FANOUT_SHIFT: usize = 3;

/// The number of levels: one for pages, and five for groups. The longest run in a group of the
/// last level is 2^20 slices.
pub(crate) const LEVELS: usize = 6;

const BITS: u32 = 21;

/// Three counts of free slices in a page or a group: at the start, in the longest run, and at the
/// end. Each has 21 bits; the first is in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Free(u64);

impl Free {
    const fn new(start: usize, longest: usize, end: usize) -> Self {
        Self(start as u64 | (longest as u64) << BITS | (end as u64) << (2 * BITS))
    }

    /// The counts for a page of 32 slices. The set bits of `mask` are the free slices.
    const fn of_mask(mask: u32) -> Self {
        // Bit i of `ends[k]`: a run of 2^k slices ends at slice i.
        let mut ends = [mask; 6];
        let mut k = 1;
        while k < 6 {
            ends[k] = ends[k - 1] & ends[k - 1] << (1 << (k - 1));
            k += 1;
        }
        // Bit i of `remaining`: a run of `longest` slices ends at slice i.
        let (mut remaining, mut longest) = (!0, 0);
        while k > 0 {
            k -= 1;
            let longer = if longest < 32 { remaining & ends[k] << longest } else { 0 };
            if longer != 0 {
                (remaining, longest) = (longer, longest + (1 << k));
            }
        }
        Self::new(mask.trailing_ones() as usize, longest, mask.leading_ones() as usize)
    }

    const fn part(self, index: u32) -> usize {
        (self.0 >> (index * BITS)) as usize & ((1 << BITS) - 1)
    }

    const fn start(self) -> usize {
        self.part(0)
    }

    const fn longest(self) -> usize {
        self.part(1)
    }

    const fn end(self) -> usize {
        self.part(2)
    }

    /// For each of the three counts, the greater of the two values.
    fn max(self, other: Self) -> Self {
        Self::new(
            self.start().max(other.start()),
            self.longest().max(other.longest()),
            self.end().max(other.end()),
        )
    }
}

/// The free slices in a page: one bit per slice, and above these bits the three counts of
/// [`Free`], 6 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
struct PageFree(u64);

const PAGE_BITS: u32 = 6;

impl PageFree {
    const fn of_mask(mask: u32) -> Self {
        let free = Free::of_mask(mask);
        let (start, longest, end) = (free.start() as u64, free.longest() as u64, free.end() as u64);
        let numbers = start | longest << PAGE_BITS | end << (2 * PAGE_BITS);
        Self(mask as u64 | numbers << u32::BITS)
    }

    const fn mask(self) -> u32 {
        self.0 as u32
    }

    const fn free(self) -> Free {
        let numbers = (self.0 >> u32::BITS) as usize;
        let most = (1 << PAGE_BITS) - 1;
        Free::new(numbers & most, numbers >> PAGE_BITS & most, numbers >> (2 * PAGE_BITS) & most)
    }
}

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
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<usize> {
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

/// Computes the counts of a group from the words of its `parts`, which have `width` slices each.
#[inline(always)]
fn join(parts: &[AtomicU64], width: usize, read: impl Fn(u64) -> Free) -> Free {
    let (mut start, mut longest, mut run, mut all) = (0, 0, 0, 0);
    for part in parts {
        let free = read(part.load(SeqCst));
        let (first, is_full) = (free.start().min(width), free.start() >= width);
        start += if start == all { first } else { 0 };
        longest = longest.max(free.longest().min(width)).max(run + first);
        run = if is_full { run + width } else { free.end().min(width) };
        all += width;
    }
    Free::new(start, longest, run)
}

/// Makes the counts in a page's word consistent with its bits. They are inconsistent only if
/// another process has corrupted the word. Without this correction, every search would follow a
/// run that does not exist.
fn make_consistent(page: &AtomicU64) {
    let word = page.load(SeqCst);
    let consistent = PageFree::of_mask(PageFree(word).mask()).0;
    if word != consistent {
        let _ = page.compare_exchange(word, consistent, SeqCst, SeqCst);
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

/// One search.
struct Search<'a> {
    runs: &'a Runs<'a>,
    wanted: &'a Wanted,
    /// The search follows a run within a page or group only if the run has at least this many
    /// slices.
    least: usize,
    tries: usize,
    /// The number of free slices directly before the current position.
    before: usize,
}

impl Search<'_> {
    /// Searches the pages or groups of a level. If their words are corrupt, the result may be
    /// outside the node.
    fn search_level(&mut self, level: usize, range: Range<usize>) -> Option<usize> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const PAGE: usize = 32;

    /// A node: for each page a mask of its free slices, and the words of its pages and groups.
    struct Node {
        masks: Vec<u32>,
        pages: Vec<AtomicU64>,
        groups: Vec<AtomicU64>,
        first: usize,
    }

    impl Node {
        fn new(masks: Vec<u32>, first: usize) -> Self {
            let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            let (pages, groups) = (words(masks.len()), words(group_words(masks.len())));
            let node = Self { masks, pages, groups, first };
            (0..node.masks.len()).for_each(|page| node.note(page));
            node
        }

        fn runs(&self) -> Runs<'_> {
            Runs::new(&self.pages, &self.groups, self.first, PAGE)
        }

        fn note(&self, page: usize) {
            self.runs().note(page, || self.masks[page]);
        }

        fn find(&self, count: usize, align: usize, from: usize, tries: usize) -> Option<usize> {
            let end = self.masks.len() * PAGE;
            let wanted = Wanted { count, align, from, end, tries };
            self.runs().find(&wanted)
        }

        /// The expected result, from a search that reads each slice.
        fn expected(&self, count: usize, align: usize, from: usize) -> Option<usize> {
            let is_free = |slice: usize| self.masks[slice / PAGE] >> (slice % PAGE) & 1 == 1;
            let mut run = 0;
            for slice in from..self.masks.len() * PAGE {
                run = if is_free(slice) { run + 1 } else { 0 };
                let at = (self.first + slice + 1 - run).next_multiple_of(align) - self.first;
                if run > 0 && at + count <= slice + 1 {
                    return Some(at);
                }
            }
            None
        }
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// Masks that contain free runs of many lengths.
    fn masks(pages: usize, seed: &mut u64) -> Vec<u32> {
        let mask = |_| match random(seed) % 5 {
            0 => 0,
            1 => !0,
            2 => !0 << (random(seed) % 32),
            3 => !0 >> (random(seed) % 32),
            _ => random(seed) as u32,
        };
        (0..pages).map(mask).collect()
    }

    #[test]
    fn find_returns_the_lowest_run() {
        let mut seed = 88_172_645_463_325_252;
        for pages in [1, 2, 31, 32, 33, 100, 1025, 2000] {
            let node = Node::new(masks(pages, &mut seed), 64 * PAGE);
            for _ in 0..300 {
                let count = 1 + random(&mut seed) as usize % 150;
                let align = 1 << (random(&mut seed) % 8);
                let from = random(&mut seed) as usize % pages * PAGE;
                let found = node.find(count, align, from, usize::MAX);
                let expected = node.expected(count, align, from);
                assert_eq!(found, expected, "{pages} pages: {count} at {align} from {from}");
            }
        }
    }

    #[test]
    fn find_returns_run_across_all_groups() {
        let pages = 6 * FANOUT * FANOUT * FANOUT + 5;
        let mut node = Node::new(std::vec![!0; pages], 0);
        assert_eq!(node.find(pages * PAGE, 1, 0, 1), Some(0));
        assert_eq!(node.find(pages * PAGE + 1, 1, 0, 1), None);
        node.masks[1500] = !4;
        node.note(1500);
        assert_eq!(node.find(1500 * PAGE + 2, 1, 0, 1), Some(0));
        let next = 1500 * PAGE + 3;
        assert_eq!(node.find(1500 * PAGE + 3, 1, 0, 1), Some(next));
        assert_eq!(node.find(pages * PAGE - next + 1, 1, 0, 1), None);
    }

    #[test]
    fn misled_search_corrects_the_hints() {
        let mut node = Node::new(std::vec![!0; 100], 0);
        // Claims slices without recording this, like a thread.
        node.masks[..90].fill(0);
        let mut steps = 0;
        while let Some(at) = node.find(20, 1, 0, 1).filter(|at| *at < 90 * PAGE) {
            node.note(at / PAGE);
            steps += 1;
        }
        assert!(steps <= 90, "{steps} steps");
        assert_eq!(node.find(20, 1, 0, 1), Some(90 * PAGE));
        let read = |words: &[AtomicU64]| words.iter().map(|word| word.load(SeqCst)).collect();
        let [pages, groups]: [Vec<u64>; 2] = [read(&node.pages), read(&node.groups)];
        (0..100).for_each(|page| node.note(page));
        assert_eq!([pages, groups], [read(&node.pages), read(&node.groups)]);
    }

    /// Claims the lowest free slices that fit, and corrects misleading hints, like a request.
    /// Returns their start.
    fn claim(node: &mut Node, count: usize, align: usize) -> Option<usize> {
        for _ in 0..1000 {
            let found = node.find(count, align, 0, usize::MAX)?;
            let run = found..found + count;
            let pages = found / PAGE..run.end.div_ceil(PAGE);
            let bits = |page: usize| mask_of(&run, page * PAGE, PAGE);
            if !node.runs().is_noted(&run) {
                continue;
            }
            if pages.clone().all(|page| node.masks[page] & bits(page) == bits(page)) {
                pages.for_each(|page| node.masks[page] &= !bits(page));
                return Some(found);
            }
            for page in pages {
                node.runs().note_page(page, || node.masks[page]);
            }
        }
        panic!("{count} at {align}: the search is misled forever");
    }

    fn free(node: &mut Node, run: &Range<usize>) {
        for page in run.start / PAGE..run.end.div_ceil(PAGE) {
            let bits = mask_of(run, page * PAGE, PAGE);
            node.masks[page] |= bits;
            if freed(&node.pages[page], bits).is_some() {
                node.runs().raise_groups(page);
            }
        }
    }

    #[test]
    fn claim_gets_the_lowest_run_while_blocks_come_and_go() {
        let mut seed = 88_172_645_463_325_252;
        for (pages, most) in [(3, 40), (70, 20), (70, 300), (600, 12), (600, 3000)] {
            let mut node = Node::new(std::vec![!0; pages], 64 * PAGE);
            let mut live = Vec::new();
            for _ in 0..1500 {
                let count = 1 + random(&mut seed) as usize % most;
                let align = 1 << (random(&mut seed) % 4);
                let expected = node.expected(count, align, 0);
                assert_eq!(claim(&mut node, count, align), expected, "{pages}: {count}, {align}");
                if let Some(start) = expected {
                    live.push(start..start + count);
                }
                let has_room = random(&mut seed) % 5 < 2;
                while !live.is_empty() && (expected.is_none() || !has_room) {
                    let run = live.swap_remove(random(&mut seed) as usize % live.len());
                    free(&mut node, &run);
                    if random(&mut seed).is_multiple_of(2) {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn unaligned_runs_do_not_lengthen_a_search() {
        let mut masks = std::vec![0b1111_1110; 1000];
        masks[998..].fill(!0);
        let node = Node::new(masks, 0);
        let wanted = Wanted { count: 6, align: 8, from: 0, end: 1000 * PAGE, tries: 10 };
        let runs = node.runs();
        let mut search = Search { runs: &runs, wanted: &wanted, least: 6, tries: 0, before: 0 };
        let found = search.search_level(LEVELS - 1, 0..1);
        assert_eq!((found, search.tries), (Some(998 * PAGE), 10));
    }
}
