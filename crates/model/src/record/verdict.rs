//! The conclusion of a comparison. All crates use this rule.

use super::{Better, Comparison, Record};
use crate::statistics::{self, median_interval};

/// The relative difference on which a reader would act. If a run cannot exclude a difference this
/// large, it must not report that there is none. Runs on a quiet machine have intervals and floors
/// of 1%, and the project's own promises are about 3 to 5%.
pub const MATTERS: f64 = 0.05;

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The subject has less of the metric than its baseline.
    Less,
    /// The subject has more of the metric than its baseline.
    More,
    /// A difference that would matter is excluded.
    NoDifference,
    /// The interval or the floor is wider than a difference that would matter.
    CannotTell,
}

/// The remedy for a run that does not show whether there is a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The interval is wide: measure more rounds, restarts or runs.
    Time,
    /// The floor is wide: equal subjects differ by more than would matter. Measure on a quieter
    /// machine.
    Quiet,
}

/// The ends of an interval.
type Ends = [f64; 2];

impl Verdict {
    /// The name of the verdict for a time or cost.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Less => "faster",
            Self::More => "slower",
            Self::NoDifference => "no difference",
            Self::CannotTell => "cannot tell",
        }
    }

    /// Decides. There is a difference if all of `differs` lies on one side of 1, and the ratio is
    /// farther from 1 than the floor. There is no difference if neither the floor nor any end of
    /// `holds` is farther from 1 than `matters`. Otherwise the run cannot tell whether there is a
    /// difference. Distances are those of logarithms, so that a rate gets the same verdict as its
    /// inverse, a time.
    ///
    /// For a single ratio, both intervals are the same. For many ratios, `differs` must be wider,
    /// according to the number of comparisons.
    #[must_use]
    pub fn decide(ratio: f64, differs: Ends, holds: Ends, floor: f64, matters: f64) -> Self {
        let apart = |ratio: f64| ratio.ln().abs();
        let is_beyond = apart(ratio) > floor.ln_1p();
        let near = matters.ln_1p() + 1e-12;
        if is_beyond && ratio < 1.0 && differs[1] < 1.0 {
            Self::Less
        } else if is_beyond && ratio > 1.0 && differs[0] > 1.0 {
            Self::More
        } else if holds.iter().all(|end| apart(*end) <= near) && floor.ln_1p() <= near {
            Self::NoDifference
        } else {
            Self::CannotTell
        }
    }
}

impl Settle {
    /// The remedy as text that follows "cannot tell:".
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Time => "more time would settle it",
            Self::Quiet => "a quieter machine would settle it",
        }
    }
}

impl Comparison {
    /// The verdict of the comparison, see [`Verdict::decide`].
    ///
    /// ```
    /// use haul_model::{Comparison, Settle, Verdict};
    /// let baseline = "libc".into();
    /// let (ratio, ratio_low, ratio_high, floor) = (0.97, 0.96, 0.98, 0.01);
    /// let mut against_libc = Comparison { baseline, ratio, ratio_low, ratio_high, floor };
    /// assert_eq!(against_libc.verdict(), Verdict::Less);
    /// against_libc.floor = 0.04;
    /// assert_eq!(against_libc.verdict(), Verdict::NoDifference);
    /// against_libc.floor = 0.4;
    /// assert_eq!(against_libc.verdict(), Verdict::CannotTell);
    /// assert_eq!(against_libc.settle(), Some(Settle::Quiet));
    /// ```
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let ends = [self.ratio_low, self.ratio_high];
        Verdict::decide(self.ratio, ends, ends, self.floor, MATTERS)
    }

    /// The remedy, if the verdict is [`Verdict::CannotTell`].
    #[must_use]
    pub fn settle(&self) -> Option<Settle> {
        let is_noisy = self.floor > MATTERS;
        let settle = if is_noisy { Settle::Quiet } else { Settle::Time };
        (self.verdict() == Verdict::CannotTell).then_some(settle)
    }

    /// The geometric mean of comparisons with one baseline, as one comparison. The ends of its
    /// interval are the means of the ends, as if all erred in the same direction, and its floor is
    /// the largest floor, so that a mean claims no more than its noisiest part allows. `None` if
    /// there are no comparisons, or if a ratio is not above 0.
    ///
    /// ```
    /// use haul_model::Comparison;
    /// let of = |ratio: f64| {
    ///     let (ratio_low, ratio_high) = (ratio * 0.99, ratio * 1.01);
    ///     Comparison { baseline: "libc".into(), ratio, ratio_low, ratio_high, floor: 0.02 }
    /// };
    /// let mean = Comparison::mean(&[&of(0.5), &of(2.0)]).unwrap();
    /// assert!((mean.ratio - 1.0).abs() < 1e-12 && mean.floor == 0.02);
    /// ```
    #[must_use]
    pub fn mean(all: &[&Self]) -> Option<Self> {
        let mean = |pick: fn(&Self) -> f64| {
            statistics::geometric_mean(&all.iter().map(|it| pick(it)).collect::<Vec<_>>())
        };
        Some(Self {
            baseline: all.first()?.baseline.clone(),
            ratio: mean(|it| it.ratio)?,
            ratio_low: mean(|it| it.ratio_low)?,
            ratio_high: mean(|it| it.ratio_high)?,
            floor: all.iter().map(|it| it.floor).fold(0.0, f64::max),
        })
    }

    /// Compares a subject with a subject other than its baseline, in times or costs, if one run
    /// contains both. It compares the samples round by round if the records contain them, else it
    /// uses the spread of each subject's samples. With fewer than
    /// [`statistics::INTERVAL_VALUES_MIN`] samples, the interval is unbounded. `None` if a figure
    /// is missing or not above 0, or if no direction is better.
    ///
    /// ```
    /// use haul_model::{Comparison, Record, Verdict};
    /// let of = |subject: &str, samples: &[f64]| {
    ///     let mut record = Record::new("r", "heap.pairs", subject, "time", "ns");
    ///     record.samples = samples.to_vec();
    ///     record
    /// };
    /// let (haul, other) = (of("haul", &[10.0, 11.0, 5.0]), of("jemalloc", &[20.0, 22.0, 10.0]));
    /// let beside = Comparison::between(&haul, &other).unwrap();
    /// assert_eq!((beside.ratio, beside.verdict()), (0.5, Verdict::Less));
    /// let once = Comparison::between(&of("haul", &[10.0]), &of("jemalloc", &[20.0])).unwrap();
    /// assert_eq!(once.verdict(), Verdict::CannotTell);
    /// ```
    #[must_use]
    pub fn between(own: &Record, other: &Record) -> Option<Self> {
        let better = Better::of(own)?;
        let is_number = |value: &f64| value.is_finite() && *value > 0.0;
        let (mine, theirs) = (own.median().filter(is_number)?, other.median().filter(is_number)?);
        let is_paired = own.quantiles_of.is_none()
            && other.quantiles_of.is_none()
            && own.samples.len() == other.samples.len()
            && own.samples.iter().chain(&other.samples).all(is_number);
        let floors = [own, other].map(|record| record.comparison.as_ref().map(|it| it.floor));
        let floor = floors.into_iter().flatten().reduce(f64::max).unwrap_or(MATTERS);
        let (ratio, ends) = if is_paired {
            let pairs = own.samples.iter().zip(&other.samples);
            let ratios: Vec<f64> = pairs.map(|(a, b)| better.cost(a / b)).collect();
            (statistics::median(&ratios)?, median_interval(&ratios))
        } else {
            let ratio = better.cost(mine / theirs);
            let half = half_width(own).zip(half_width(other)).map(|(a, b)| a.hypot(b));
            (ratio, half.map(|half| [ratio * (-half).exp(), ratio * half.exp()]))
        };
        let [ratio_low, ratio_high] = ends.unwrap_or([0.0, f64::MAX]);
        Some(Self { baseline: other.subject.clone(), ratio, ratio_low, ratio_high, floor })
    }
}

/// Half of the 95% interval of a record's median, relative to the median, from its quartiles:
/// 1.96 times the asymptotic standard error of the median of a normal distribution. `None` if
/// there are too few samples.
fn half_width(record: &Record) -> Option<f64> {
    /// 1.96 x sqrt(pi/2) / 1.349; the last is the distance of a normal distribution's quartiles in
    /// standard deviations.
    const OF_QUARTILES: f64 = 1.82;
    let count = record.samples_count();
    let of = |share| statistics::quantile(&record.samples, share);
    let apart = (of(0.75)? - of(0.25)?) / record.median()?;
    let is_enough = count >= statistics::INTERVAL_VALUES_MIN as u64;
    (is_enough && apart.is_finite()).then(|| OF_QUARTILES * apart / (count as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, low: f64, high: f64, floor: f64) -> Comparison {
        Comparison { baseline: "libc".into(), ratio, ratio_low: low, ratio_high: high, floor }
    }

    #[test]
    fn verdict_follows_interval_and_floor() {
        for (c, expected) in [
            (comparison(0.80, 0.78, 0.82, 0.01), Verdict::Less),
            (comparison(1.20, 1.15, 1.25, 0.01), Verdict::More),
            (comparison(0.99, 0.985, 0.995, 0.0125), Verdict::NoDifference),
            (comparison(1.00, 1.00, 1.00, 0.00), Verdict::NoDifference),
            (comparison(1.03, 1.02, 1.04, 0.04), Verdict::NoDifference),
            // The interval contains differences that would matter.
            (comparison(0.80, 0.70, 1.01, 0.01), Verdict::CannotTell),
            (comparison(1.20, 0.99, 1.40, 0.01), Verdict::CannotTell),
            (comparison(0.76, 0.25, 3.12, 2.80), Verdict::CannotTell),
            // The floor is wide, because equal subjects differ by as much.
            (comparison(1.01, 1.00, 1.02, 0.30), Verdict::CannotTell),
            (comparison(1.20, 1.19, 1.21, 0.30), Verdict::CannotTell),
        ] {
            assert_eq!(c.verdict(), expected, "{c:?}");
            assert_eq!(c.settle().is_some(), expected == Verdict::CannotTell, "{c:?}");
        }
        assert_eq!(comparison(0.8, 0.7, 1.01, 0.01).settle(), Some(Settle::Time));
        assert_eq!(comparison(0.76, 0.25, 3.12, 2.80).settle(), Some(Settle::Quiet));
    }

    /// A page that shows a rate and a terminal that shows the time must agree.
    #[test]
    fn verdict_of_inverse_is_mirrored() {
        let turned = |verdict| match verdict {
            Verdict::Less => Verdict::More,
            Verdict::More => Verdict::Less,
            other => other,
        };
        for ratio in [0.2, 0.76, 0.952, 0.97, 0.99, 1.0, 1.02, 1.049, 1.06, 3.0] {
            for width in [0.0, 0.005, 0.03, 0.2, 2.0] {
                for floor in [0.0, 0.01, 0.03, 0.06, 0.3, 2.8] {
                    let [low, high] = [-1.0, 1.0].map(|side: f64| ratio * (side * width).exp());
                    let of = comparison(ratio, low, high, floor);
                    let other = comparison(1.0 / ratio, 1.0 / high, 1.0 / low, floor);
                    assert_eq!(other.verdict(), turned(of.verdict()), "{of:?}");
                }
            }
        }
    }

    fn record(subject: &str, samples: &[f64]) -> Record {
        let mut record = Record::new("r", "channel.transfer", subject, "throughput", "GB/s");
        record.samples = samples.to_vec();
        record
    }

    #[test]
    fn between_pairs_subjects_by_round() {
        // The machine halved its speed during the run, for both subjects.
        let own = record("haul", &[8.0, 8.4, 8.2, 4.1, 4.0, 4.2]);
        let other = record("pipe", &[4.0, 4.2, 4.1, 2.05, 2.0, 2.1]);
        let beside = Comparison::between(&own, &other).unwrap();
        assert!((beside.ratio - 0.5).abs() < 1e-9, "in cost: {beside:?}");
        assert!((beside.ratio_high - beside.ratio_low).abs() < 1e-9, "{beside:?}");
        assert_eq!(beside.floor, MATTERS, "without a measured floor, MATTERS is assumed");
        // Quantiles have no rounds, so only the spread of each is known.
        let mut thinned = own.clone();
        thinned.quantiles_of = std::num::NonZeroU64::new(6);
        let beside = Comparison::between(&thinned, &other).unwrap();
        assert!(beside.ratio_high / beside.ratio_low > 1.5, "{beside:?}");
        thinned.quantiles_of = std::num::NonZeroU64::new(60_000);
        let beside = Comparison::between(&thinned, &thinned).unwrap();
        assert!(beside.ratio_high / beside.ratio_low < 1.02, "{beside:?}");
        assert_eq!(Comparison::between(&own, &record("pipe", &[])), None);
        assert_eq!(Comparison::between(&own, &record("pipe", &[0.0; 6])), None);
    }
}
