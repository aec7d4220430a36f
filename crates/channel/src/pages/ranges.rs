//! Sets of addresses of a mapping, as ranges that do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maps the start of each range to its end.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    /// Adds these addresses.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        self.cut(&range);
        if !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }

    /// Removes these addresses.
    pub(crate) fn cut(&mut self, range: &Range<usize>) {
        for around in self.around(range) {
            self.0.remove(&around.start);
            if around.start < range.start {
                self.0.insert(around.start, range.start);
            }
            if range.end < around.end {
                self.0.insert(range.end, around.end);
            }
        }
    }

    /// The ranges that contain some of these addresses. The ranges are returned in full and in
    /// ascending order.
    pub(crate) fn around(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let before = self.0.range(..range.end).rev();
        let touched = before.take_while(|(_, end)| **end > range.start);
        let mut found: Vec<_> = touched.map(|(start, end)| *start..*end).collect();
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_exactly_addresses_that_were_added_and_not_cut(
            steps in proptest::collection::vec((any::<bool>(), 0..40_usize, 0..12_usize), 1..40),
            (start, length) in (0..40_usize, 1..12_usize),
        ) {
            let (mut ranges, mut naive) = (Ranges::default(), [false; 64]);
            for (is_view, start, length) in steps {
                let range = start..start + length;
                naive[range.clone()].fill(is_view);
                if is_view { ranges.add(range) } else { ranges.cut(&range) }
            }
            let mut found = [false; 64];
            let mut end = 0;
            for range in ranges.around(&(0..64)) {
                prop_assert!(range.start >= end && range.start < range.end);
                end = range.end;
                found[range].fill(true);
            }
            prop_assert_eq!(found, naive);
            let (asked, mut inside) = (start..start + length, [false; 64]);
            for range in ranges.around(&asked) {
                prop_assert!(range.start < asked.end && range.end > asked.start);
                inside[range].fill(true);
            }
            prop_assert_eq!(&inside[asked.clone()], &naive[asked]);
        }
    }
}
