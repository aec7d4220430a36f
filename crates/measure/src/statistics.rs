//! Spread and bootstrap interval, in addition to the quantiles and means of
//! [`haul_model::statistics`].
//!
//! All figures are medians: on a shared machine a tenth of the samples may contain another
//! process's work, which changes a mean but not a median.

pub use haul_model::statistics::{geometric_mean, median, median_in_place, quantile};

use crate::random::Random;

/// A median with its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median of the values.
    pub median: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Interval {
    /// Half of the interval's width: the precision of the median.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The distance from 1 to the farther end of the interval. For the ratio of equal subjects,
    /// this is the noise floor.
    #[must_use]
    pub fn distance_from_one(&self) -> f64 {
        (self.low - 1.0).abs().max((self.high - 1.0).abs())
    }
}

/// The median and its 95% percentile-bootstrap interval (Efron and Tibshirani, "An introduction to
/// the bootstrap", 1993, chapter 13): the interval contains the middle 95% of the medians of
/// `resamples` draws with replacement. `None` for no values. Cost: `resamples` times the number
/// of values.
#[must_use]
pub fn bootstrap_median(values: &[f64], resamples: usize, seed: u64) -> Option<Interval> {
    let middle = median(values)?;
    let mut random = Random::new(seed);
    let mut draw = vec![0.0; values.len()];
    let medians: Vec<f64> = (0..resamples.max(1))
        .filter_map(|_| {
            draw.fill_with(|| values[random.below(values.len())]);
            median_in_place(&mut draw)
        })
        .collect();
    Some(Interval {
        median: middle,
        low: quantile(&medians, 0.025)?.min(middle),
        high: quantile(&medians, 0.975)?.max(middle),
    })
}

/// The ratios of subject to baseline, round by round.
///
/// # Panics
/// The two series have different lengths, so that they cannot be from the same rounds.
#[must_use]
pub fn paired_ratios(subject: &[f64], baseline: &[f64]) -> Vec<f64> {
    assert_eq!(subject.len(), baseline.len(), "paired samples come from the same rounds");
    subject.iter().zip(baseline).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bootstrap's interval for the median of n uniform values is near the binomial interval:
    /// order statistics n/2 -+ 1.96 sqrt(n)/2.
    #[test]
    fn interval_matches_binomial_distribution() {
        let values: Vec<f64> = (0..=1000).map(f64::from).collect();
        let interval = bootstrap_median(&values, 4000, 1).unwrap();
        let half = 1.96 * 1001f64.sqrt() / 2.0;
        eprintln!("bootstrap {:.1}, binomial {half:.1}", interval.half_width());
        assert_eq!(interval.median, 500.0);
        assert!((interval.half_width() / half - 1.0).abs() < 0.1);
    }

    /// In many experiments, the interval contains the true median in about 95% of cases.
    #[test]
    fn interval_covers_true_median() {
        let mut random = Random::new(5);
        let covered = (0..400)
            .filter(|&seed| {
                let values: Vec<f64> = (0..60).map(|_| random.unit()).collect();
                let interval = bootstrap_median(&values, 500, seed).unwrap();
                interval.low <= 0.5 && 0.5 <= interval.high
            })
            .count();
        // Binomial(400, 0.95) has a standard deviation of 4.4; the percentile bootstrap is
        // slightly off 95% at n = 60.
        assert!((360..=397).contains(&covered), "{covered} of 400");
    }

    proptest! {
        #[test]
        fn interval_is_ordered_and_within_values(values in prop::collection::vec(0.1f64..10.0, 1..60), seed: u64) {
            let interval = bootstrap_median(&values, 100, seed).unwrap();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= interval.low && interval.low <= interval.median);
            prop_assert!(interval.median <= interval.high && interval.high <= most);
            prop_assert_eq!(interval, bootstrap_median(&values, 100, seed).unwrap());
        }

        #[test]
        fn ratios_of_scaled_values_equal_the_factor(values in prop::collection::vec(0.1f64..10.0, 1..40), factor in 0.5f64..2.0) {
            let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
            let ratios = paired_ratios(&scaled, &values);
            prop_assert!((median(&ratios).unwrap() - factor).abs() < 1e-12);
            prop_assert!((geometric_mean(&ratios).unwrap() - factor).abs() < 1e-12);
        }
    }
}
