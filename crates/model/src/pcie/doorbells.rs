//! The number of doorbells per packet, computed from a driver's rule and a histogram of batches.
//!
//! Batches are assumed to come in random order: each poll's batch is drawn from the histogram.

use super::nic::{CompletionDoorbells, Nic, RxDoorbell, Thresholds, TxDoorbell, Version};
use super::workload::Histogram;

/// The inputs of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbells<'a> {
    pub(super) nic: &'a Nic,
    pub(super) rx: RxDoorbell,
    pub(super) tx: TxDoorbell,
    pub(super) version: Version,
    pub(super) thresholds: Thresholds,
    /// The number of descriptors of a received packet.
    pub(super) rx_descriptors: u32,
    /// The number of descriptors of a sent packet.
    pub(super) tx_descriptors: u32,
}

impl TxDoorbell {
    /// The largest number of packets that one doorbell announces.
    pub(super) fn chunk(self, thresholds: Thresholds) -> u32 {
        match self {
            Self::Burst => u32::MAX,
            Self::Chunk(packets) => packets,
            Self::ReportStatus => thresholds.tx_rs,
        }
    }

    /// The packets that each doorbell of a burst announces: the number of full chunks, their size,
    /// and the rest.
    pub(super) fn pieces(self, burst: u32, thresholds: Thresholds) -> (u32, u32, u32) {
        let chunk = self.chunk(thresholds);
        (burst / chunk, chunk.min(burst), burst % chunk)
    }
}

impl CompletionDoorbells {
    /// The number of packets of one poll for each doorbell.
    pub(super) fn rx_chunk(self, rule: RxDoorbell) -> u32 {
        match rule {
            // The vector functions split a poll into pieces; the scalar function does not.
            RxDoorbell::Fours(_) => self.rx_packets,
            _ => u32::MAX,
        }
    }
}

impl Doorbells<'_> {
    /// The writes of the receive ring's tail for each packet.
    pub(super) fn rx(&self, batches: &Histogram) -> f64 {
        let threshold = self.thresholds.rx_free;
        let descriptors = f64::from(self.rx_descriptors);
        match self.rx {
            RxDoorbell::Above => 1.0 / self.packets_until(batches, threshold.saturating_add(1)),
            RxDoorbell::AtLeast => 1.0 / self.packets_until(batches, threshold),
            RxDoorbell::Threshold => descriptors / f64::from(threshold),
            RxDoorbell::Batch(_) => {
                descriptors / f64::from(self.rx.batch(self.version).unwrap_or(1))
            }
            RxDoorbell::Poll => 1.0 / batches.mean_of_polls(),
            RxDoorbell::Fours(held) => 1.0 / self.packets_of_fours(batches, held),
            RxDoorbell::Memory => 0.0,
        }
    }

    /// The writes of the transmit ring's tail for each packet.
    pub(super) fn tx(&self, bursts: &Histogram) -> f64 {
        let most = self.nic.tx_descriptors.packets_until_doorbell(self.tx_descriptors);
        let chunk = self.tx.chunk(self.thresholds).min(most);
        bursts.mean(|burst| f64::from(burst.div_ceil(chunk))) / bursts.mean_of_polls()
    }

    /// The writes of the receive completion ring's head for each packet.
    pub(super) fn rx_completions(&self, batches: &Histogram) -> f64 {
        let Some(rule) = self.nic.completion_doorbells else { return 0.0 };
        let chunk = rule.rx_chunk(self.rx);
        batches.mean(|batch| f64::from(batch.div_ceil(chunk))) / batches.mean_of_polls()
    }

    /// The writes of the transmit completion ring's head for each packet.
    pub(super) fn tx_completions(&self, bursts: &Histogram) -> f64 {
        let Some(rule) = self.nic.completion_doorbells else { return 0.0 };
        let steps = steps(bursts, self.tx_descriptors);
        let (polls, _) = run(&steps, 0, rule.tx_descriptors);
        1.0 / (polls * bursts.mean_of_polls())
    }

    /// The mean number of packets in a run of polls. A run ends with the first poll after which the
    /// driver holds at least `held` descriptors. For one batch size `b` and a threshold `held = F +
    /// 1` it is `b (floor(F / b) + 1)`; for several, it is the mean number of polls times the mean
    /// batch (Wald's identity).
    fn packets_until(&self, batches: &Histogram, held: u32) -> f64 {
        let (polls, _) = run(&steps(batches, self.rx_descriptors), 0, held);
        polls * batches.mean_of_polls()
    }

    /// Like `packets_until`, for a driver that returns descriptors only in multiples of four. The
    /// driver keeps the remaining descriptors, up to three, for the next run. Returns the mean
    /// over many runs.
    fn packets_of_fours(&self, batches: &Histogram, held: u32) -> f64 {
        let steps = steps(batches, self.rx_descriptors);
        let runs: Vec<(f64, [f64; 4])> = (0..4).map(|stay| run(&steps, stay, held)).collect();
        let mut share = [1.0, 0.0, 0.0, 0.0];
        // Each iteration computes the mean of the current and the next distribution. These means
        // converge to the same distribution as the runs, but do not oscillate.
        for _ in 0..1000 {
            let mut next = share.map(|of| of / 2.0);
            for (of, (_, ends)) in share.iter().zip(&runs) {
                for (next, end) in next.iter_mut().zip(ends) {
                    *next += of * end / 2.0;
                }
            }
            share = next;
        }
        let polls: f64 = share.iter().zip(&runs).map(|(share, (polls, _))| share * polls).sum();
        polls * batches.mean_of_polls()
    }
}

/// The number of descriptors of each batch, with its share of polls.
fn steps(batches: &Histogram, descriptors: u32) -> Vec<(usize, f64)> {
    let polls: f64 = batches.batches().iter().map(|(_, polls)| *polls as f64).sum();
    let pairs = batches.batches().iter();
    pairs.map(|(batch, count)| ((batch * descriptors) as usize, *count as f64 / polls)).collect()
}

/// A run begins with `from` held descriptors and ends with the first poll after which at least
/// `until` are held. Returns the mean number of polls, at least one, and the probability of each
/// remainder modulo four at the end. The recurrence is `polls[h] = 1 + sum over b of p(b) polls[h +
/// b]`, with 0 from `until` on.
fn run(steps: &[(usize, f64)], from: usize, until: u32) -> (f64, [f64; 4]) {
    // Every run has at least one poll, even if `until` is already reached.
    let until = (until as usize).max(from + 1);
    let mut polls = vec![1.0; until];
    let mut ends = vec![[0.0; 4]; until];
    for held in (0..until).rev() {
        for (step, share) in steps {
            let then = held + step;
            if let Some(later) = polls.get(then).copied() {
                polls[held] += share * later;
                let later = ends[then];
                ends[held].iter_mut().zip(later).for_each(|(end, later)| *end += share * later);
            } else {
                ends[held][then % 4] += share;
            }
        }
    }
    (polls[from], ends[from])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::Mode;

    fn of(nic: &str, mode: Mode, thresholds: Thresholds) -> Doorbells<'static> {
        let nic: &Nic = nic.parse().unwrap();
        let (rx, tx) = nic.doorbells(mode);
        let version = Version::LAST;
        Doorbells { nic, rx, tx, version, thresholds, rx_descriptors: 1, tx_descriptors: 1 }
    }

    fn packets(nic: &str, mode: Mode, rx_free: u32, batches: &str) -> f64 {
        let doorbells = of(nic, mode, Thresholds { rx_free, tx_rs: 32 });
        1.0 / doorbells.rx(&batches.parse().unwrap())
    }

    /// Each rule against its closed form, for one batch size.
    #[test]
    fn packets_per_receive_doorbell_match_closed_forms() {
        for batch in [1_u32, 3, 4, 7, 8, 16, 31, 32, 33, 64] {
            let one = format!("{batch}:1");
            for free in [0, 1, 31, 32, 33, 64, 128] {
                let above = batch * (free / batch + 1);
                let found = packets("e1000e", Mode::Scalar, free, &one);
                assert!((found - f64::from(above)).abs() < 1e-9, "{batch} {free}: {found}");
                let least = batch * free.div_ceil(batch).max(1);
                let found = packets("ena", Mode::Scalar, free, &one);
                assert!((found - f64::from(least)).abs() < 1e-9, "{batch} {free}: {found}");
            }
            assert_eq!(packets("ice", Mode::Bulk, 48, &one), 48.0);
            assert_eq!(packets("ice", Mode::Vector, 48, &one), 64.0);
            assert!((packets("bnxt", Mode::Scalar, 48, &one) - f64::from(batch)).abs() < 1e-9);
        }
        // After 64, 16, 8 or 2 polls, 64 descriptors are held.
        for (one, expected) in [("1:1", 64.0), ("4:1", 64.0), ("8:5", 64.0), ("32:1", 64.0)] {
            let found = packets("bnxt", Mode::Vector, 0, one);
            assert!((found - expected).abs() < 1e-6, "{one}: {found}");
        }
    }

    /// The rule for multiples of four against a simulation of the driver.
    #[test]
    fn rule_of_fours_keeps_remaining_descriptors() {
        for batch in [3_u32, 5, 7, 12, 33] {
            let (mut held, mut doorbells, polls) = (0, 0, 400_000);
            for _ in 0..polls {
                held += batch;
                if held >= 64 {
                    (doorbells, held) = (doorbells + 1, held % 4);
                }
            }
            let counted = f64::from(polls) * f64::from(batch) / f64::from(doorbells);
            let found = packets("bnxt", Mode::Vector, 0, &format!("{batch}:1"));
            assert!((found / counted - 1.0).abs() < 1e-3, "{batch}: {found} {counted}");
        }
    }

    /// Between two doorbells there are 512 B of entries: four of 128 B, or two of 256 B. There are
    /// fewer packets if a packet has several entries.
    #[test]
    fn burst_limit_adds_transmit_doorbells() {
        let mut doorbells = of("ena", Mode::Scalar, Thresholds { rx_free: 128, tx_rs: 1 });
        let limited = doorbells.nic.with("burst-limit").unwrap();
        let large = limited.with("large-llq").unwrap();
        for (nic, descriptors, batch, expected) in [
            (doorbells.nic, 1, 32, 1),
            (&limited, 1, 32, 8),
            (&limited, 2, 5, 2),
            (&limited, 3, 32, 16),
            (&large, 1, 5, 3),
            (&large, 3, 5, 5),
        ] {
            doorbells.tx_descriptors = descriptors;
            let bursts: Histogram = format!("{batch}:1").parse().unwrap();
            let found = Doorbells { nic, ..doorbells }.tx(&bursts) * f64::from(batch);
            assert!((found - f64::from(expected)).abs() < 1e-9, "{descriptors} {batch}: {found}");
        }
    }

    #[test]
    fn completion_doorbells_follow_polls_and_threshold() {
        let doorbells = of("bnxt", Mode::Vector, Thresholds { rx_free: 64, tx_rs: 32 });
        let batches: Histogram = "4:1".parse().unwrap();
        assert_eq!(doorbells.rx_completions(&batches), 0.25);
        assert!((doorbells.tx_completions(&batches) - 1.0 / 64.0).abs() < 1e-12);
        let large: Histogram = "128:1".parse().unwrap();
        assert_eq!(doorbells.rx_completions(&large), 2.0 / 128.0);
        let none = of("ice", Mode::Vector, Thresholds { rx_free: 32, tx_rs: 32 });
        assert_eq!((none.rx_completions(&batches), none.tx_completions(&batches)), (0.0, 0.0));
    }
}
