//! One figure, then and now.

use haul_model::experiment::key;
use haul_model::{Better, Comparison, Record};

use crate::select::field;
use crate::stats::quantile;

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It takes less time, or costs less, beyond the noise.
    Faster,
    /// It takes more.
    Slower,
    /// Neither.
    Stayed,
}

/// A figure, then and now, in time or cost: below 1 is better now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// Now over then; where both runs compared it with the same baseline, of the ratios to that.
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// The same of the medians, whatever the baseline did.
    pub medians: f64,
    /// The floors of both runs together, or the least change that counts.
    pub noise: f64,
    /// Whether the ratio is one of ratios to a baseline.
    pub is_beside: bool,
    pub change: Change,
}

/// A ratio and its interval.
struct Ratio {
    value: f64,
    low: f64,
    high: f64,
}

impl Change {
    /// As records and tables say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Stayed => "stayed",
        }
    }

    /// What a record of `compare` says; `None` where it is none.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        let said = field(record, key::CHANGE)?;
        [Self::Faster, Self::Slower, Self::Stayed].into_iter().find(|change| change.name() == said)
    }
}

impl Judged {
    /// `None` where no direction is better, or a figure is not above 0.
    pub(super) fn of(old: &Record, new: &Record, least: f64) -> Option<Self> {
        let better = Better::of(new)?;
        let is_number = |value: &f64| value.is_finite() && *value > 0.0;
        let (then, now) = (old.median().filter(is_number)?, new.median().filter(is_number)?);
        let medians = better.cost(now / then);
        let compared = compared(old).zip(compared(new)).filter(|(a, b)| a.baseline == b.baseline);
        let ratio = match &compared {
            Some((a, b)) => Ratio {
                value: b.ratio / a.ratio,
                low: b.ratio_low / a.ratio_high,
                high: b.ratio_high / a.ratio_low,
            },
            None => quartiles(old, new, now / then)?.cost(better),
        };
        let noise = (floor(old) + floor(new)).max(least);
        let change = if ratio.low > 1.0 && ratio.value - 1.0 > noise && medians - 1.0 > noise {
            Change::Slower
        } else if ratio.high < 1.0 && 1.0 - ratio.value > noise && 1.0 - medians > noise {
            Change::Faster
        } else {
            Change::Stayed
        };
        let Ratio { value, low, high } = ratio;
        let all = [value, low, high, noise, medians];
        let is_beside = compared.is_some();
        all.iter().all(|value| value.is_finite()).then_some(Self {
            ratio: value,
            low,
            high,
            medians,
            noise,
            is_beside,
            change,
        })
    }

    /// Losses first.
    pub(super) fn place(&self) -> u8 {
        match self.change {
            Change::Slower => 0,
            Change::Faster => 1,
            Change::Stayed => 2,
        }
    }
}

impl Ratio {
    /// As one of time or cost.
    fn cost(self, better: Better) -> Self {
        match better {
            Better::Less => self,
            Better::More => {
                Self { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low }
            }
        }
    }
}

/// The comparison of a subject that is not its own baseline, in time or cost.
fn compared(record: &Record) -> Option<Comparison> {
    record.cost().filter(|c| c.baseline != record.subject && c.ratio_low > 0.0)
}

/// Without a baseline in both, the quartiles stand for the interval.
fn quartiles(old: &Record, new: &Record, value: f64) -> Option<Ratio> {
    let of = |record: &Record, share| quantile(&record.samples, share);
    Some(Ratio {
        value,
        low: of(new, 0.25)? / of(old, 0.75)?,
        high: of(new, 0.75)? / of(old, 0.25)?,
    })
}

/// The run's own noise floor for this figure; half of what its quartiles lie apart where nothing
/// was compared.
fn floor(record: &Record) -> f64 {
    if let Some(comparison) = &record.comparison {
        return comparison.floor;
    }
    let of = |share| quantile(&record.samples, share).unwrap_or(0.0);
    let median = of(0.5);
    if median > 0.0 { (of(0.75) - of(0.25)).abs() / median / 2.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(unit: &str, median: f64, ratio: Option<f64>, floor: f64) -> Record {
        let mut record = Record::new("r", "copy.size", "haul", "x", unit);
        record.samples = vec![median * 0.999, median, median * 1.001];
        record.comparison = ratio.map(|ratio| Comparison {
            baseline: "libc".into(),
            ratio,
            ratio_low: ratio * 0.999,
            ratio_high: ratio * 1.001,
            floor,
        });
        record
    }

    fn change(old: &Record, new: &Record) -> Change {
        Judged::of(old, new, 0.0).unwrap().change
    }

    #[test]
    fn a_change_needs_the_median_and_the_ratio_to_the_baseline() {
        let old = record("ns", 100.0, Some(0.8), 0.01);
        let of = |median: f64, ratio: f64| record("ns", median, Some(ratio), 0.01);
        assert_eq!(change(&old, &of(110.0, 0.88)), Change::Slower);
        assert_eq!(change(&old, &of(90.0, 0.72)), Change::Faster);
        // The machine became slower, and everything with it.
        assert_eq!(change(&old, &of(110.0, 0.8)), Change::Stayed);
        // The baseline became slower, and haul did not.
        assert_eq!(change(&old, &of(100.0, 0.72)), Change::Stayed);
        // Both floors together are 2%.
        assert_eq!(change(&old, &of(101.9, 0.8 * 1.019)), Change::Stayed);
        assert_eq!(change(&old, &of(102.5, 0.8 * 1.025)), Change::Slower);
    }

    #[test]
    fn a_rate_that_falls_is_slower_and_the_ratio_is_one_of_cost() {
        let (old, new) = (record("GB/s", 10.0, None, 0.0), record("GB/s", 8.0, None, 0.0));
        let judged = Judged::of(&old, &new, 0.0).unwrap();
        assert_eq!(judged.change, Change::Slower);
        assert!((judged.ratio - 1.25).abs() < 1e-9, "{judged:?}");
        assert!(judged.low < 1.25 && judged.high > 1.25, "{judged:?}");
        assert_eq!(change(&new, &old), Change::Faster);
    }

    #[test]
    fn a_rate_is_judged_alike_whichever_ratio_its_record_holds() {
        let before = record("GB/s", 10.0, Some(2.0), 0.01);
        let rates = record("GB/s", 12.0, Some(2.4), 0.01);
        let mut costs = record("GB/s", 12.0, None, 0.01);
        costs.compare(rates.comparison.clone());
        for new in [&rates, &costs] {
            let judged = Judged::of(&before, new, 0.0).unwrap();
            assert_eq!(judged.change, Change::Faster);
            assert!((judged.ratio - 2.0 / 2.4).abs() < 1e-9, "{judged:?}");
            assert!(judged.is_beside);
            assert_eq!(change(new, &before), Change::Slower);
        }
        assert_eq!(change(&rates, &costs), Change::Stayed);
    }

    #[test]
    fn without_a_baseline_the_spread_is_the_floor() {
        let (mut old, mut new) = (record("ns", 100.0, None, 0.0), record("ns", 104.0, None, 0.0));
        assert_eq!(change(&old, &new), Change::Slower);
        old.samples = vec![90.0, 100.0, 110.0];
        new.samples = vec![94.0, 104.0, 114.0];
        assert_eq!(change(&old, &new), Change::Stayed);
    }

    #[test]
    fn what_is_no_cost_is_not_judged() {
        let of = |unit: &str, median: f64| {
            Judged::of(&record(unit, median, None, 0.0), &record(unit, 1.0, None, 0.0), 0.0)
        };
        assert!(of("%", 1.0).is_none());
        assert!(of("ns", 0.0).is_none());
        assert!(of("ns", 1.0).is_some());
    }
}
