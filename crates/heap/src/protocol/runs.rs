//! Where free slices follow each other, however they lie: for each page, and each group of pages,
//! how many slices are free at its start, at its end, and in its longest run. Groups have
//! [`FANOUT`] pages, then as many groups, and so on. So a run of any length, within a page or
//! across several, is found by reading some dozen words, however many blocks live.
//!
//! All of it is a hint. Whoever frees slices notes it; whoever claims some does not, and a search
//! that is led astray makes right what led it there ([`Runs::note`]). A page whose run got lost
//! with a process that died is found by whoever notes the page again.
//!
//! A note computes a word from those below and exchanges it until it finds the word to be what it
//! computed. Of a note that raises a word and one that lowers it at once, each sees what the other
//! did, or is seen: between a change below and the look at the word above lies a fence.

use super::step::step;
use crate::sync::{
    AtomicU64,
    Ordering::{Acquire, SeqCst},
    fence,
};

/// Pages, or groups, in a group.
/// (With 32, a pair of 262,145 B among 10,000 that live took 400 to 640 ns in
/// two runs; 236 among ten.)
pub(crate) const FANOUT: usize = 8;

/// Levels: pages, and five of groups. The longest run of a group of the last is 2^20 slices.
pub(crate) const LEVELS: usize = 6;

const BITS: u32 = 21;

/// Free slices of a page or a group: at its start, in its longest run, and at its end, 21 bits
/// each, from the lowest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Free(u64);

impl Free {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn new(start: usize, longest: usize, end: usize) -> Self {
        Self(start as u64 | (longest as u64) << BITS | (end as u64) << (2 * BITS))
    }

    /// Of a page of 32 slices, of which those are free whose bit is set.
    pub(crate) const fn of_mask(mask: u32) -> Self {
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

    /// As much of it as so many slices can hold: a word that was read from shared memory can hold
    /// anything.
    fn within(self, width: usize) -> Self {
        let [start, longest, end] = [0, 1, 2].map(|part| self.part(part).min(width));
        Self::new(start, longest, end)
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
    levels: [&'a [AtomicU64]; LEVELS],
    /// The node's first slice: alignment counts from the heap's.
    first: usize,
    page_slices: usize,
}

/// Words of the groups of so many pages.
pub(crate) const fn group_words(pages: usize) -> usize {
    let (mut words, mut level, mut count) = (0, 1, pages);
    while level < LEVELS {
        count = count.div_ceil(FANOUT);
        words += count;
        level += 1;
    }
    words
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
        let (mut levels, mut rest) = ([pages; LEVELS], groups);
        for level in 1..LEVELS {
            (levels[level], rest) = rest.split_at(levels[level - 1].len().div_ceil(FANOUT));
        }
        Self { levels, first, page_slices }
    }

    /// Says of a page what is free in it now, as `look` finds it, and of its groups what follows;
    /// of those above one that stays as it was only if `is_thorough`: whoever changed it sees to
    /// them, unless it died.
    pub(crate) fn note(&self, page: usize, is_thorough: bool, look: impl Fn() -> Free) {
        let mut index = page;
        let mut goes_on = settle(&self.levels[0][page], look) || is_thorough;
        for level in 1..LEVELS {
            if !goes_on {
                return;
            }
            step!("runs.note.between");
            index /= FANOUT;
            let word = &self.levels[level][index];
            goes_on = settle(word, || self.joined(level, index)) || is_thorough;
        }
    }

    /// Whether a page's word says so.
    pub(crate) fn says(&self, page: usize, free: Free) -> bool {
        self.levels[0][page].load(SeqCst) == free.0
    }

    /// The lowest such slices, counted from the node's first: where they begin. A hint; `mask` says
    /// which slices of a page are free.
    pub(crate) fn find(&self, wanted: &Wanted, mask: &impl Fn(usize) -> u32) -> Option<usize> {
        let mut search = Search { runs: self, wanted, least: wanted.count, tries: 0, before: 0 };
        (0..self.levels[LEVELS - 1].len()).find_map(|index| search.look(LEVELS - 1, index, mask))
    }

    /// Slices of a page or group of a level.
    fn width(&self, level: usize) -> usize {
        self.page_slices << (level * FANOUT.trailing_zeros() as usize)
    }

    /// What the words below say of a group.
    fn joined(&self, level: usize, index: usize) -> Free {
        let (below, width) = (self.levels[level - 1], self.width(level - 1));
        let parts = &below[index * FANOUT..((index + 1) * FANOUT).min(below.len())];
        let (mut start, mut longest, mut run) = (0, 0, 0);
        for (at, part) in parts.iter().enumerate() {
            let free = Free(part.load(Acquire)).within(width);
            if start == at * width {
                start += free.start();
            }
            longest = longest.max(free.longest()).max(run + free.start());
            run = if free.start() == width { run + width } else { free.end() };
        }
        let is_last_full = parts.len() == FANOUT;
        Free::new(start, longest, if is_last_full { run } else { 0 })
    }
}

/// Looks at a word that one note takes at most: each but the last finds that another one changed
/// what is below, or the word, which a peer that scribbles can do for ever.
const LOOKS: usize = 1000;

/// Makes a word what `look` finds; whether it was something else.
fn settle(word: &AtomicU64, look: impl Fn() -> Free) -> bool {
    let mut has_changed = false;
    for _ in 0..LOOKS {
        fence(SeqCst);
        let (old, new) = (word.load(SeqCst), look().0);
        if old == new {
            break;
        }
        has_changed |= word.compare_exchange(old, new, SeqCst, SeqCst).is_ok();
        step!("runs.settle.between");
    }
    has_changed
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
    fn look(&mut self, level: usize, index: usize, mask: &impl Fn(usize) -> u32) -> Option<usize> {
        let width = self.runs.width(level);
        let start = index * width;
        if start + width <= self.wanted.from || start >= self.wanted.end {
            self.before = 0;
            return None;
        }
        let free = Free(self.runs.levels[level][index].load(Acquire)).within(width);
        if start >= self.wanted.from {
            let found = self.fit(start - self.before, self.before + free.start());
            if found.is_some() {
                return found;
            }
            if free.longest() < self.least {
                self.pass(free, width);
                return None;
            }
        }
        if level == 0 {
            return self.look_into_page(index, free, mask);
        }
        let below = index * FANOUT..((index + 1) * FANOUT).min(self.runs.levels[level - 1].len());
        below.into_iter().find_map(|index| self.look(level - 1, index, mask))
    }

    fn look_into_page(
        &mut self,
        page: usize,
        said: Free,
        mask: &impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let (width, now) = (self.runs.page_slices, mask(page));
        let free = Free::of_mask(now);
        if free != said {
            self.runs.note(page, false, || Free::of_mask(mask(page)));
        }
        let (start, mut at) = (page * width, 0);
        while at < width {
            let length = (now >> at).trailing_ones() as usize;
            let before = if at == 0 { self.before } else { 0 };
            let found = self.fit(start + at - before, before + length);
            if found.is_some() {
                return found;
            }
            at += length + 1;
        }
        self.pass(free, width);
        self.tries += 1;
        if self.tries >= self.wanted.tries {
            self.least = self.wanted.count + self.wanted.align - 1;
        }
        None
    }

    fn pass(&mut self, free: Free, width: usize) {
        self.before = if free.start() == width { self.before + width } else { free.end() };
    }

    /// Where in a free run such slices begin first.
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
            self.runs().note(page, false, || Free::of_mask(self.masks[page]));
        }

        fn find(&self, count: usize, align: usize, from: usize, tries: usize) -> Option<usize> {
            let end = self.masks.len() * PAGE;
            let wanted = Wanted { count, align, from, end, tries };
            self.runs().find(&wanted, &|page| self.masks[page])
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

    #[test]
    fn many_runs_at_other_multiples_do_not_make_a_search_long() {
        let mut masks = std::vec![0b1111_1110; 1000];
        masks[998..].fill(!0);
        let ground = Ground::new(masks, 0);
        let looks = core::cell::Cell::new(0);
        let wanted = Wanted { count: 6, align: 8, from: 0, end: 1000 * PAGE, tries: 10 };
        let found = ground.runs().find(&wanted, &|page| {
            looks.set(looks.get() + 1);
            ground.masks[page]
        });
        assert_eq!((found, looks.get()), (Some(998 * PAGE), 10));
    }
}
