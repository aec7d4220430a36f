//! How far the other end's cache is: the time that a line takes from there to here.
//!
//! Two processors that share their last cache hand a line over faster than memory could; two that
//! do not, slower: a word goes there and back in 140 against 560 ns on Zen 4, where memory takes
//! 110. Which of the two it is changes as threads move, and in a guest without any notice. So it is
//! measured where a line comes from the other end anyway: a look at a word that the other end has
//! changed meanwhile.

use std::time::{Duration, Instant};

/// From this time on bytes get to the other end sooner by way of memory: what memory takes.
/// Measured as here, the clock's own 30 ns included: 30 to 90 where the cache is shared, 150 and
/// more where not.
const FAR: Duration = Duration::from_nanos(110);
/// No line takes longer: what is over was interrupted.
const LONGEST: Duration = Duration::from_nanos(300);
/// Each look counts an eighth, so that one that was interrupted does not decide.
const WEIGHT: u32 = 8;
/// One look of so many is timed: an end that waits looks again and again.
const READS: u32 = 4;

/// What was measured so far; near before anything was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distance {
    average: Duration,
    reads: u32,
}

impl Distance {
    /// Looks at a word, and notes how long that took if it is another than the one `known`.
    pub(crate) fn timed(&mut self, known: u64, read: impl FnOnce() -> u64) -> u64 {
        self.reads = self.reads.wrapping_add(1);
        if !self.reads.is_multiple_of(READS) {
            return read();
        }
        let start = Instant::now();
        let value = read();
        let time = start.elapsed();
        if value != known {
            self.note(time);
        }
        value
    }

    /// The longest there is.
    #[cfg(test)]
    pub(crate) fn farthest() -> Self {
        Self { average: LONGEST, reads: 0 }
    }

    fn note(&mut self, time: Duration) {
        self.average = self.average * (WEIGHT - 1) / WEIGHT + time.min(LONGEST) / WEIGHT;
    }

    /// Whether the way by memory is the shorter one.
    pub(crate) fn is_far(self) -> bool {
        self.average >= FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_measured_and_a_single_interruption_changes_nothing() {
        let mut distance = Distance::default();
        assert!(!distance.is_far());
        for (nanoseconds, is_far) in [(60, false), (170, true), (60, false)] {
            for _ in 0..16 {
                distance.note(Duration::from_nanos(nanoseconds));
            }
            assert_eq!(distance.is_far(), is_far, "{nanoseconds} ns");
        }
        for _ in 0..16 {
            distance.note(Duration::from_nanos(60));
        }
        distance.note(Duration::from_secs(1));
        assert!(!distance.is_far());
    }

    #[test]
    fn only_a_word_that_changed_counts() {
        let slow = |value| {
            move || {
                std::thread::sleep(Duration::from_micros(10));
                value
            }
        };
        let mut distance = Distance::default();
        for _ in 0..32 * READS {
            assert_eq!(distance.timed(7, slow(7)), 7);
        }
        assert!(!distance.is_far());
        for _ in 0..32 * READS {
            assert_eq!(distance.timed(7, slow(8)), 8);
        }
        assert!(distance.is_far());
    }
}
