//! Rounds in which the place within a round may matter: those of whole programs.
//!
//! A program that runs second finds warmer caches and a hotter processor than one that runs first.
//! So the baseline, the changed program and the baseline again visit each of the three places
//! equally often ([`order`]), and the effect of a place is estimated from all runs and removed.
//! The floor comes from the baseline's second run, which visits the same places as the changed
//! program: a floor of consecutive runs of one side would contain the effect of the places, and
//! hide changes of its size.
//!
//! ```
//! use haul_measure::rounds::placed::{self, Placed};
//! // Half of the rounds were slowed, and the first place of a round always is.
//! let rounds: Vec<Placed> = (0..15)
//!     .map(|round| {
//!         let order = placed::order(round, 7);
//!         let slowed = if round % 2 == 0 { 1.5 } else { 1.0 };
//!         let place = |entrant| if order[0] == entrant { 1.04 } else { 1.0 };
//!         let values = [100.0, 103.0, 100.1];
//!         Placed { order, values: [0, 1, 2].map(|it| values[it] * slowed * place(it)) }
//!     })
//!     .collect();
//! let found = placed::compare(&rounds, placed::TAILS, 1).unwrap();
//! assert!((found.ratio - 1.03).abs() < 1e-3 && found.floor < 0.002);
//! assert_eq!(found.effect, 1.0); // the changed program is slower in every round
//! ```

use haul_model::statistics::{robust_deviation, student_quantile};

use crate::random::Random;
use crate::statistics::median;

/// The number of entrants, and of places in a round.
pub const ENTRANTS: usize = 3;
/// The baseline.
pub const BASELINE: usize = 0;
/// The changed program.
pub const CHANGED: usize = 1;
/// The baseline again.
pub const AGAIN: usize = 2;

/// The chance that an interval does not contain the true ratio, on both sides together.
pub const TAILS: f64 = 0.05;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 1000;

/// Passes over rounds, entrants and places by means, and then by means without the disturbed runs.
const POLISHES: usize = 4;
const REFINEMENTS: usize = 20;

/// A run counts as disturbed if it is farther than this from its expected value, in standard
/// deviations of a run. On a machine without disturbances, one run in 16,000 is.
const DISTURBED_DEVIATIONS: f64 = 4.0;

/// If fewer undisturbed rounds than this remain, all rounds count.
const ROUNDS_WORTH_KEEPING: usize = 5;

/// The first analysis of a run that ends once it is decided, in rounds.
const FIRST_ANALYSIS: usize = 6;

/// The two Latin squares of three entrants. In one, each entrant follows the entrant before it; in
/// the other, the entrant after it.
const SQUARES: [[[usize; ENTRANTS]; ENTRANTS]; 2] =
    [[[0, 1, 2], [1, 2, 0], [2, 0, 1]], [[0, 2, 1], [2, 1, 0], [1, 0, 2]]];

/// A round: which entrant ran at which place, and each entrant's value, which is above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    /// The entrant at each place.
    pub order: [usize; ENTRANTS],
    /// The value of each entrant.
    pub values: [f64; ENTRANTS],
}

/// The changed program compared with its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The median over the rounds of changed over baseline, without the effect of the places.
    pub ratio: f64,
    /// The lower end of the ratio's interval.
    pub low: f64,
    /// The upper end of the ratio's interval.
    pub high: f64,
    /// The distance from 1 of the farther end of the interval of the baseline's ratio to itself.
    pub floor: f64,
    /// The effect size: Kerby's matched-pairs rank-biserial correlation, from -1 (the changed
    /// program has less in every round) to 1 (more in every round).
    pub effect: f64,
    /// The effect of each place, as a ratio to their median.
    pub places: [f64; ENTRANTS],
    /// The number of rounds left out of the ratio, because one of its two runs was disturbed.
    pub discarded: usize,
}

/// The entrants of a round in the order in which they run. Three rounds are a Latin square: each
/// entrant runs at each place once. The next three rounds are the other square, so that each
/// entrant follows each other one equally often. `seed` draws the order of the rows.
#[must_use]
pub fn order(round: usize, seed: u64) -> [usize; ENTRANTS] {
    let square = round / ENTRANTS;
    let mut random = Random::new(seed.wrapping_add(square as u64 / 2));
    let first = random.below(SQUARES.len());
    let mut rows = SQUARES[(first + square) % SQUARES.len()];
    random.shuffle(&mut rows);
    rows[round % ENTRANTS]
}

/// Compares the changed program with its baseline. `tails` is the chance that the interval does
/// not contain the true ratio: [`TAILS`], or less for one of several analyses ([`analyses`]). With
/// fewer than three rounds the interval is unbounded. `None` if there is no round, or if a value is
/// not above 0. Takes some milliseconds for a hundred rounds.
#[must_use]
pub fn compare(rounds: &[Placed], tails: f64, seed: u64) -> Option<Compared> {
    let is_positive = |value: &f64| value.is_finite() && *value > 0.0;
    if rounds.is_empty() || !rounds.iter().all(|round| round.values.iter().all(is_positive)) {
        return None;
    }
    let polished = polished(rounds);
    let places = polished.places;
    let [changed, again] = [CHANGED, AGAIN].map(|it| undisturbed(rounds, it, &polished));
    let discarded = rounds.len() - changed.len();
    let (middle, half) = (median(&changed)?, half_width(&changed, tails, seed));
    // The floor protects a single comparison, so its interval does not widen with the analyses.
    let floor = median(&again)?.abs() + half_width(&again, TAILS, seed);
    let bounded = |logarithm: f64| logarithm.exp().min(f64::MAX);
    Some(Compared {
        ratio: bounded(middle),
        low: if half.is_finite() { bounded(middle - half) } else { 0.0 },
        high: bounded(middle + half),
        floor: bounded(floor) - 1.0,
        effect: rank_biserial(&changed),
        places: places.map(f64::exp),
        discarded,
    })
}

/// The numbers of rounds after which a run of at most `most` rounds is analysed, if it ends once
/// it is decided. Each number is half as large again as the one before, and all are whole Latin
/// squares except the last. An analysis that uses `TAILS / analyses(most).len()` keeps the chance
/// of a wrong interval at [`TAILS`] over all analyses together (Bonferroni).
///
/// ```
/// use haul_measure::rounds::placed::analyses;
/// assert_eq!(analyses(60), [6, 9, 15, 24, 36, 54, 60]);
/// assert_eq!(analyses(4), [4]);
/// ```
#[must_use]
pub fn analyses(most: usize) -> Vec<usize> {
    let mut at = FIRST_ANALYSIS;
    let mut rounds = Vec::new();
    while at < most {
        rounds.push(at);
        at = (at + at / 2).next_multiple_of(ENTRANTS);
    }
    rounds.push(most);
    rounds
}

/// A run's value, as far as the effects of its round, its entrant and its place do not explain it.
struct Cell {
    round: usize,
    entrant: usize,
    place: usize,
    logarithm: f64,
    /// Its weight in a mean.
    weight: f64,
}

/// The effects of a set of rounds.
struct Polished {
    /// The logarithm of each place's effect, with a median of 0.
    places: [f64; ENTRANTS],
    /// What no effect explains, of each round and entrant.
    residuals: Vec<[f64; ENTRANTS]>,
}

fn polished(rounds: &[Placed]) -> Polished {
    let mut cells = Vec::with_capacity(rounds.len() * ENTRANTS);
    for (round, placed) in rounds.iter().enumerate() {
        for (place, entrant) in placed.order.into_iter().enumerate() {
            let logarithm = placed.values[entrant].ln();
            cells.push(Cell { round, entrant, place, logarithm, weight: 1.0 });
        }
    }
    let mut effects = [0.0; ENTRANTS];
    for pass in 0..POLISHES + REFINEMENTS {
        // The first passes are least squares, which find the disturbed runs. Tried: medians. They
        // can take the effect of a place for disturbed runs.
        if pass >= POLISHES {
            weigh(&mut cells);
        }
        sweep(&mut cells, rounds.len(), |cell| cell.round);
        sweep(&mut cells, ENTRANTS, |cell| cell.entrant);
        for (effect, swept) in effects.iter_mut().zip(sweep(&mut cells, ENTRANTS, |it| it.place)) {
            *effect += swept;
        }
    }
    let mut residuals = vec![[0.0; ENTRANTS]; rounds.len()];
    for cell in cells {
        residuals[cell.round][cell.entrant] = cell.logarithm;
    }
    Polished { places: centred(effects), residuals }
}

/// Gives each cell the weight of Tukey's biweight: less, the farther it is from 0, and none beyond
/// six deviations.
fn weigh(cells: &mut [Cell]) {
    let sizes: Vec<f64> = cells.iter().map(|cell| cell.logarithm.abs()).collect();
    let mean = sizes.iter().sum::<f64>() / sizes.len().max(1) as f64;
    // If most cells are exactly 0, their median says nothing about the others.
    let deviation = robust_deviation(&sizes.iter().flat_map(|it| [*it, -*it]).collect::<Vec<_>>());
    let deviation = deviation.filter(|it| *it > 0.0).unwrap_or(mean);
    for cell in cells {
        let share = (cell.logarithm / (6.0 * deviation)).powi(2);
        let is_exact = deviation == 0.0;
        cell.weight = if is_exact { 1.0 } else { (1.0 - share).max(0.0).powi(2) };
    }
}

/// Subtracts the middle of each group from its cells, and returns the middles.
fn sweep(cells: &mut [Cell], groups: usize, group: impl Fn(&Cell) -> usize) -> Vec<f64> {
    let mut members: Vec<Vec<&Cell>> = (0..groups).map(|_| Vec::new()).collect();
    for cell in &*cells {
        members[group(cell)].push(cell);
    }
    let middles: Vec<f64> = members.iter().map(|cells| middle(cells)).collect();
    for cell in cells {
        cell.logarithm -= middles[group(cell)];
    }
    middles
}

/// The weighted mean of the cells, or their median if all weights are 0.
fn middle(cells: &[&Cell]) -> f64 {
    let all: f64 = cells.iter().map(|cell| cell.weight).sum();
    if all > 0.0 {
        return cells.iter().map(|cell| cell.weight * cell.logarithm).sum::<f64>() / all;
    }
    let values: Vec<f64> = cells.iter().map(|cell| cell.logarithm).collect();
    median(&values).unwrap_or(0.0)
}

fn centred(values: [f64; ENTRANTS]) -> [f64; ENTRANTS] {
    let middle = median(&values).unwrap_or(0.0);
    values.map(|value| value - middle)
}

/// The logarithms of an entrant's ratio to the baseline, round by round.
fn differences(rounds: &[Placed], entrant: usize, places: &[f64; ENTRANTS]) -> Vec<f64> {
    let effect = |round: &Placed, entrant: usize| {
        let place = round.order.iter().position(|it| *it == entrant);
        place.map_or(0.0, |place| places[place])
    };
    let difference = |round: &Placed| {
        let ratio = round.values[entrant] / round.values[BASELINE];
        ratio.ln() - effect(round, entrant) + effect(round, BASELINE)
    };
    rounds.iter().map(difference).collect()
}

/// The differences of the rounds in which neither of the two runs was disturbed. If half of the
/// rounds or more were, or too few others remain, all count.
fn undisturbed(rounds: &[Placed], entrant: usize, polished: &Polished) -> Vec<f64> {
    let all = differences(rounds, entrant, &polished.places);
    let Some(deviation) = run_deviation(rounds, &polished.places) else { return all };
    let limit = DISTURBED_DEVIATIONS * deviation;
    let is_quiet = |residuals: &[f64; ENTRANTS]| {
        [BASELINE, entrant].iter().all(|it| residuals[*it].abs() <= limit)
    };
    let quiet = all.iter().zip(&polished.residuals).filter(|(_, residuals)| is_quiet(residuals));
    let quiet: Vec<f64> = quiet.map(|(difference, _)| *difference).collect();
    let is_enough = quiet.len() * 2 > all.len() && quiet.len() >= ROUNDS_WORTH_KEEPING;
    if is_enough { quiet } else { all }
}

/// Half of the interval of the median: its bootstrap standard error times the quantile of
/// Student's t (Efron and Tibshirani, "An introduction to the bootstrap", 1993, section 12.4). A
/// percentile interval would end at the outermost resample, which is too narrow for a few rounds
/// and for the small tails of several analyses.
fn half_width(values: &[f64], tails: f64, seed: u64) -> f64 {
    /// Fewer values have no spread.
    const VALUES_MIN: usize = haul_model::statistics::INTERVAL_VALUES_MIN;
    if values.len() < VALUES_MIN {
        return f64::INFINITY;
    }
    let mut random = Random::new(seed);
    let count = values.len();
    let mut draw = vec![0.0; count];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            draw.fill_with(|| values[random.below(count)]);
            crate::statistics::median_in_place(&mut draw)
        })
        .collect();
    let mean = medians.iter().sum::<f64>() / medians.len() as f64;
    medians.iter_mut().for_each(|it| *it = (*it - mean).powi(2));
    let error = (medians.iter().sum::<f64>() / medians.len() as f64).sqrt();
    // The resamples of n values spread as n - 1 independent ones.
    let freedom = (count - 1) as f64;
    error * (count as f64 / freedom).sqrt() * student_quantile(tails, freedom)
}

/// The matched-pairs rank-biserial correlation: the ranks of the positive differences less those
/// of the negative ones, over the sum of all (Kerby, "The simple difference formula",
/// Comprehensive Psychology 3, 2014). Equal sizes share their ranks.
fn rank_biserial(differences: &[f64]) -> f64 {
    let mut sizes: Vec<f64> =
        differences.iter().map(|it| it.abs()).filter(|it| *it > 0.0).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let rank = |size: f64| {
        let below = sizes.partition_point(|it| *it < size);
        let until = sizes.partition_point(|it| *it <= size);
        (below + until + 1) as f64 / 2.0
    };
    let signed = differences.iter().filter(|it| **it != 0.0);
    let sum: f64 = signed.map(|it| it.signum() * rank(it.abs())).sum();
    let all = (sizes.len() * (sizes.len() + 1)) as f64 / 2.0;
    if all > 0.0 { sum / all } else { 0.0 }
}

/// The standard deviation of a run, relative to its value, that neither its round nor its place
/// explains: the scaled median absolute deviation of the differences of the baseline's two runs,
/// over the square root of 2. `None` without a round.
#[must_use]
pub fn noise(rounds: &[Placed]) -> Option<f64> {
    run_deviation(rounds, &polished(rounds).places)
}

fn run_deviation(rounds: &[Placed], places: &[f64; ENTRANTS]) -> Option<f64> {
    let again = differences(rounds, AGAIN, places);
    robust_deviation(&again).map(|it| it / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests;
