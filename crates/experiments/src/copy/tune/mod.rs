//! How this machine copies best, as one policy: `copy.tune`.
//!
//! ```text
//! choices  the small shape on drawn sizes, then the instruction set on single ones
//! copies   strings anywhere or only where aligned alike, and the thresholds
//! fills    their thresholds
//!
//! each:
//!   train  haul with each alternative, against haul under what was kept so far
//!   search the alternatives that cost the least over all that was trained, never behind at one
//!   check  haul with those against haul without, at sizes and on distributions that were not
//!          trained on
//!   keep   them if they win the check
//! ```
//!
//! What is measured is what will run: `haul`'s own entry under a policy, which is put in force
//! untimed before each sample. It holds for the whole process, so nothing else may be measured
//! meanwhile; what was in force before is put back at the end. Who reads what was written counts:
//! see [`ThenRead::JUDGES`](super::ThenRead::JUDGES).
//!
//! From the bottom up:
//!
//! - [`search`]: from times to thresholds, pure arithmetic;
//! - `rounds`: haul under several policies beside each other, and the share of the time that each
//!   gets;
//! - `offsets`: strings where target and source lie badly to each other;
//! - `choices` and `sizes`: what is trained and checked.

mod choices;
mod offsets;
mod rounds;
pub mod search;
mod sizes;

use std::time::{Duration, Instant};

use haul_copy::Policy;
use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::{Comparison, Record, Verdict as Difference};

use super::Function;
use super::under::Restore;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, nanoseconds};

/// The share of a part's time that training takes.
const TRAIN_SHARE: f64 = 0.6;

/// A tuned set is kept when it saves at least this share of the time over all checks ...
const GAIN_MIN: f64 = 0.005;

/// ... beyond the noise, as the page says it of the same records; and is behind by no more than
/// this at any one of them, and by as much again where noise is as large, ...
const LOSS_MAX: f64 = 0.01;

/// ... or by no more than this share of what it saves over all: 3% at one are worth 6% of all.
const LOSS_SHARE_MAX: f64 = 0.5;

/// For each byte of the largest size that is measured: the fewest rounds of all sizes up to it, of
/// copies and of fills, with their memory and their proofs (8 s for 128 MiB).
const LEAST_NS_PER_BYTE: f64 = 60.0;

/// What to tune, and how long it may take.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The budget of all of it, training and checks, copies and fills. Large sizes take a few
    /// rounds in any case.
    pub budget: Duration,
    /// The largest size that is measured; `None`: four times the last-level cache, within what
    /// memory allows.
    pub size_max_bytes: Option<usize>,
    /// What addresses and the order of subjects are drawn from.
    pub seed: u64,
}

impl Default for Tune {
    fn default() -> Self {
        Self { budget: Duration::from_secs(45), size_max_bytes: None, seed: 1 }
    }
}

impl Tune {
    /// The least that it takes on a machine with these caches, whatever its budget.
    #[must_use]
    pub fn least(caches: &Caches) -> Duration {
        nanoseconds(LEAST_NS_PER_BYTE, size_uncached_bytes(caches))
    }
}

/// Its budget holds all of it.
impl Experiment for Tune {
    fn name(&self) -> String {
        "tuning".to_owned()
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn beside(&self, _: &Caches) -> Duration {
        Duration::ZERO
    }

    /// The evidence alone: who wants the policy as well calls [`tune`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        tune(self, context).map(|_| ())
    }
}

/// A part of the policy that is found, checked and kept on its own, on top of what was kept before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What copies and fills have in common: the small shape and the instruction set.
    Choices,
    /// Strings and thresholds of copies.
    Copies,
    /// Thresholds of fills.
    Fills,
}

impl Part {
    /// All of them, in the order in which they are found.
    pub const ALL: [Self; 3] = [Self::Choices, Self::Copies, Self::Fills];

    /// As records spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Choices => "choices",
            Self::Copies => "copies",
            Self::Fills => "fills",
        }
    }

    /// How much of the time it gets, beside the others.
    fn weight(self) -> f64 {
        match self {
            Self::Choices => 0.25,
            Self::Copies => 0.45,
            Self::Fills => 0.30,
        }
    }
}

/// What tuning found.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The policy to use: the default's parts where tuning does not win.
    pub policy: Policy,
    /// What was found for each part, and what became of it.
    pub verdicts: Vec<Verdict>,
    /// Whether it was stopped; then `policy` has the default for whatever was not complete.
    pub stopped: bool,
}

impl Tuned {
    /// Whether anything that was found is better than the defaults.
    #[must_use]
    pub fn is_any_kept(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.is_kept)
    }
}

/// What was found for one part.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Which.
    pub part: Part,
    /// What it started from: the default with the parts that were kept before.
    pub base: Policy,
    /// What training found: `base` with this part changed.
    pub found: Policy,
    /// Time under `found` over time under `base`: geometric mean over all checks; `None`
    /// where training found nothing better, and nothing was to be checked.
    pub ratio: Option<f64>,
    /// The largest ratio of a single check.
    pub ratio_worst: Option<f64>,
    /// Whether `found` is kept.
    pub is_kept: bool,
}

/// Tunes, and emits the evidence: a record for each policy and what it was measured on.
///
/// # Errors
/// See [`haul_measure::Error`]; a wrong byte of haul's.
pub fn tune(config: &Tune, context: &mut Context<'_>) -> Result<Tuned, Error> {
    let _restore = Restore::current();
    let end = Instant::now() + config.budget;
    let mut tuned = Tuned {
        policy: Policy::for_this_processor().clamped(),
        verdicts: Vec::new(),
        stopped: false,
    };
    for (index, part) in Part::ALL.into_iter().enumerate() {
        // What a part takes more comes off those that follow.
        let weights: f64 = Part::ALL[index..].iter().map(|part| part.weight()).sum();
        let left = end.saturating_duration_since(Instant::now());
        let budget = left.mul_f64(part.weight() / weights);
        let verdict = tune_part(config, part, tuned.policy, budget, context)?;
        if let Some(verdict) = verdict.filter(|_| !context.is_stopped()) {
            if verdict.is_kept {
                tuned.policy = verdict.found;
            }
            context.emit(record(&verdict));
            tuned.verdicts.push(verdict);
        }
    }
    tuned.stopped = context.is_stopped();
    Ok(tuned)
}

/// Train, search, check; `None` when stopped.
fn tune_part(
    config: &Tune,
    part: Part,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Verdict>, Error> {
    let training = budget.mul_f64(TRAIN_SHARE);
    let found = match part {
        Part::Choices => choices::train(config, base, training, context)?,
        Part::Copies => sizes::train(config, Function::Memcpy, base, training, context)?,
        Part::Fills => sizes::train(config, Function::Memset, base, training, context)?,
    };
    let Some(found) = found else { return Ok(None) };
    let mut verdict = Verdict { part, base, found, ratio: None, ratio_worst: None, is_kept: false };
    if found == base {
        return Ok(Some(verdict));
    }
    let checking = budget - training;
    let pair = [base, found];
    let checks = match part {
        Part::Choices => choices::check(config, pair, checking, context)?,
        Part::Copies => sizes::check(config, Function::Memcpy, pair, checking, context)?,
        Part::Fills => sizes::check(config, Function::Memset, pair, checking, context)?,
    };
    judge(&mut verdict, &checks);
    Ok(Some(verdict))
}

/// Keeps what was found if it wins on the whole and is behind nowhere by more than that is worth.
/// What the checks cannot tell is not kept: the defaults are known from other machines.
fn judge(verdict: &mut Verdict, checks: &[Comparison]) {
    let all = Comparison::mean(&checks.iter().collect::<Vec<_>>());
    verdict.ratio = all.as_ref().map(|all| all.ratio);
    verdict.ratio_worst = checks.iter().map(|check| check.ratio).max_by(f64::total_cmp);
    let saved = verdict.ratio.map_or(0.0, |ratio| 1.0 - ratio);
    let loss_max = LOSS_MAX.max(LOSS_SHARE_MAX * saved);
    let is_behind = |check: &Comparison| check.ratio > 1.0 + loss_max + check.floor.min(loss_max);
    let is_better = all.is_some_and(|all| all.verdict() == Difference::Less);
    verdict.is_kept = is_better && saved >= GAIN_MIN && !checks.iter().any(is_behind);
}

/// What became of a part, for the page: 1 where what was found is kept.
fn record(verdict: &Verdict) -> Record {
    let mut record = Record::new("", name::COPY_TUNE, "tuned", "kept", "count")
        .with(key::PHASE, "verdict")
        .with(key::PART, verdict.part.name());
    record.samples = vec![if verdict.is_kept { 1.0 } else { 0.0 }];
    record
}

/// The largest size that is measured where nobody says another, and memory allows it: no cache
/// holds it.
#[must_use]
pub fn size_uncached_bytes(caches: &Caches) -> usize {
    caches.llc_bytes.saturating_mul(4).clamp(16 << 20, 128 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ratio: f64, width: f64, floor: f64) -> Comparison {
        let baseline = "default".to_owned();
        let (ratio_low, ratio_high) = (ratio / (1.0 + width), ratio * (1.0 + width));
        Comparison { baseline, ratio, ratio_low, ratio_high, floor }
    }

    fn is_kept(checks: &[Comparison]) -> bool {
        let base = Policy::for_this_processor().clamped();
        let (part, found) = (Part::Copies, base);
        let mut verdict =
            Verdict { part, base, found, ratio: None, ratio_worst: None, is_kept: false };
        judge(&mut verdict, checks);
        verdict.is_kept
    }

    #[test]
    fn what_wins_beyond_the_noise_and_loses_nowhere_is_kept() {
        let won = [check(0.90, 0.005, 0.01), check(0.97, 0.005, 0.01), check(1.0, 0.005, 0.01)];
        assert!(is_kept(&won));
        assert!(!is_kept(&[]));
        // Within the floor of these runs.
        assert!(!is_kept(&[check(0.97, 0.005, 0.08), check(0.98, 0.005, 0.08)]));
        // The interval holds 1.
        assert!(!is_kept(&[check(0.97, 0.05, 0.01)]));
    }

    /// What noise may hide at one check is no more than a loss that would be allowed there.
    #[test]
    fn what_its_own_checks_call_slower_is_not_kept_however_high_the_floor() {
        let with = |ratio: f64, floor: f64| {
            is_kept(&[
                check(0.90, 0.005, 0.01),
                check(0.92, 0.005, 0.01),
                check(ratio, 0.005, floor),
            ])
        };
        assert!(!with(1.08, 0.01) && !with(1.08, 0.03) && !with(1.08, 0.10));
        assert!(with(1.02, 0.03));
        // One check that is as noisy leaves the whole open.
        assert!(!with(1.0, 0.30));
    }
}
