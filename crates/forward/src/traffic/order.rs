//! Which sequence numbers of a stream arrived: once, never, out of order, or twice.

/// How many numbers below the highest are recorded one by one: many times the number of packets
/// that all rings of a flow hold. A packet that arrives later than that counts as out of order or
/// as a duplicate.
const WINDOW: u64 = 1 << 16;

/// A number this far ahead of the highest does not belong to the stream: 2^32 packets are minutes
/// of traffic.
const JUMP_MAX: u64 = 1 << 32;

/// The packets of a stream that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The number of packets that arrived, each counted once.
    pub unique: u64,
    /// The highest number that arrived, plus one: at least this many packets were sent.
    pub expected: u64,
    /// The number of packets that arrived after one with a higher number, without duplicates.
    pub reordered: u64,
    /// The number of packets that arrived again.
    pub duplicates: u64,
}

impl Order {
    /// Numbers below the highest that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.expected - self.unique
    }
}

/// Follows a stream. Each number costs a few nanoseconds. A number that skips many others costs a
/// microsecond at most.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    order: Order,
    /// A bit for each of the last [`WINDOW`] numbers below `expected`: whether it arrived.
    came: Box<[u64]>,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self { order: Order::default(), came: vec![0; WINDOW as usize / 64].into() }
    }

    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Records a number; false if it does not belong to the stream.
    #[inline]
    pub(crate) fn see(&mut self, sequence: u64) -> bool {
        let next = self.order.expected;
        if sequence == next {
            self.order.expected += 1;
            self.order.unique += 1;
            self.set(sequence);
            return true;
        }
        self.see_other(sequence)
    }

    #[cold]
    fn see_other(&mut self, sequence: u64) -> bool {
        let next = self.order.expected;
        if sequence > next {
            if sequence - next > JUMP_MAX {
                return false;
            }
            (next.max((sequence + 1).saturating_sub(WINDOW))..sequence)
                .for_each(|missing| self.clear(missing));
            self.order.expected = sequence + 1;
            self.order.unique += 1;
            self.set(sequence);
        } else if next - sequence > WINDOW {
            // The number is too far behind to know whether it arrived before. The sums stay
            // correct if it did not.
            if self.order.unique < self.order.expected {
                self.order.unique += 1;
                self.order.reordered += 1;
            } else {
                self.order.duplicates += 1;
            }
        } else if self.is_set(sequence) {
            self.order.duplicates += 1;
        } else {
            self.order.unique += 1;
            self.order.reordered += 1;
            self.set(sequence);
        }
        true
    }

    #[inline]
    fn set(&mut self, sequence: u64) {
        let bit = sequence % WINDOW;
        self.came[bit as usize / 64] |= 1 << (bit % 64);
    }

    fn clear(&mut self, sequence: u64) {
        let bit = sequence % WINDOW;
        self.came[bit as usize / 64] &= !(1 << (bit % 64));
    }

    fn is_set(&self, sequence: u64) -> bool {
        let bit = sequence % WINDOW;
        self.came[bit as usize / 64] & (1 << (bit % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A naive oracle for loss, order and duplicates that records every number.
    #[derive(Default)]
    struct Naive {
        came: BTreeSet<u64>,
        order: Order,
    }

    impl Naive {
        fn see(&mut self, sequence: u64) {
            let is_behind = self.came.last().is_some_and(|highest| sequence < *highest);
            if self.came.insert(sequence) {
                self.order.unique += 1;
                self.order.reordered += u64::from(is_behind);
            } else {
                self.order.duplicates += 1;
            }
            self.order.expected = self.came.last().map_or(0, |highest| highest + 1);
        }
    }

    #[test]
    fn tracker_equals_naive_oracle() {
        let (mut tracker, mut naive) = (Tracker::new(), Naive::default());
        let mut random = 88_172_645_463_325_252_u64;
        let mut sequence = 0_u64;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let number = match random % 100 {
                0..90 => sequence,
                90..94 => sequence + random % 5,
                94..98 => sequence.saturating_sub(random % 100),
                _ => sequence + random % 1000,
            };
            assert!(tracker.see(number));
            naive.see(number);
            sequence = sequence.max(number) + 1;
        }
        assert_eq!(tracker.order(), naive.order);
        assert!(naive.order.lost() > 1000 && naive.order.duplicates > 100);
        assert!(naive.order.reordered > 100);
    }

    #[test]
    fn foreign_number_changes_nothing() {
        let mut tracker = Tracker::new();
        assert!(tracker.see(0));
        let before = tracker.order();
        assert!(!tracker.see(u64::MAX));
        assert_eq!(tracker.order(), before);
        // A whole window at once.
        assert!(tracker.see(10 * WINDOW));
        assert_eq!(tracker.order().lost(), 10 * WINDOW - 1);
        assert!(tracker.see(10 * WINDOW - 1));
        assert_eq!((tracker.order().reordered, tracker.order().duplicates), (1, 0));
    }
}
