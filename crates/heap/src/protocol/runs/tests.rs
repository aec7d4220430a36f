//! Runs of a node that a test builds, against a search that reads each slice.

use std::vec::Vec;

use super::search::Search;
use super::*;

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
