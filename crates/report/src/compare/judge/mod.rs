//! Judges one figure of several earlier and later runs.
//!
//! ```text
//! several runs  the logarithm of a run's figure is one value; the two sides are compared by
//!               Student's t, with a deviation that is half the figure's own and half the usual
//!               one of figures of its kind (Smyth 2004, "Linear models and empirical Bayes
//!               methods"), and by Holm's method for the number of figures
//! one of each   the spread between two runs of one program is unknown: a figure is called faster
//!               or slower only beyond the largest difference ever seen between two such runs
//! ```

use std::collections::BTreeMap;

use haul_model::statistics::{
    INTERVAL_VALUES_MIN, median, quantile, student_quantile, student_tails,
};
use haul_model::{Better, Comparison, MATTERS, Record, Verdict};

/// The chance of one false alarm or more among all figures of a comparison.
const FALSE_ALARMS: f64 = 0.05;

/// The chance that the shown interval misses the change of one figure.
const TAILS: f64 = 0.05;

/// The number of degrees of freedom that the usual deviation counts as having: as many as in a
/// comparison of three runs with three. With 2, fewer real changes were found in 80 runs on
/// record; with 8,
/// 3.5% of the comparisons of a program with itself gave a false alarm.
const USUAL_FREEDOM: f64 = 4.0;

/// The smallest number of runs, of both sides together, with which their spread can be measured.
const RUNS_MIN: usize = 4;

/// A baseline that moved by more than this share is not comparable between the sides. No copy of
/// libc that was measured under load moved by more.
const BASELINE_MOVES_MAX: f64 = 0.25;

/// With one run of each side, only a larger factor counts as a change: in 80 runs of one program
/// the largest factor between two was 1.43 (a copy of 17 to 64 bytes on Zen 4, by the state of the
/// branch predictor).
const SEEN_APART: f64 = 2.0;

/// The records of a figure on both sides.
#[derive(Clone, Debug)]
pub(super) struct Sides<'a> {
    pub old: Vec<&'a Record>,
    pub new: Vec<&'a Record>,
}

/// The values of a figure's runs, as logarithms of time or cost.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// The group of figures with a similar spread between runs: a part of haul, and whether it is
    /// one figure or the whole.
    pub kind: String,
    /// One value per run: the ratio to the baseline, if all runs have the same stable baseline.
    pub old: Vec<f64>,
    pub new: Vec<f64>,
    /// The change of the medians, regardless of the baseline.
    pub medians: f64,
    /// Whether the baseline moved by more than the spread of its runs.
    pub is_baseline_moved: bool,
    /// The precision of a single run: the standard error of the difference between two runs.
    pub within: f64,
    /// The floors of both sides together.
    pub floor: f64,
    /// Whether the values are ratios to a baseline.
    pub is_beside: bool,
}

/// The verdict on a figure, in time or cost: below 1 means better now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// The change of the medians, regardless of the baseline.
    pub medians: f64,
    /// The floors, or the least change that counts.
    pub noise: f64,
    pub is_beside: bool,
    pub verdict: Verdict,
}

impl Observed {
    /// `None` if no direction is better, or if a figure is not above 0.
    pub(super) fn of(sides: &Sides<'_>) -> Option<Self> {
        let better = Better::of(sides.new.first()?)?;
        let medians = |records: &[&Record]| -> Option<Vec<f64>> {
            let of = |record: &&Record| Some(logarithm(better.cost(record.median()?)));
            records.iter().map(of).collect::<Option<Vec<_>>>().filter(|all| are_finite(all))
        };
        let (old, new) = (medians(&sides.old)?, medians(&sides.new)?);
        let moved = mean(&new) - mean(&old);
        let floor = floor(&sides.old) + floor(&sides.new);
        let beside = sides.ratios().filter(|_| !sides.is_baseline_another(moved));
        let is_beside = beside.is_some();
        let within = if is_beside { half_of_ratios } else { half_of_quartiles };
        let within = within(sides.old.first()?).hypot(within(sides.new.first()?));
        let is_baseline_moved = beside.as_ref().is_none_or(|ratios| {
            let less = |medians: &[f64], ratios: &[f64]| -> Vec<f64> {
                medians.iter().zip(ratios).map(|(median, ratio)| median - ratio).collect()
            };
            is_moved(&less(&old, &ratios.0), &less(&new, &ratios.1))
        });
        let (old, new) = beside.unwrap_or((old, new));
        let kind = part(sides.new[0]).to_owned();
        Some(Self { kind, old, new, medians: moved, is_baseline_moved, within, floor, is_beside })
    }

    /// The change from the earlier to the later values.
    pub(super) fn moved(&self) -> f64 {
        mean(&self.new) - mean(&self.old)
    }

    /// Degrees of freedom of the spread between runs; `None` if it is unknown.
    pub(super) fn freedom(&self) -> Option<f64> {
        let runs = self.old.len() + self.new.len();
        (runs >= RUNS_MIN).then(|| (runs - 2) as f64)
    }

    /// The variance between runs of one side.
    pub(super) fn variance(&self) -> Option<f64> {
        Some((squares(&self.old) + squares(&self.new)) / self.freedom()?)
    }

    /// The standard error of the change and its degrees of freedom, given the usual variance of all
    /// figures.
    fn error(&self, usual: f64) -> Option<(f64, f64)> {
        let own = self.freedom()?;
        let freedom = USUAL_FREEDOM + own;
        let variance = (USUAL_FREEDOM * usual + own * self.variance()?) / freedom;
        let runs = 1.0 / self.old.len() as f64 + 1.0 / self.new.len() as f64;
        Some(((variance * runs).sqrt(), freedom))
    }
}

/// Judges all figures, each of which may be a false alarm. Changes up to `least` count as no
/// change.
pub(super) fn judge(all: &[Observed], least: f64) -> Vec<Judged> {
    let mut variances: BTreeMap<(&str, bool), Vec<f64>> = BTreeMap::new();
    for it in all {
        variances.entry((&it.kind, it.is_beside)).or_default().extend(it.variance());
    }
    let usual = |it: &Observed| median(&variances[&(it.kind.as_str(), it.is_beside)]);
    let errors: Vec<Option<(f64, f64)>> =
        all.iter().map(|it| it.error(usual(it).unwrap_or(0.0))).collect();
    let levels = levels(all, &errors);
    let noise = |it: &Observed| it.floor.max(least);
    let each = all.iter().zip(errors.iter().zip(levels));
    each.map(|(it, (error, level))| match error {
        Some((error, freedom)) => {
            let half = |tails: f64| error * student_quantile(tails, *freedom);
            it.judged(level.map(half), half(TAILS), noise(it), least)
        }
        None => it.judged(it.seen_apart(), 1.96 * it.within, noise(it), least),
    })
    .collect()
}

/// Holm's method: each figure's share of the chance of a false alarm, in the order of rising
/// probability, until a figure is not significant.
fn levels(all: &[Observed], errors: &[Option<(f64, f64)>]) -> Vec<Option<f64>> {
    let chance = |(it, error): (&Observed, &Option<(f64, f64)>)| match error {
        None => 1.0,
        Some(_) if it.moved() == 0.0 => 1.0,
        Some((error, freedom)) => student_tails(it.moved() / error, *freedom),
    };
    let chances: Vec<f64> = all.iter().zip(errors).map(chance).collect();
    let mut order: Vec<usize> = (0..all.len()).filter(|place| errors[*place].is_some()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut levels = vec![None; all.len()];
    for (rank, place) in order.iter().enumerate() {
        let level = FALSE_ALARMS / (order.len() - rank) as f64;
        if chances[*place] > level {
            break;
        }
        levels[*place] = Some(level);
    }
    levels
}

impl Observed {
    /// Judges a change: beyond `differs` in either direction it is significant. `holds` is half the
    /// width of the shown interval.
    fn judged(&self, differs: Option<f64>, holds: f64, noise: f64, least: f64) -> Judged {
        let moved = self.moved();
        let [low, high] = [moved - holds, moved + holds].map(f64::exp);
        let far = match differs {
            Some(half) => [moved - half, moved + half].map(f64::exp),
            None => [0.0, f64::MAX],
        };
        let matters = MATTERS.max(least);
        let decide = |ratio: f64, far| Verdict::decide(ratio, far, [low, high], noise, matters);
        let verdict = match decide(moved.exp(), far) {
            // A change of the ratio that comes from the baseline alone is not a change of the
            // figure.
            Verdict::Less | Verdict::More if !self.is_followed() => match self.medians.abs() {
                medians if medians <= matters.ln_1p() => Verdict::NoDifference,
                _ => Verdict::CannotTell,
            },
            verdict => verdict,
        };
        let (ratio, medians) = (moved.exp(), self.medians.exp());
        Judged { ratio, low, high, medians, noise, is_beside: self.is_beside, verdict }
    }

    /// Whether the medians moved with the ratios, by at least half as much; or the baseline did not
    /// move beyond the spread of its runs, so that it cannot explain the change.
    fn is_followed(&self) -> bool {
        !self.is_beside || self.medians / self.moved() > 0.5 || !self.is_baseline_moved
    }

    /// With one run of each side: the largest difference that counts as no change.
    fn seen_apart(&self) -> Option<f64> {
        let is_known = self.is_beside && self.floor <= 2.0 * MATTERS;
        is_known.then(|| SEEN_APART.ln().max(1.96 * self.within))
    }
}

impl Judged {
    /// The sort order: losses first.
    pub(super) fn place(&self) -> u8 {
        match self.verdict {
            Verdict::More => 0,
            Verdict::Less => 1,
            Verdict::CannotTell => 2,
            Verdict::NoDifference => 3,
        }
    }
}

impl Sides<'_> {
    /// The ratios to the baseline, if all runs have the same baseline.
    fn ratios(&self) -> Option<(Vec<f64>, Vec<f64>)> {
        let first = compared(self.new.first()?)?.baseline;
        let of = |records: &[&Record]| -> Option<Vec<f64>> {
            let ratio = |record: &&Record| {
                compared(record).filter(|it| it.baseline == first).map(|it| logarithm(it.ratio))
            };
            records.iter().map(ratio).collect::<Option<Vec<_>>>().filter(|all| are_finite(all))
        };
        Some((of(&self.old)?, of(&self.new)?))
    }

    /// Whether the baseline moved by so much between the sides that ratios to it are not
    /// comparable.
    fn is_baseline_another(&self, moved: f64) -> bool {
        let Some((old, new)) = self.ratios() else { return true };
        let baseline = moved - (mean(&new) - mean(&old));
        baseline.abs() > BASELINE_MOVES_MAX.ln_1p()
    }
}

/// The part of haul to which an experiment belongs: `copy` for `copy.size`.
pub(super) fn part(record: &Record) -> &str {
    record.experiment.split('.').next().unwrap_or_default()
}

/// The comparison of a subject that is not its own baseline, in time or cost.
fn compared(record: &Record) -> Option<Comparison> {
    record.cost().filter(|c| c.baseline != record.subject && c.ratio_low > 0.0)
}

/// The standard error of a run's ratio.
fn half_of_ratios(record: &Record) -> f64 {
    compared(record).map_or(0.0, |it| (it.ratio_high / it.ratio_low).ln() / 2.0 / 1.96)
}

/// The standard error of a run's median, from its quartiles; unknown if there are few samples.
fn half_of_quartiles(record: &Record) -> f64 {
    if record.samples_count() < INTERVAL_VALUES_MIN as u64 {
        return f64::MAX.ln();
    }
    let of = |share| quantile(&record.samples, share).unwrap_or(0.0);
    let apart = (of(0.75) - of(0.25)).abs() / of(0.5).abs();
    let error = 0.93 * apart / (record.samples_count() as f64).sqrt();
    if error.is_finite() { error } else { f64::MAX.ln() }
}

/// The noise floor of the runs of a side: the median of their floors. Without a comparison, a run's
/// floor is half the distance of its quartiles.
fn floor(records: &[&Record]) -> f64 {
    let own = |record: &&Record| match &record.comparison {
        Some(comparison) => comparison.floor,
        None => {
            let of = |share| quantile(&record.samples, share).unwrap_or(0.0);
            let middle = of(0.5).abs();
            if middle > 0.0 { (of(0.75) - of(0.25)).abs() / middle / 2.0 } else { 0.0 }
        }
    };
    median(&records.iter().map(own).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Whether the means of two sides differ by more than chance; true if there are too few runs to
/// decide this.
fn is_moved(old: &[f64], new: &[f64]) -> bool {
    let runs = old.len() + new.len();
    if runs < RUNS_MIN {
        return true;
    }
    let freedom = (runs - 2) as f64;
    let variance = (squares(old) + squares(new)) / freedom;
    let error = (variance * (1.0 / old.len() as f64 + 1.0 / new.len() as f64)).sqrt();
    (mean(new) - mean(old)).abs() > error * student_quantile(TAILS, freedom)
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

fn logarithm(value: f64) -> f64 {
    if value > 0.0 { value.ln() } else { f64::NAN }
}

fn are_finite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests;
