//! When a ring that was empty, or full, is looked at again.
//!
//! A look takes the line in which the guest says how far it came, and the guest has to fetch it
//! back for its next burst. So a ring in which nothing was is left alone for a while: the longer,
//! the more packets come. A guest that gives few does not notice the looks, and its packets do not
//! wait for long.

use super::super::clock::cycles;

/// The longest that an empty ring is left alone, in cycles of the time stamp counter: some 2 us. It
/// gave 17.1 Mpps of 512 B where 0.3 us gave 14.9, and 0.9 us 15.5.
const LONGEST: u64 = 5000;

/// The shortest: some 0.3 us.
const SHORTEST: u64 = 700;

/// From so many packets in [`LONGEST`] on, some 3.6 M a second, an empty ring is left alone for
/// longer.
const MANY: u64 = 8;

/// How long a full ring is left alone, in cycles for each descriptor: some 2 ns. The guest has not
/// used up its packets by then, whatever it does with them, and it is quicker while nobody takes
/// the lines from it that it says so in.
const OF_FULL: u64 = 5;

/// A ring's rest.
#[derive(Debug)]
pub(super) struct Rest {
    /// The ring is left alone until then, by the time stamp counter; 0 where it is not.
    until: u64,
    /// When it was found empty; 0 where it was not.
    empty_since: u64,
    /// How long an empty ring is left alone at the moment.
    length: u64,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { until: 0, empty_since: 0, length: SHORTEST }
    }

    /// Whether the ring is left alone at the moment.
    #[inline]
    pub(super) fn is_on(&mut self) -> bool {
        if self.until == 0 {
            return false;
        }
        let is_on = cycles() < self.until;
        if !is_on {
            self.until = 0;
        }
        is_on
    }

    /// The ring was full: it has so many descriptors.
    #[inline]
    pub(super) fn full(&mut self, size: u16) {
        self.until = cycles() + OF_FULL * u64::from(size);
    }

    /// So many packets were found in the ring, or none.
    #[inline]
    pub(super) fn found(&mut self, packets: usize) {
        if packets > 0 && self.empty_since == 0 {
            return;
        }
        self.found_at(packets, cycles());
    }

    #[inline]
    fn found_at(&mut self, packets: usize, now: u64) {
        if self.empty_since > 0 {
            let time = now.saturating_sub(self.empty_since);
            self.length = if packets as u64 * LONGEST >= MANY * time {
                (2 * self.length).min(LONGEST)
            } else {
                (self.length / 2).max(SHORTEST)
            };
        }
        self.empty_since = 0;
        if packets == 0 {
            self.empty_since = now;
            self.until = now + self.length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the ring is left alone in the end where a packet comes every `apart` cycles.
    fn settled(apart: u64) -> u64 {
        let mut rest = Rest::new();
        let (mut now, mut taken) = (1_000_000, 0);
        for _ in 0..2000 {
            let there = (now - 1_000_000) / apart - taken;
            let packets = there.min(32);
            taken += packets;
            rest.found_at(packets as usize, now);
            // A call takes its time, and the next one comes when the rest is over.
            now = rest.until.max(now + 50 + 60 * packets);
            rest.until = 0;
        }
        rest.length
    }

    #[test]
    fn the_more_packets_come_the_longer_an_empty_ring_is_left_alone() {
        // 12 and 6 Mpps at 2.1 GHz; then 3, 1 and 0.001.
        assert_eq!([175, 350].map(settled), [LONGEST; 2]);
        assert_eq!([700, 2100, 2_100_000].map(settled), [SHORTEST; 3]);
    }

    #[test]
    fn a_burst_now_and_then_is_no_load() {
        let mut rest = Rest::new();
        let mut now = 1_000_000;
        for round in 0..100 {
            // 32 at once, then nothing for ten looks.
            for packets in [32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] {
                rest.found_at(packets, now);
                now = rest.until.max(now + 2000);
            }
            assert_eq!(rest.length, SHORTEST, "{round}");
        }
    }

    #[test]
    fn a_ring_rests_for_its_time_and_no_longer() {
        let mut rest = Rest::new();
        assert!(!rest.is_on());
        rest.found(5);
        assert!(!rest.is_on());
        rest.until = u64::MAX;
        assert!(rest.is_on());
        rest.until = 1;
        assert!(!rest.is_on() && rest.until == 0);
        rest.full(1024);
        assert!(rest.until > 5 * 1024);
        rest.found(0);
        assert!(rest.empty_since > 0);
    }
}
