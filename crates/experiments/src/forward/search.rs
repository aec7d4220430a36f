//! The highest load that loses no more than a goal allows. Trials are classified as in MLRsearch
//! (RFC 9971), with one goal at a time.
//!
//! A trial offers a load for a time and returns the share of lost packets. One trial alone is not
//! reliable. A goal therefore sets the total time of the trials of a load, and the share of that
//! time in which trials may lose too much. Trials of the goal's full length count in full. Short
//! trials find bounds quickly. Good short trials compensate bad short trials; only the excess of
//! bad ones counts against a load. A load becomes a lower bound only through full trials.
//!
//! The search measures at the highest load, and then at the rate that passed there. From this
//! rate, the search widens the range until it has a bound on either side. After that, it halves
//! the distance on a logarithmic scale, until the bounds are as close as the goal requires. The
//! search begins with short trials.

use std::collections::BTreeMap;
use std::time::Duration;

/// The goal of a search. The defaults are the values of CSIT's NDR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The share of packets that a good trial may lose.
    pub loss_ratio: f64,
    /// The share of the trials' total time that bad trials may have.
    pub exceed_ratio: f64,
    /// The time of a short trial.
    pub trial_short: Duration,
    /// The time of a trial that counts in full.
    pub trial: Duration,
    /// The total time of the trials of a load.
    pub sum: Duration,
    /// The allowed distance between the bounds, relative to the upper bound.
    pub width: f64,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            trial_short: Duration::from_secs(1),
            trial: Duration::from_secs(1),
            sum: Duration::from_secs(21),
            width: 0.005,
        }
    }
}

/// A completed trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The time for which packets were offered.
    pub time: Duration,
    /// The share of lost packets.
    pub loss_ratio: f64,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// The highest load that meets the goal; `None` if the lowest load does not meet the goal.
    pub lower: Option<f64>,
    /// The lowest load that does not meet the goal; `None` if the highest load meets the goal.
    pub upper: Option<f64>,
    /// The rate that passes at the lower bound in the worst trial that the goal counts.
    pub throughput: Option<f64>,
    /// The number of trials.
    pub trials: usize,
}

/// The class of a load by its trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Undecided,
}

/// The searched loads, in packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lowest load.
    pub least: f64,
    /// The highest load.
    pub most: f64,
}

/// The number of trials after which a search ends with its current bounds: a device under test with
/// ever changing results must not delay it further.
const TRIALS_MAX: usize = 2_000;

/// Searches. `measure` offers a load for a time. If `measure` returns `None`, the search ends
/// with its current bounds.
pub fn search(
    goal: &Goal,
    range: Range,
    measure: impl FnMut(f64, Duration) -> Option<Trial>,
) -> Found {
    let mut search = Search { range, loads: BTreeMap::new(), trials: 0, measure };
    let short = Goal { trial: goal.trial_short, sum: goal.trial_short, ..*goal };
    // The rate that passes in the first trial is the start of the search for bounds.
    let Some(first) = search.trial(range.most, goal.trial_short) else { return Found::default() };
    let start = (range.most * (1.0 - first.loss_ratio)).clamp(range.least, range.most);
    let phases = if goal.trial_short < goal.trial {
        [Some(short), Some(*goal)]
    } else {
        [Some(*goal), None]
    };
    let mut from = start;
    for phase in phases.into_iter().flatten() {
        match search.bracket(&phase, from) {
            Some(bounds) => from = bounds.0.unwrap_or(range.least),
            None => break,
        }
    }
    search.found(goal)
}

struct Search<M> {
    range: Range,
    /// The trials of each load, by its bits. Loads are above 0, so that their bits have the same
    /// order.
    loads: BTreeMap<u64, Vec<Trial>>,
    trials: usize,
    measure: M,
}

impl<M: FnMut(f64, Duration) -> Option<Trial>> Search<M> {
    /// Makes one more trial of this load.
    fn trial(&mut self, load: f64, time: Duration) -> Option<Trial> {
        if self.trials >= TRIALS_MAX {
            return None;
        }
        let trial = (self.measure)(load, time)?;
        self.trials += 1;
        self.loads.entry(load.to_bits()).or_default().push(trial);
        Some(trial)
    }

    /// Makes trials of this load until its class is known.
    fn decide(&mut self, goal: &Goal, load: f64) -> Option<Class> {
        loop {
            let trials = self.loads.get(&load.to_bits()).map_or(&[][..], Vec::as_slice);
            match classify(goal, trials) {
                Class::Undecided => self.trial(load, goal.trial)?,
                class => return Some(class),
            };
        }
    }

    /// Finds bounds as close as the goal requires, starting at this load.
    fn bracket(&mut self, goal: &Goal, from: f64) -> Option<(Option<f64>, Option<f64>)> {
        let Range { least, most } = self.range;
        let (mut lower, mut upper) = (None, None);
        let (mut load, mut width) = (from, goal.width);
        loop {
            match self.decide(goal, load)? {
                Class::Lower => lower = Some(load),
                _ => upper = Some(load),
            }
            load = match (lower, upper) {
                (Some(low), Some(high)) if 1.0 - low / high <= goal.width => {
                    return Some((lower, upper));
                }
                (Some(low), Some(high)) => (low * high).sqrt(),
                (Some(low), None) if low >= most => return Some((lower, None)),
                (None, Some(high)) if high <= least => return Some((None, upper)),
                // Widening: each step doubles.
                (Some(low), None) => (low / (1.0 - width)).min(most),
                (None, Some(high)) => (high * (1.0 - width)).max(least),
                (None, None) => return None,
            };
            width = (2.0 * width).min(0.5);
        }
    }

    /// The bounds according to all trials. The upper bound is the lowest load that fails, and the
    /// lower bound is the highest load below it that does not fail.
    fn found(&self, goal: &Goal) -> Found {
        let class = |(_, trials): &(&u64, &Vec<Trial>)| classify(goal, trials);
        let upper = self.loads.iter().find(|it| class(it) == Class::Upper);
        let is_below = |bits: u64| upper.is_none_or(|(upper, _)| bits < *upper);
        let mut below = self.loads.iter().rev().filter(|(bits, _)| is_below(**bits));
        let lower = below.find(|it| class(it) == Class::Lower);
        Found {
            lower: lower.map(|(bits, _)| f64::from_bits(*bits)),
            upper: upper.map(|(bits, _)| f64::from_bits(*bits)),
            throughput: lower
                .map(|(bits, trials)| f64::from_bits(*bits) * (1.0 - worst_counted(goal, trials))),
            trials: self.trials,
        }
    }
}

/// The total time of some trials in seconds.
fn seconds<'a>(trials: impl Iterator<Item = &'a Trial>) -> f64 {
    trials.map(|trial| trial.time.as_secs_f64()).sum()
}

/// RFC 9971, appendix "Load Classification Code": a load is a lower bound if it meets the goal
/// for all possible results of the missing trials, and an upper bound if it misses the goal for
/// all of them.
fn classify(goal: &Goal, trials: &[Trial]) -> Class {
    let is_full = |trial: &&Trial| trial.time >= goal.trial;
    let is_good = |trial: &&Trial| trial.loss_ratio <= goal.loss_ratio;
    let sum = |full: bool, good: bool| {
        seconds(trials.iter().filter(|it| is_full(it) == full && is_good(it) == good))
    };
    let (good_full, bad_full) = (sum(true, true), sum(true, false));
    let (good_short, bad_short) = (sum(false, true), sum(false, false));
    let made_up = match goal.exceed_ratio {
        ratio if ratio < 1.0 => good_short * ratio / (1.0 - ratio),
        _ => f64::INFINITY,
    };
    let bad = bad_full + (bad_short - made_up).max(0.0);
    let whole = (good_full + bad).max(goal.sum.as_secs_f64());
    let allowed = whole * goal.exceed_ratio + 1e-9;
    match (bad <= allowed, whole - good_full <= allowed) {
        (true, true) => Class::Lower,
        (false, false) => Class::Upper,
        _ => Class::Undecided,
    }
}

/// The loss of the worst trial that the goal counts. The goal's exceed ratio allows the worse
/// trials.
fn worst_counted(goal: &Goal, trials: &[Trial]) -> f64 {
    let mut full: Vec<&Trial> = trials.iter().filter(|trial| trial.time >= goal.trial).collect();
    full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    let whole = seconds(full.iter().copied()).max(goal.sum.as_secs_f64());
    let mut left = whole * (1.0 - goal.exceed_ratio) - 1e-9;
    let mut worst = 0.0;
    for trial in full {
        if left <= 0.0 {
            break;
        }
        left -= trial.time.as_secs_f64();
        worst = trial.loss_ratio;
    }
    worst
}

#[cfg(test)]
mod tests {
    use haul_measure::random::Random;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RANGE: Range = Range { least: 1e3, most: 30e6 };

    /// A device that forwards up to this limit, and also loses a few packets in a share of the
    /// trials.
    fn device(limit: f64, noise: f64) -> impl FnMut(f64, Duration) -> Option<Trial> {
        let mut random = Random::new(7);
        move |load, time| {
            let lost = (1.0 - limit / load).max(0.0);
            let unlucky = if random.unit() < noise { 1e-4 } else { 0.0 };
            Some(Trial { time, loss_ratio: lost.max(unlucky) })
        }
    }

    fn goal(exceed_ratio: f64) -> Goal {
        Goal { exceed_ratio, trial_short: SECOND / 10, sum: 5 * SECOND, ..Goal::default() }
    }

    #[test]
    fn search_finds_limit_of_device() {
        for limit in [2e3, 1.234e6, 11.9e6, 29.99e6] {
            let found = search(&goal(0.5), RANGE, device(limit, 0.0));
            let (lower, upper) = (found.lower.unwrap(), found.upper.unwrap());
            assert!(lower <= limit && limit <= upper, "{limit}: {found:?}");
            assert!(1.0 - lower / upper <= 0.005, "{limit}: {found:?}");
            assert_eq!(found.throughput, Some(lower));
            assert!(found.trials < 200, "{limit}: {found:?}");
        }
    }

    #[test]
    fn search_counts_bad_trials_by_goal() {
        let tolerant = search(&goal(0.5), RANGE, device(5e6, 0.2));
        assert!(tolerant.lower.unwrap() > 4.9e6, "{tolerant:?}");
        // RFC 2544: not one packet lost in the whole time.
        let strict = search(&goal(0.0), RANGE, device(5e6, 0.9));
        assert!(strict.lower.is_none_or(|lower| lower < 1e6), "{strict:?}");
        // A partial drop rate accepts smaller losses.
        let partial = Goal { loss_ratio: 0.005, ..goal(0.0) };
        let found = search(&partial, RANGE, device(5e6, 0.9));
        assert!((found.lower.unwrap() / 5.025e6 - 1.0).abs() < 0.006, "{found:?}");
    }

    #[test]
    fn device_outside_range_has_one_bound() {
        let all = search(&goal(0.5), RANGE, device(1e9, 0.0));
        assert_eq!((all.lower, all.upper), (Some(RANGE.most), None));
        let none = search(&goal(0.5), RANGE, device(10.0, 0.0));
        assert_eq!((none.lower, none.upper), (None, Some(RANGE.least)));
    }

    #[test]
    fn stopped_search_keeps_its_bounds() {
        for stop in [0, 1, 5, 9] {
            let (mut left, mut device) = (stop, device(5e6, 0.0));
            let found = search(&goal(0.5), RANGE, |load, time| {
                left -= 1;
                if left < 0 { None } else { device(load, time) }
            });
            assert_eq!(found.trials, stop as usize);
        }
    }

    #[test]
    fn classify_follows_rfc_9971() {
        let goal = Goal { sum: 4 * SECOND, ..goal(0.5) };
        let good = Trial { time: SECOND, loss_ratio: 0.0 };
        let bad = Trial { time: SECOND, loss_ratio: 0.1 };
        let short = |trial: Trial| Trial { time: SECOND / 2, ..trial };
        for (trials, class) in [
            (vec![], Class::Undecided),
            (vec![good], Class::Undecided),
            (vec![good, good], Class::Lower),
            (vec![bad, bad], Class::Undecided),
            (vec![bad, bad, bad], Class::Upper),
            (vec![bad, bad, good, good], Class::Lower),
            // Short trials alone do not prove a lower bound, and good short trials compensate bad
            // ones.
            (vec![short(good); 9], Class::Undecided),
            (vec![short(bad); 5], Class::Upper),
            ([vec![short(bad); 5], vec![short(good); 5]].concat(), Class::Undecided),
        ] {
            assert_eq!(classify(&goal, &trials), class, "{trials:?}");
        }
    }
}
