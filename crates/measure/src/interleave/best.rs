//! How much slower a subject is than the best of the others, without the bias of selection.
//!
//! The least of many measured medians is by chance below its true value: of twelve equal
//! subjects, with 5% of noise in a round and 21 rounds, the apparently best one seems 2.4% faster
//! than it is, as a test here shows. The best subject is therefore chosen on one half of the
//! rounds and compared on the other half:
//!
//! ```text
//! halves    the even rounds and the odd rounds: a drift affects both
//! choose    on each half, the subject with the least median ratio to the compared one
//! compare   the compared subject with it, on the half that was not used to choose
//! ```
//!
//! A difference larger than the noise appears on both halves, at its true size. If the difference
//! is smaller, a half may choose another, slower subject, so that only a part of the difference
//! appears; the two halves then disagree.

use crate::statistics::{self, Interval};

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2000;

/// The least number of rounds that can be split into halves.
const ROUNDS_MIN: usize = 4;

/// A subject's time compared with the best of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct OverBest {
    /// The best subject on the even rounds and on the odd rounds; the same subject twice if one
    /// is clearly the best.
    pub best: [usize; 2],
    /// The ratio of the subject to the best subject that the other half of the rounds chose: the
    /// median over all rounds with its 95% interval. Below 1 if the subject is the best.
    pub ratio: Interval,
}

/// Compares `series[subject]` with the best of the others. Each series has one value per round.
/// `None` if there is no other subject, or if there are too few rounds.
///
/// # Panics
/// `subject` is not an index of `series`, or the series have different lengths.
#[must_use]
pub fn over_best(series: &[&[f64]], subject: usize, seed: u64) -> Option<OverBest> {
    let ours = series[subject];
    if ours.len() < ROUNDS_MIN {
        return None;
    }
    let ratios: Vec<Vec<f64>> =
        series.iter().map(|other| statistics::paired_ratios(other, ours)).collect();
    let best = [best_of_half(&ratios, subject, 0)?, best_of_half(&ratios, subject, 1)?];
    let held_out: Vec<f64> =
        (0..ours.len()).map(|round| 1.0 / ratios[best[1 - round % 2]][round]).collect();
    let ratio = statistics::bootstrap_median(&held_out, RESAMPLES, seed)?;
    Some(OverBest { best, ratio })
}

/// The subject whose ratios to `subject` have the least median on the even rounds (0) or the odd
/// rounds (1).
fn best_of_half(ratios: &[Vec<f64>], subject: usize, half: usize) -> Option<usize> {
    let median = |other: usize| {
        let of_half: Vec<f64> = ratios[other].iter().copied().skip(half).step_by(2).collect();
        statistics::median(&of_half)
    };
    let others = (0..ratios.len()).filter(|&other| other != subject);
    let medians = others.filter_map(|other| Some((median(other)?, other)));
    medians.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Times of subjects with these means, each with independent noise of about 1 +- `noise`.
    fn rounds(means: &[f64], noise: f64, rounds: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut random = Random::new(seed);
        let mut one = |mean: f64| {
            let around: f64 = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            mean * (1.0 + noise * around)
        };
        means.iter().map(|&mean| (0..rounds).map(|_| one(mean)).collect()).collect()
    }

    fn judged(series: &[Vec<f64>], seed: u64) -> OverBest {
        let series: Vec<&[f64]> = series.iter().map(Vec::as_slice).collect();
        over_best(&series, 0, seed).unwrap()
    }

    /// The result without halves: the least of all medians, chosen on the same rounds that are
    /// compared.
    fn naive(series: &[Vec<f64>]) -> f64 {
        let others = series[1..].iter().map(|other| {
            statistics::median(&statistics::paired_ratios(&series[0], other)).unwrap()
        });
        others.max_by(f64::total_cmp).unwrap()
    }

    /// Over many runs of twelve equal subjects and few noisy rounds, selection makes a subject
    /// appear slower than the best, and the halves remove that bias.
    #[test]
    fn halves_remove_selection_bias_among_equals() {
        let runs: Vec<Vec<Vec<f64>>> =
            (0..200).map(|seed| rounds(&[1.0; 12], 0.05, 21, seed)).collect();
        let mean = |of: &dyn Fn(&Vec<Vec<f64>>) -> f64| {
            runs.iter().map(of).sum::<f64>() / runs.len() as f64
        };
        let (fair, biased) = (mean(&|run| judged(run, 1).ratio.median), mean(&|run| naive(run)));
        eprintln!("twelve equals: {fair:.4} by halves, {biased:.4} by the least median");
        assert!(biased > 1.015, "{biased}: the test has no bias to remove");
        assert!((fair - 1.0).abs() < 0.005, "{fair}");
    }

    /// If the best of twelve subjects is 4% faster than the compared one, the comparison shows 4%
    /// at every noise that allows the best to be identified.
    #[test]
    fn real_loss_appears_at_its_size() {
        let mut means = [1.0; 12];
        means[7] = 1.0 / 1.04;
        for (noise, count) in [(0.001, 9), (0.01, 21), (0.03, 200)] {
            for seed in 0..20 {
                let found = judged(&rounds(&means, noise, count, seed), seed);
                assert_eq!(found.best, [7, 7], "noise {noise}");
                let off = (found.ratio.median - 1.04).abs();
                assert!(off < 0.015, "noise {noise}: {:?}", found.ratio);
                assert!(found.ratio.low > 1.0, "noise {noise}: {:?}", found.ratio);
            }
        }
    }

    #[test]
    fn best_subject_has_ratio_below_one_to_the_others() {
        let found = judged(&rounds(&[0.9, 1.0, 1.2], 0.001, 20, 3), 3);
        assert_eq!(found.best, [1, 1]);
        assert!((found.ratio.median - 0.9).abs() < 0.005, "{:?}", found.ratio);
    }

    #[test]
    fn too_few_subjects_or_rounds_give_no_result() {
        assert_eq!(over_best(&[&[1.0; 20]], 0, 1), None, "no other");
        assert_eq!(over_best(&[&[1.0; 3], &[1.0; 3]], 0, 1), None, "too few rounds");
    }
}
