//! The distance of the other end's cache: the time that a line needs to arrive from there.
//!
//! Between two processors that share their last cache, a line's transfer is faster than memory;
//! between other processors, it is slower. On Zen 4, a round trip of a word takes 140 ns in the
//! first case and 560 ns in the second, and memory takes 110 ns. The case changes when threads
//! migrate, and a guest does not notice that. So the time is measured when a line comes from the
//! other end anyway: when this end reads a word that the other end has changed.

use std::time::{Duration, Instant};

/// If a line takes this long or longer, bytes reach the other end sooner through memory. This
/// value is the latency of memory. The times measured here, including the clock's own 30 ns, are
/// 30 to 90 ns if the cache is shared, and 150 or more otherwise.
const FAR: Duration = Duration::from_nanos(110);
/// No line takes longer than this to arrive. A read that takes longer was interrupted.
const LONGEST: Duration = Duration::from_nanos(300);
/// Each read has the weight of an eighth, so that a single interrupted read does not decide.
const WEIGHT: u32 = 8;
/// Only one of this many reads is timed, because an end that waits reads many times.
const READS: u32 = 4;

/// The average of the measured times. The cache counts as near until a time is measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Distance {
    average: Duration,
    reads: u32,
}

impl Distance {
    /// Reads a word with `read`, and records the time if the word differs from `known`.
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

    /// The longest distance.
    #[cfg(test)]
    pub(crate) fn farthest() -> Self {
        Self { average: LONGEST, reads: 0 }
    }

    fn note(&mut self, time: Duration) {
        self.average = self.average * (WEIGHT - 1) / WEIGHT + time.min(LONGEST) / WEIGHT;
    }

    /// Whether bytes reach the other end sooner through memory.
    pub(crate) fn is_far(self) -> bool {
        self.average >= FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_follows_times_and_ignores_single_interruption() {
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
    fn only_reads_of_changed_words_count() {
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
