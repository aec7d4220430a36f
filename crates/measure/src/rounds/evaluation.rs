//! Computes ratios from rounds.

use haul_model::Comparison;

use crate::disturbance::{self, Disturbance};
use crate::statistics::{self, Interval};

/// The least number of rounds whose interval may end a run early.
pub(crate) const ROUNDS_FOR_AN_INTERVAL: usize = 9;

/// If there are fewer undisturbed rounds than this, the disturbed rounds are not left out.
const ROUNDS_WORTH_KEEPING: usize = 5;

/// Resamples of the bootstrap: for the figures, and for the check whether a run can end.
const RESAMPLES: usize = 2000;
const RESAMPLES_FOR_A_CHECK: usize = 200;

/// The largest number of draws for one interval, which take 20 ms.
const DRAWS_MAX: usize = 4_000_000;

/// One round: a value per entrant (usually nanoseconds per operation), and whether another process
/// ran in it.
#[derive(Clone, Debug)]
pub struct Round {
    /// One value per entrant: the subjects and, as the last entrant, the baseline a second time.
    pub values: Vec<f64>,
    /// Whether another process ran during a sample of the round.
    pub hit: bool,
}

/// The results of rounds for the subjects and their baseline.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The values of each entrant in the rounds that count.
    pub series: Vec<Vec<f64>>,
    /// Each subject compared with the baseline (the baseline: with its second series). `None` if
    /// no round counts, and for figures of 0, which have no ratio.
    pub comparisons: Vec<Option<Comparison>>,
    /// The noise floor; `None` without a round.
    pub floor: Option<f64>,
    /// The number of rounds in the figures.
    pub rounds: usize,
    /// Rounds left out because another process ran in them.
    pub rounds_discarded: usize,
    /// The disturbance by other processes, if it must be reported.
    pub disturbance: Option<Disturbance>,
}

/// Evaluates rounds whose entrants are the subjects with these names and, as the last entrant,
/// `names[baseline]` a second time. Takes some 20 ms per subject.
///
/// # Panics
/// A round has other entrants, or `baseline` is not an index of `names`.
#[must_use]
pub fn evaluate(rounds: &[Round], names: &[String], baseline: usize, seed: u64) -> Evaluation {
    let (kept, rounds_discarded) = kept(rounds);
    let hit = rounds.iter().filter(|round| round.hit).count();
    let again = names.len();
    let resamples = (DRAWS_MAX / kept.len().max(1)).min(RESAMPLES);
    let interval = |entrant| ratio(&kept, entrant, baseline, resamples, seed);
    let itself = interval(again);
    let floor = itself.map(|interval| interval.distance_from_one()).filter(|it| it.is_finite());
    let compare = |entrant| {
        let interval = if entrant == baseline { itself } else { interval(entrant) };
        let is_ratio = |it: &Interval| [it.low, it.median, it.high].iter().all(|v| v.is_finite());
        interval.filter(is_ratio).zip(floor).map(|(interval, floor)| Comparison {
            baseline: names[baseline].clone(),
            ratio: interval.median,
            ratio_low: interval.low,
            ratio_high: interval.high,
            floor,
        })
    };
    Evaluation {
        series: (0..=again).map(|entrant| series(&kept, entrant)).collect(),
        comparisons: (0..again).map(compare).collect(),
        floor,
        rounds: kept.len(),
        rounds_discarded,
        disturbance: disturbance::switches(hit, rounds.len(), rounds_discarded > 0),
    }
}

/// Whether every interval is precise, including the interval of the baseline against itself. An
/// interval is precise if half of its width is at most this share of its ratio.
pub(crate) fn is_precise(rounds: &[Round], baseline: usize, precision: f64, seed: u64) -> bool {
    let (kept, _) = kept(rounds);
    let entrants = kept.first().map_or(0, |round| round.values.len());
    kept.len() >= ROUNDS_FOR_AN_INTERVAL
        && (0..entrants).filter(|&entrant| entrant != baseline).all(|entrant| {
            let interval = ratio(&kept, entrant, baseline, RESAMPLES_FOR_A_CHECK, seed);
            interval.is_some_and(|interval| interval.half_width() <= precision * interval.median)
        })
}

/// The rounds that count, and the number of rounds left out. Disturbed rounds are left out unless
/// they are at least half of all rounds, or too few other rounds remain.
fn kept(rounds: &[Round]) -> (Vec<&Round>, usize) {
    let clean: Vec<&Round> = rounds.iter().filter(|round| !round.hit).collect();
    if clean.len() * 2 > rounds.len() && clean.len() >= ROUNDS_WORTH_KEEPING {
        let discarded = rounds.len() - clean.len();
        return (clean, discarded);
    }
    (rounds.iter().collect(), 0)
}

fn series(rounds: &[&Round], entrant: usize) -> Vec<f64> {
    rounds.iter().map(|round| round.values[entrant]).collect()
}

fn ratio(
    rounds: &[&Round],
    entrant: usize,
    baseline: usize,
    resamples: usize,
    seed: u64,
) -> Option<Interval> {
    let ratios = statistics::paired_ratios(&series(rounds, entrant), &series(rounds, baseline));
    statistics::bootstrap_median(&ratios, resamples, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(hits: &[bool]) -> Vec<Round> {
        hits.iter()
            .map(|&hit| Round { values: vec![if hit { 9.0 } else { 1.0 }, 1.0], hit })
            .collect()
    }

    #[test]
    fn disturbed_rounds_are_left_out_while_a_minority() {
        let mostly_clean = rounds(&[true, false, false, false, false, false, true]);
        let (clean, discarded) = kept(&mostly_clean);
        assert_eq!((clean.len(), discarded), (5, 2));
        assert_eq!(series(&clean, 0), [1.0; 5]);
        let mostly_hit =
            rounds(&[true, true, true, true, true, true, false, false, false, false, false]);
        assert_eq!((kept(&mostly_hit).0.len(), kept(&mostly_hit).1), (11, 0));
        let few = rounds(&[false, false, false, true]);
        assert_eq!(kept(&few).0.len(), 4);
    }

    #[test]
    fn baseline_of_zero_gives_no_ratio() {
        let rounds: Vec<Round> =
            (0..9).map(|_| Round { values: vec![0.0, 1.0, 0.0], hit: false }).collect();
        let found = evaluate(&rounds, &["nothing".into(), "one".into()], 0, 1);
        assert_eq!((found.floor, found.comparisons), (None, vec![None, None]));
        assert_eq!(found.series[1], [1.0; 9]);
    }

    #[test]
    fn ratios_are_paired_by_round() {
        let noisy: Vec<Round> = (1..=50)
            .map(|n| Round { values: vec![f64::from(n) * 1.5, f64::from(n)], hit: false })
            .collect();
        let interval = ratio(&noisy.iter().collect::<Vec<_>>(), 0, 1, 200, 1).unwrap();
        assert_eq!((interval.low, interval.median, interval.high), (1.5, 1.5, 1.5));
    }
}
