//! The policy with which this machine copies fastest: `copy.tune`.
//!
//! ```text
//! choices  the small shape on random sizes, then the instruction set on single sizes
//! copies   string instructions at any alignment or only if aligned alike, and the thresholds
//! fills    their thresholds
//!
//! each:
//!   train  haul with each alternative, against haul under the policy that was kept so far
//!   search the alternatives that cost the least over all trained items
//!   check  haul with those against haul without, at sizes and on distributions that training did
//!          not use
//!   keep   them if they win the check
//! ```
//!
//! The measured code is the code that will run: `haul`'s own entry under a policy, which is
//! installed before each sample, outside of the timed part. A policy applies to the whole process,
//! so that nothing else may be measured at the same time. The previous policy is installed again at
//! the end. The reader of the written bytes matters: see
//! [`ThenRead::JUDGES`](super::ThenRead::JUDGES).
//!
//! From the bottom up:
//!
//! - [`search`]: from times to thresholds, pure arithmetic;
//! - `rounds`: haul under several policies in one run, and the time of each comparison;
//! - `offsets`: string instructions at bad offsets between target and source;
//! - `program`: the items of tuning for one program;
//! - `choices` and `sizes`: the trained and checked items.

mod choices;
mod offsets;
mod program;
mod rounds;
pub mod search;
mod sizes;

use std::time::{Duration, Instant};

use haul_copy::Policy;
use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::profile::Calls;
use haul_model::{Comparison, Record, Verdict as Difference};

use super::Function;
use super::under::Restore;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, nanoseconds};

/// The share of a part's time for training.
const TRAIN_SHARE: f64 = 0.6;

/// The least saving over all checks, as a share of the time, for which a tuned policy is kept.
/// The saving must also exceed the noise, according to the same rule as on the report page.
const GAIN_MIN: f64 = 0.005;

/// The largest loss at a single check for which a tuned policy is kept, as a share of the time.
/// If the noise is as large as this loss, up to twice this loss is allowed. A larger loss is
/// allowed up to [`LOSS_SHARE_MAX`].
const LOSS_MAX: f64 = 0.01;

/// The largest loss at a single check as a share of the saving over all checks: a loss of 3% at
/// one check is acceptable if all checks together save 6%.
const LOSS_SHARE_MAX: f64 = 0.5;

/// The least time of a tuning run, per byte of the largest measured size (8 s for 128 MiB). This
/// time is enough for the fewest rounds of all sizes up to that one, of copies and of fills,
/// including their memory and their proofs.
const LEAST_NS_PER_BYTE: f64 = 60.0;

/// The limits of a tuning run.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The budget of training and checks, of copies and fills. Large sizes get a few rounds in any
    /// case.
    pub budget: Duration,
    /// The largest measured size; `None`: four times the last-level cache, or as much as memory
    /// allows.
    pub size_max_bytes: Option<usize>,
    /// The seed of addresses and of the order of subjects.
    pub seed: u64,
    /// The calls of a program, whose sizes are trained and checked by their share of its time;
    /// `None`: the sizes of a fleet.
    pub program: Option<Calls>,
}

impl Default for Tune {
    fn default() -> Self {
        Self { budget: Duration::from_secs(45), size_max_bytes: None, seed: 1, program: None }
    }
}

impl Tune {
    /// The least time on a machine with these caches, independent of the budget.
    #[must_use]
    pub fn least(&self, caches: &Caches) -> Duration {
        let largest = size_uncached_bytes(caches);
        let of_program = self.program.as_ref().map(|calls| {
            let all = calls.copies.iter().chain(&calls.fills).map(|one| one.size_bytes as usize);
            all.max().unwrap_or(0)
        });
        nanoseconds(LEAST_NS_PER_BYTE, of_program.unwrap_or(largest).min(largest))
    }
}

/// The budget of tuning contains all of its time, so that it has no overhead.
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

    fn overhead(&self, _: &Caches) -> Duration {
        Duration::ZERO
    }

    /// Emits only the evidence. A caller that also needs the policy calls [`tune`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        tune(self, context).map(|_| ())
    }
}

/// A part of the policy that is found, checked and kept separately, based on the previously kept
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The small shape and the instruction set, which copies and fills share.
    Choices,
    /// Strings and thresholds of copies.
    Copies,
    /// Thresholds of fills.
    Fills,
}

impl Part {
    /// All parts, in the order in which they are found.
    pub const ALL: [Self; 3] = [Self::Choices, Self::Copies, Self::Fills];

    /// The part's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Choices => "choices",
            Self::Copies => "copies",
            Self::Fills => "fills",
        }
    }

    /// The part's share of the time, relative to the other parts.
    fn weight(self) -> f64 {
        match self {
            Self::Choices => 0.25,
            Self::Copies => 0.45,
            Self::Fills => 0.30,
        }
    }
}

/// The result of tuning.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The policy to use. The policy keeps the default for each part for which tuning finds
    /// nothing better.
    pub policy: Policy,
    /// The result for each part, and whether it is kept.
    pub verdicts: Vec<Verdict>,
    /// Whether it was stopped. In this case, `policy` keeps the default for every incomplete
    /// part.
    pub stopped: bool,
}

impl Tuned {
    /// Whether any part is better than the default.
    #[must_use]
    pub fn is_any_kept(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.is_kept)
    }
}

/// The result for one part.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The part.
    pub part: Part,
    /// The policy with which training started: the default with the parts that were kept earlier.
    pub base: Policy,
    /// Whether training compared `base` with anything. A part may have no alternative on this
    /// processor, and a profile no size to which one applies.
    pub is_compared: bool,
    /// The policy that training found: `base` with this part changed.
    pub found: Policy,
    /// The time under `found` divided by the time under `base`, as the geometric mean over all
    /// checks; `None` if training found nothing better, so that there was nothing to check.
    pub ratio: Option<f64>,
    /// The largest ratio of a single check.
    pub ratio_worst: Option<f64>,
    /// Whether `found` is kept.
    pub is_kept: bool,
}

/// Tunes the policy, and emits the evidence: a record for each policy and item.
///
/// # Errors
/// See [`haul_measure::Error`]. It is also an error if haul copies a wrong byte.
pub fn tune(config: &Tune, context: &mut Context<'_>) -> Result<Tuned, Error> {
    let _restore = Restore::current();
    let end = Instant::now() + config.budget;
    let mut tuned = Tuned {
        policy: Policy::for_this_processor().clamped(),
        verdicts: Vec::new(),
        stopped: false,
    };
    for (index, part) in Part::ALL.into_iter().enumerate() {
        // If a part takes longer, the following parts get less time.
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

/// Trains, searches and checks; `None` if the run was stopped.
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
    let is_compared = match part {
        Part::Choices => choices::has_alternatives(config, base),
        Part::Copies => sizes::has_trainees(config, Function::Memcpy, context),
        Part::Fills => sizes::has_trainees(config, Function::Memset, context),
    };
    let mut verdict =
        Verdict { part, base, is_compared, found, ratio: None, ratio_worst: None, is_kept: false };
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

/// Keeps a policy that wins over all checks and does not lose more at any single check than that
/// win allows. A policy that the checks cannot decide is not kept, because the defaults are known
/// from other machines.
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

/// The verdict of a part, for the page: 1 if the found policy is kept.
fn record(verdict: &Verdict) -> Record {
    let mut record = Record::new("", name::COPY_TUNE, "tuned", "kept", "count")
        .with(key::PHASE, "verdict")
        .with(key::PART, verdict.part.name());
    record.samples = vec![if verdict.is_kept { 1.0 } else { 0.0 }];
    record
}

/// The largest measured size by default, if memory allows it: no cache holds it.
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
        let mut verdict = Verdict {
            part,
            base,
            is_compared: true,
            found,
            ratio: None,
            ratio_worst: None,
            is_kept: false,
        };
        judge(&mut verdict, checks);
        verdict.is_kept
    }

    #[test]
    fn policy_that_wins_beyond_noise_and_never_loses_is_kept() {
        let won = [check(0.90, 0.005, 0.01), check(0.97, 0.005, 0.01), check(1.0, 0.005, 0.01)];
        assert!(is_kept(&won));
        assert!(!is_kept(&[]));
        // Within the noise floor of these runs.
        assert!(!is_kept(&[check(0.97, 0.005, 0.08), check(0.98, 0.005, 0.08)]));
        // The interval contains 1.
        assert!(!is_kept(&[check(0.97, 0.05, 0.01)]));
    }

    /// At a check, noise may hide only as much as the allowed loss.
    #[test]
    fn policy_that_a_check_shows_slower_is_not_kept_at_any_floor() {
        let with = |ratio: f64, floor: f64| {
            is_kept(&[
                check(0.90, 0.005, 0.01),
                check(0.92, 0.005, 0.01),
                check(ratio, 0.005, floor),
            ])
        };
        assert!(!with(1.08, 0.01) && !with(1.08, 0.03) && !with(1.08, 0.10));
        assert!(with(1.02, 0.03));
        // If one check has so much noise, the checks cannot decide.
        assert!(!with(1.0, 0.30));
    }
}
