//! Where free slices follow each other, however they lie: for each page which of its slices are
//! free, and for each page and each group of pages how many are at its start, at its end, and in
//! its longest run. Groups have [`FANOUT`] pages, then as many groups, and so on. So a run of any
//! length, within a page or across several, is found by reading some dozen words, however many
//! blocks live.
//!
//! All of it is a hint, and errs on the side of too much. A thread that frees slices says so,
//! unless that is said already, and of the groups that say less than it follows ([`freed`]). A
//! thread that claims slices says nothing. So what comes and goes in one place costs one exchange.
//! A search that a page led astray has it noted as it is ([`Runs::note_page`]), and a search that a
//! group led astray makes that one right. A page whose run got lost with a process that died is
//! found by the next thread that notes all of it ([`Runs::note`]).
//!
//! A word that is made less is computed from those below and exchanged until it is found to be what
//! was computed. Of a thread that does that and one that raises a word below at once, each sees
//! what the other did: between a change below and the look at the word above lies a barrier.

use core::ops::Range;

use super::step::step;
use crate::sync::{AtomicU64, Ordering::SeqCst, barrier};

/// Pages, or groups, in a group. With 32, a pair of 262,145 B among 10,000 that live took 400 to
/// 640 ns on Zen 4 in two runs, and 236 among ten.
pub(crate) const FANOUT: usize = 1 << FANOUT_SHIFT;

const FANOUT_SHIFT: usize = 3;

/// Levels: pages, and five of groups. The longest run of a group of the last is 2^20 slices.
pub(crate) const LEVELS: usize = 6;

const BITS: u32 = 21;

/// Free slices of a page or a group: at its start, in its longest run, and at its end, 21 bits
/// each, from the lowest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Free(u64);

impl Free {
    const fn new(start: usize, longest: usize, end: usize) -> Self {
        Self(start as u64 | (longest as u64) << BITS | (end as u64) << (2 * BITS))
    }

    /// Of a page of 32 slices, of which those are free whose bit is set.
    const fn of_mask(mask: u32) -> Self {
        // Bit i of `ends[k]`: a run of 2^k ends at i.
        let mut ends = [mask; 6];
        let mut k = 1;
        while k < 6 {
            ends[k] = ends[k - 1] & ends[k - 1] << (1 << (k - 1));
            k += 1;
        }
        // Bit i of `rest`: a run as long as the longest so far ends at i.
        let (mut rest, mut longest) = (!0, 0);
        while k > 0 {
            k -= 1;
            let longer = if longest < 32 { rest & ends[k] << longest } else { 0 };
            if longer != 0 {
                (rest, longest) = (longer, longest + (1 << k));
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

    /// Of each number the greater.
    fn max(self, other: Self) -> Self {
        Self::new(
            self.start().max(other.start()),
            self.longest().max(other.longest()),
            self.end().max(other.end()),
        )
    }
}

/// Free slices of a page: which they are, a bit each, and above these bits the three numbers of
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

/// What is looked for: `count` slices that begin at a multiple of `align`, a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) count: usize,
    pub(crate) align: usize,
    /// Slices of the node from the first to look at to before the last, multiples of a page.
    pub(crate) from: usize,
    pub(crate) end: usize,
    /// Pages with a run of `count` slices, none of them at a multiple of `align`, that are looked
    /// at before only runs are followed in which there must be one: so that many such do not make a
    /// search long.
    pub(crate) tries: usize,
}

/// The words of one node.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    pages: &'a [AtomicU64],
    /// Of the groups, those of the lowest level first.
    groups: &'a [AtomicU64],
    /// The node's first slice: alignment counts from the heap's.
    first: usize,
    page_slices: usize,
}

/// Words of a level, of so many pages.
const fn level_words(pages: usize, level: usize) -> usize {
    let shift = level * FANOUT_SHIFT;
    (pages + (1 << shift) - 1) >> shift
}

/// Words of the groups of so many pages, of the levels below one.
const fn words_below(pages: usize, end: usize) -> usize {
    let (mut words, mut level) = (0, 1);
    while level < end {
        words += level_words(pages, level);
        level += 1;
    }
    words
}

/// Words of the groups of so many pages.
pub(crate) const fn group_words(pages: usize) -> usize {
    words_below(pages, LEVELS)
}

/// Says in a page's word that slices of it are free, a bit each: which are said to be then, or
/// `None` where that was said already. Else its groups are to be [raised](Runs::raise_groups).
#[inline]
pub(crate) fn freed(page: &AtomicU64, mask: u32) -> Option<u32> {
    let mut old = page.load(SeqCst);
    loop {
        let said = PageFree(old).mask();
        let new = if said & mask == mask { old } else { PageFree::of_mask(said | mask).0 };
        // Also where nothing changes: a thread that says less of the page at this instant sees then
        // that the slices are free.
        match page.compare_exchange(old, new, SeqCst, SeqCst) {
            Ok(_) if new == old => return None,
            Ok(_) => return Some(said | mask),
            Err(other) => old = other,
        }
    }
}

impl<'a> Runs<'a> {
    /// Of a node whose first slice is `first`, with a word for each of its pages of `page_slices`
    /// slices, and those of their groups, of which there must be [`group_words`].
    pub(crate) fn new(
        pages: &'a [AtomicU64],
        groups: &'a [AtomicU64],
        first: usize,
        page_slices: usize,
    ) -> Self {
        Self { pages, groups, first, page_slices }
    }

    /// Makes the groups of a page say no less than what follows from those below, up to one that
    /// says enough: for a thread that said that more is [`freed`].
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

    /// Says of a page which of its slices are free now, as `look` finds it, and of its groups what
    /// follows: all there is, whatever is said already. What is said of the page then.
    pub(crate) fn note(&self, page: usize, look: impl Fn() -> u32) -> u32 {
        let said = self.note_page(page, look);
        let mut index = page;
        for level in 1..LEVELS {
            step!("runs.note.between");
            index /= FANOUT;
            self.settle_group(level, index);
        }
        said
    }

    /// Says of a page which of its slices are free now, as `look` finds it: no more than what is
    /// said of its groups, if `look` finds less than is said of it. What is said then.
    pub(crate) fn note_page(&self, page: usize, look: impl Fn() -> u32) -> u32 {
        PageFree(settle(&self.pages[page], || PageFree::of_mask(look()).0)).mask()
    }

    fn settle_group(&self, level: usize, index: usize) {
        settle(&self.level(level)[index], || self.joined(level, index).0);
    }

    /// Whether a run that a search found is one by what is said of its pages. If not, the groups
    /// that led there are made right.
    pub(crate) fn is_said(&self, run: &Range<usize>) -> bool {
        let width = self.page_slices;
        let is_said = |page: usize| self.says(page, mask_of(run, page * width, width));
        let mut pages = run.start / width..run.end.div_ceil(width);
        let Some(wrong) = pages.find(|page| !is_said(*page)) else { return true };
        make_consistent(&self.pages[wrong]);
        let mut index = wrong;
        for level in 1..LEVELS {
            index /= FANOUT;
            self.settle_group(level, index);
        }
        false
    }

    /// Whether it is said of these slices of a page that they are free.
    #[inline]
    pub(crate) fn says(&self, page: usize, mask: u32) -> bool {
        PageFree(self.pages[page].load(SeqCst)).mask() & mask == mask
    }

    /// The lowest such slices, counted from the node's first: where they begin. A hint.
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
        search.look_at(level, from..last + 1)
    }

    /// Slices of a page or group of a level.
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

    /// What the words below say of a group. They were read from shared memory and can say anything.
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

/// What words of so many slices each say together.
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

/// Makes the numbers in a page's word follow from its bits. They do, unless another process wrote
/// over the word: a run that they promise is then looked for at every search, and never found.
fn make_consistent(page: &AtomicU64) {
    let word = page.load(SeqCst);
    let consistent = PageFree::of_mask(PageFree(word).mask()).0;
    if word != consistent {
        let _ = page.compare_exchange(word, consistent, SeqCst, SeqCst);
    }
}

/// The bits of a run's slices within `width` of them from `first` on.
#[inline]
pub(crate) fn mask_of(run: &Range<usize>, first: usize, width: usize) -> u32 {
    let (from, end) = (run.start.max(first) - first, run.end.min(first + width) - first);
    (!0 << from) & (!0 >> (u32::BITS as usize - end))
}

/// Looks at a word that one note takes at most: each but the last finds that another one changed
/// what is below, or the word, which a peer that scribbles can do for ever.
const LOOKS: usize = 1000;

/// Makes a word what `look` finds: what it is then.
fn settle(word: &AtomicU64, look: impl Fn() -> u64) -> u64 {
    let mut new = 0;
    for _ in 0..LOOKS {
        barrier!();
        let old = word.load(SeqCst);
        new = look();
        if old == new {
            break;
        }
        let _ = word.compare_exchange(old, new, SeqCst, SeqCst);
        step!("runs.settle.between");
    }
    new
}

/// One search.
struct Search<'a> {
    runs: &'a Runs<'a>,
    wanted: &'a Wanted,
    /// The shortest run within a page or group that is followed.
    least: usize,
    tries: usize,
    /// Free slices right before what is looked at.
    before: usize,
}

impl Search<'_> {
    /// Looks at pages or groups of a level. What their words say can be anything: a search then
    /// ends with slices that may not even be there.
    fn look_at(&mut self, level: usize, range: Range<usize>) -> Option<usize> {
        let words = self.runs.level(level);
        let range = range.start..range.end.min(words.len());
        match level {
            0 => self.look_at_words(level, words, range, |word| PageFree(word).free()),
            _ => self.look_at_words(level, words, range, Free),
        }
    }

    #[inline(always)]
    fn look_at_words(
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
                0 => self.look_into_page(start, free, PageFree(word).mask()),
                _ => self.look_into_group(level, index),
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

    /// Looks at what is in a group. Where it holds nothing, it is made right.
    fn look_into_group(&mut self, level: usize, index: usize) -> Option<usize> {
        let found = self.look_at(level - 1, index * FANOUT..(index + 1) * FANOUT);
        if found.is_none() {
            self.runs.settle_group(level, index);
        }
        found
    }

    /// Looks at the runs of a page that begins at `start`, the first of them with what is before.
    fn look_into_page(&mut self, start: usize, free: Free, mask: u32) -> Option<usize> {
        let width = self.runs.page_slices;
        let found = self.fit(start.saturating_sub(self.before), self.before + free.start());
        if found.is_some() {
            return found;
        }
        let mut at = mask.trailing_ones();
        // Behind each run, one that is not free.
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

    /// A run that goes on behind these begins within them: what leads a search astray is then
    /// found, and made right, where the run begins.
    #[inline]
    fn pass(&mut self, free: Free, width: usize) {
        let end = free.end().min(width);
        self.before = if free.start() >= width { self.before + width } else { end };
    }

    /// Where in a free run such slices begin first.
    #[inline]
    fn fit(&self, start: usize, length: usize) -> Option<usize> {
        let Wanted { count, align, .. } = *self.wanted;
        if length < count {
            return None;
        }
        // A division takes as long as the rest of the turn.
        let at = ((self.runs.first + start + align - 1) & !(align - 1)) - self.runs.first;
        (at + count <= start + length).then_some(at)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const PAGE: usize = 32;

    /// The pages of a node, by which of their slices are free, with their words.
    struct Ground {
        masks: Vec<u32>,
        pages: Vec<AtomicU64>,
        groups: Vec<AtomicU64>,
        first: usize,
    }

    impl Ground {
        fn new(masks: Vec<u32>, first: usize) -> Self {
            let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            let (pages, groups) = (words(masks.len()), words(group_words(masks.len())));
            let ground = Self { masks, pages, groups, first };
            (0..ground.masks.len()).for_each(|page| ground.note(page));
            ground
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

        /// The same by looking at each slice.
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

    /// Runs of many lengths: each mask has bits of as many words as its page has neighbours of a
    /// kind.
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
    fn the_lowest_run_is_found_as_by_looking_at_each_slice() {
        let mut seed = 88_172_645_463_325_252;
        for pages in [1, 2, 31, 32, 33, 100, 1025, 2000] {
            let ground = Ground::new(masks(pages, &mut seed), 64 * PAGE);
            for _ in 0..300 {
                let count = 1 + random(&mut seed) as usize % 150;
                let align = 1 << (random(&mut seed) % 8);
                let from = random(&mut seed) as usize % pages * PAGE;
                let found = ground.find(count, align, from, usize::MAX);
                let expected = ground.expected(count, align, from);
                assert_eq!(found, expected, "{pages} pages: {count} at {align} from {from}");
            }
        }
    }

    #[test]
    fn a_run_across_all_groups_is_found() {
        let pages = 6 * FANOUT * FANOUT * FANOUT + 5;
        let mut ground = Ground::new(std::vec![!0; pages], 0);
        assert_eq!(ground.find(pages * PAGE, 1, 0, 1), Some(0));
        assert_eq!(ground.find(pages * PAGE + 1, 1, 0, 1), None);
        ground.masks[1500] = !4;
        ground.note(1500);
        assert_eq!(ground.find(1500 * PAGE + 2, 1, 0, 1), Some(0));
        let next = 1500 * PAGE + 3;
        assert_eq!(ground.find(1500 * PAGE + 3, 1, 0, 1), Some(next));
        assert_eq!(ground.find(pages * PAGE - next + 1, 1, 0, 1), None);
    }

    #[test]
    fn a_search_that_is_led_astray_makes_right_what_led_it() {
        let mut ground = Ground::new(std::vec![!0; 100], 0);
        // Taken without a word, as by whoever claims slices.
        ground.masks[..90].fill(0);
        let mut steps = 0;
        while let Some(at) = ground.find(20, 1, 0, 1).filter(|at| *at < 90 * PAGE) {
            ground.note(at / PAGE);
            steps += 1;
        }
        assert!(steps <= 90, "{steps} steps");
        assert_eq!(ground.find(20, 1, 0, 1), Some(90 * PAGE));
        let read = |words: &[AtomicU64]| words.iter().map(|word| word.load(SeqCst)).collect();
        let [pages, groups]: [Vec<u64>; 2] = [read(&ground.pages), read(&ground.groups)];
        (0..100).for_each(|page| ground.note(page));
        assert_eq!([pages, groups], [read(&ground.pages), read(&ground.groups)]);
    }

    /// Claims the lowest such slices, as a request does: where hints lead it astray, it makes them
    /// right. Where they begin.
    fn claim(ground: &mut Ground, count: usize, align: usize) -> Option<usize> {
        for _ in 0..1000 {
            let found = ground.find(count, align, 0, usize::MAX)?;
            let run = found..found + count;
            let pages = found / PAGE..run.end.div_ceil(PAGE);
            let bits = |page: usize| mask_of(&run, page * PAGE, PAGE);
            if !ground.runs().is_said(&run) {
                continue;
            }
            if pages.clone().all(|page| ground.masks[page] & bits(page) == bits(page)) {
                pages.for_each(|page| ground.masks[page] &= !bits(page));
                return Some(found);
            }
            for page in pages {
                ground.runs().note_page(page, || ground.masks[page]);
            }
        }
        panic!("{count} at {align}: led astray for ever");
    }

    fn free(ground: &mut Ground, run: &Range<usize>) {
        for page in run.start / PAGE..run.end.div_ceil(PAGE) {
            let bits = mask_of(run, page * PAGE, PAGE);
            ground.masks[page] |= bits;
            if freed(&ground.pages[page], bits).is_some() {
                ground.runs().raise_groups(page);
            }
        }
    }

    #[test]
    fn the_lowest_run_is_claimed_however_blocks_come_and_go() {
        let mut seed = 88_172_645_463_325_252;
        for (pages, most) in [(3, 40), (70, 20), (70, 300), (600, 12), (600, 3000)] {
            let mut ground = Ground::new(std::vec![!0; pages], 64 * PAGE);
            let mut live = Vec::new();
            for _ in 0..1500 {
                let count = 1 + random(&mut seed) as usize % most;
                let align = 1 << (random(&mut seed) % 4);
                let expected = ground.expected(count, align, 0);
                assert_eq!(claim(&mut ground, count, align), expected, "{pages}: {count}, {align}");
                if let Some(start) = expected {
                    live.push(start..start + count);
                }
                let has_room = random(&mut seed) % 5 < 2;
                while !live.is_empty() && (expected.is_none() || !has_room) {
                    let run = live.swap_remove(random(&mut seed) as usize % live.len());
                    free(&mut ground, &run);
                    if random(&mut seed).is_multiple_of(2) {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn many_runs_at_other_multiples_do_not_make_a_search_long() {
        let mut masks = std::vec![0b1111_1110; 1000];
        masks[998..].fill(!0);
        let ground = Ground::new(masks, 0);
        let wanted = Wanted { count: 6, align: 8, from: 0, end: 1000 * PAGE, tries: 10 };
        let runs = ground.runs();
        let mut search = Search { runs: &runs, wanted: &wanted, least: 6, tries: 0, before: 0 };
        let found = search.look_at(LEVELS - 1, 0..1);
        assert_eq!((found, search.tries), (Some(998 * PAGE), 10));
    }
}
