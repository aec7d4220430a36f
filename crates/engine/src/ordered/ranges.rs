//! Ranges of addresses, which may overlap: a search tree that finds an overlap in O(log n).
//!
//! The tree is a treap: ordered by start, and a heap by random priorities, so its depth is O(log n)
//! whatever the addresses are. Each node knows the highest end below it, so that a search leaves
//! out every part that ends too early.

/// The number of a range in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range(u32);

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    start: usize,
    end: usize,
    /// What the range belongs to.
    owner: u32,
    priority: u32,
    left: u32,
    right: u32,
    /// The highest end in the part below and at this node.
    end_max: usize,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Ranges {
    nodes: Vec<Node>,
    /// The places of removed nodes.
    free: Vec<u32>,
    root: u32,
    random: u32,
}

impl Ranges {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE, random: 0x9e37_79b9 }
    }

    /// Adds the range from `start` to before `end`, which is not empty.
    pub(super) fn insert(&mut self, start: usize, end: usize, owner: u32) -> Range {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let (priority, left, right) = (self.random, NONE, NONE);
        let node = Node { start, end, owner, priority, left, right, end_max: end };
        let number = match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let (before, after) = self.split(self.root, (start, number));
        let front = self.merge(before, number);
        self.root = self.merge(front, after);
        Range(number)
    }

    /// Removes a range that was inserted and not removed.
    pub(super) fn remove(&mut self, range: Range) {
        let key = self.key(range.0);
        self.root = self.without(self.root, key);
        self.free.push(range.0);
    }

    /// The owner of a range that has an address from `start` to before `end`.
    pub(super) fn overlap(&self, start: usize, end: usize) -> Option<u32> {
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            if node.start < end && start < node.end {
                return Some(node.owner);
            }
            // If the left part ends behind `start` without an overlap, then it begins at or behind
            // `end`, as does all of the right part.
            at = if self.end_max(node.left) > start { node.left } else { node.right };
        }
        None
    }

    /// Adds the owners of all ranges that have an address from `start` to before `end`, until
    /// `found` has `most` members.
    pub(super) fn overlaps(&self, start: usize, end: usize, most: usize, found: &mut Vec<u32>) {
        self.collect(self.root, (start, end), most, found);
    }

    fn collect(&self, at: u32, (start, end): (usize, usize), most: usize, found: &mut Vec<u32>) {
        let Some(node) = self.nodes.get(at as usize) else { return };
        if node.end_max <= start || found.len() >= most {
            return;
        }
        self.collect(node.left, (start, end), most, found);
        if node.start < end {
            if start < node.end && found.len() < most {
                found.push(node.owner);
            }
            self.collect(node.right, (start, end), most, found);
        }
    }

    fn key(&self, number: u32) -> (usize, u32) {
        (self.nodes[number as usize].start, number)
    }

    fn end_max(&self, at: u32) -> usize {
        self.nodes.get(at as usize).map_or(0, |node| node.end_max)
    }

    /// Computes the highest end of a node anew.
    fn update(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let below = self.end_max(node.left).max(self.end_max(node.right));
        self.nodes[at as usize].end_max = node.end.max(below);
    }

    /// The nodes before the key, and the others.
    fn split(&mut self, at: u32, key: (usize, u32)) -> (u32, u32) {
        let Some(node) = self.nodes.get(at as usize).copied() else { return (NONE, NONE) };
        if self.key(at) < key {
            let (before, after) = self.split(node.right, key);
            self.nodes[at as usize].right = before;
            self.update(at);
            (at, after)
        } else {
            let (before, after) = self.split(node.left, key);
            self.nodes[at as usize].left = after;
            self.update(at);
            (before, at)
        }
    }

    /// One tree of two, of which the first has the lower keys.
    fn merge(&mut self, low: u32, high: u32) -> u32 {
        let (Some(first), Some(second)) =
            (self.nodes.get(low as usize).copied(), self.nodes.get(high as usize).copied())
        else {
            return if low == NONE { high } else { low };
        };
        if first.priority >= second.priority {
            let right = self.merge(first.right, high);
            self.nodes[low as usize].right = right;
            self.update(low);
            low
        } else {
            let left = self.merge(low, second.left);
            self.nodes[high as usize].left = left;
            self.update(high);
            high
        }
    }

    /// The tree without the node of this key.
    fn without(&mut self, at: u32, key: (usize, u32)) -> u32 {
        let Some(node) = self.nodes.get(at as usize).copied() else { return NONE };
        let own = self.key(at);
        if own == key {
            return self.merge(node.left, node.right);
        }
        if key < own {
            let left = self.without(node.left, key);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.without(node.right, key);
            self.nodes[at as usize].right = right;
        }
        self.update(at);
        at
    }

    /// The number of nodes on the longest path down.
    #[cfg(test)]
    fn depth(&self, at: u32) -> usize {
        let below = |node: &Node| self.depth(node.left).max(self.depth(node.right)) + 1;
        self.nodes.get(at as usize).map_or(0, below)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn is_overlap(range: (usize, usize), start: usize, end: usize) -> bool {
        range.0 < end && start < range.1
    }

    #[test]
    fn answers_are_those_of_a_list() {
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let rounds = if cfg!(miri) { 200 } else { 5000 };
        let (mut ranges, mut list) = (Ranges::new(), Vec::new());
        for owner in 0..rounds {
            let (start, length) = (next(1000), next(60) + 1);
            list.push((
                ranges.insert(start, start + length, owner),
                (start, start + length),
                owner,
            ));
            if next(3) != 0 {
                let (range, ..) = list.swap_remove(next(list.len()));
                ranges.remove(range);
            }
            let (start, length) = (next(1000), next(60) + 1);
            let end = start + length;
            let mut expected: Vec<u32> = list
                .iter()
                .filter(|(_, range, _)| is_overlap(*range, start, end))
                .map(|(_, _, owner)| *owner)
                .collect();
            let mut found = Vec::new();
            ranges.overlaps(start, end, usize::MAX, &mut found);
            assert!(
                ranges.overlap(start, end).map_or(found.is_empty(), |one| found.contains(&one))
            );
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected);
            found.clear();
            ranges.overlaps(start, end, 2, &mut found);
            assert_eq!(found.len(), expected.len().min(2));
        }
    }

    /// In the worst order for a tree without balance.
    #[test]
    fn depth_grows_with_the_logarithm() {
        let mut ranges = Ranges::new();
        let count = if cfg!(miri) { 1 << 8 } else { 1 << 14 };
        for number in 0..count {
            ranges.insert(number * 10, number * 10 + 10, 0);
        }
        let depth = ranges.depth(ranges.root);
        assert!(depth <= 4 * count.ilog2() as usize, "{depth} for {count}");
    }
}
