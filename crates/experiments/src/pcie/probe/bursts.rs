//! The counters of a queue: bursts by their size, and sums of bursts.

use std::collections::BTreeMap;

/// The largest burst: DPDK's calls count packets in 16 bits.
pub(super) const BATCH_MAX: u64 = 65_535;

/// Counters of a queue at one moment, or their growth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Bursts by their size, 0 for empty polls.
    pub batches: BTreeMap<u32, u64>,
    /// Bursts above 512 packets, and their packets.
    pub larger: (u64, u64),
    /// The packets whose sizes the probe read, and the bytes of these packets.
    pub sized: (u64, u64),
    /// The number of measured times from one burst to the next, and the sum of their cycles.
    pub gaps: (u64, u64),
    /// Cycles since the probe was attached.
    pub cycles: u64,
    /// Cycles per second; 0 if it is not known.
    pub cycles_per_s: u64,
}

impl Bursts {
    /// The number of bursts, including empty ones.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.batches.values().fold(self.larger.0, |sum, bursts| sum.saturating_add(*bursts))
    }

    /// The number of empty bursts.
    #[must_use]
    pub fn empty(&self) -> u64 {
        self.batches.get(&0).copied().unwrap_or(0)
    }

    /// The number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let of = |(size, bursts): (&u32, &u64)| u64::from(*size).saturating_mul(*bursts);
        self.batches.iter().map(of).fold(self.larger.1, u64::saturating_add)
    }

    /// Mean bytes per packet; `None` if no packet's size was read.
    #[must_use]
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.sized.0 > 0).then(|| self.sized.1 as f64 / self.sized.0 as f64)
    }

    /// Mean time from one burst to the next, in nanoseconds.
    #[must_use]
    pub fn gap_ns(&self) -> Option<f64> {
        let is_known = self.gaps.0 > 0 && self.cycles_per_s > 0;
        is_known.then(|| self.gaps.1 as f64 / self.gaps.0 as f64 / self.cycles_per_s as f64 * 1e9)
    }

    /// The sizes and the number of bursts of each size, in the form of the command line:
    /// `0:5,4:10`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut batches = self.batches.clone();
        // Bursts above 512 packets count as bursts of their mean size.
        if let Some(mean) = self.larger.1.checked_div(self.larger.0) {
            let mean = mean.min(BATCH_MAX) as u32;
            *batches.entry(mean).or_default() += self.larger.0;
        }
        let pairs = batches.iter().filter(|(_, bursts)| **bursts > 0);
        pairs.map(|(size, bursts)| format!("{size}:{bursts}")).collect::<Vec<_>>().join(",")
    }

    /// The growth since `before`; `None` if a counter became smaller, because the probe was
    /// attached again.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        let pair = |now: (u64, u64), then: (u64, u64)| {
            Some((now.0.checked_sub(then.0)?, now.1.checked_sub(then.1)?))
        };
        let mut batches = BTreeMap::new();
        for (size, bursts) in &self.batches {
            let then = before.batches.get(size).copied().unwrap_or(0);
            batches.insert(*size, bursts.checked_sub(then)?);
        }
        let are_there = before.batches.keys().all(|size| self.batches.contains_key(size));
        are_there.then_some(())?;
        Some(Self {
            batches,
            larger: pair(self.larger, before.larger)?,
            sized: pair(self.sized, before.sized)?,
            gaps: pair(self.gaps, before.gaps)?,
            cycles: self.cycles.checked_sub(before.cycles)?,
            cycles_per_s: self.cycles_per_s,
        })
    }

    /// Adds the counters of another queue.
    pub fn add(&mut self, other: &Self) {
        for (size, bursts) in &other.batches {
            let sum = self.batches.entry(*size).or_default();
            *sum = sum.saturating_add(*bursts);
        }
        let add = |a: &mut (u64, u64), b: (u64, u64)| {
            *a = (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        };
        add(&mut self.larger, other.larger);
        add(&mut self.sized, other.sized);
        add(&mut self.gaps, other.gaps);
        self.cycles = self.cycles.max(other.cycles);
        self.cycles_per_s = self.cycles_per_s.max(other.cycles_per_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_the_growth_and_none_if_a_counter_shrank() {
        let of = |batches: &[(u32, u64)]| Bursts {
            batches: batches.iter().copied().collect(),
            ..Bursts::default()
        };
        let (before, now) = (of(&[(0, 5), (4, 1)]), of(&[(0, 9), (4, 1), (8, 2)]));
        let grown = now.since(&before).unwrap();
        assert_eq!(grown, of(&[(0, 4), (4, 0), (8, 2)]));
        assert_eq!(grown.text(), "0:4,8:2");
        assert_eq!(before.since(&now), None);
        let mut sum = before.clone();
        sum.add(&grown);
        assert_eq!(sum, of(&[(0, 9), (4, 1), (8, 2)]));
        let larger = Bursts { larger: (2, 2000), ..of(&[(0, 1)]) };
        assert_eq!((larger.text(), larger.packets()), ("0:1,1000:2".into(), 2000));
    }
}
