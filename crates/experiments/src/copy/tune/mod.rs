//! Thresholds for this machine: `copy.tune`.
//!
//! ```text
//! train   at each power of two: haul with each way forced, against haul as it comes
//! search  the thresholds whose ways cost the least over all these sizes, never behind at one
//! check   haul with the found thresholds against haul as it comes, at sizes between, and on
//!         distributions, none of which was trained on
//! keep    the found thresholds if they win the check, else the defaults
//! ```
//!
//! What is measured is what will run: `haul`'s own entry under a set of thresholds, which are put
//! in force untimed before each sample. They hold for the whole process, so nothing else may be
//! measured meanwhile; those in force before are put back at the end. Copies and fills are tuned,
//! checked and kept apart.

pub mod search;

use std::time::{Duration, Instant};

use haul_copy::Thresholds;
use haul_copy::thresholds::{LOOKUP_MIN, NEVER};
use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::sys::Proc;
use haul_measure::{Caches, Distribution, Level, Outcome, Plan, Subject, statistics};
use haul_model::Bytes;

use self::search::{Trained, Way};
use super::subjects::{Candidate, Plain, available};
use super::then_read::ThenRead;
use super::workload::{Branches, Mix, OnWorkload, Workload};
use super::{Function, proof, sizes};
use crate::context::Context;
use crate::error::Error;
use crate::outcome::{self, Metric, Template};

/// The share of the time that training takes.
const TRAIN_SHARE: f64 = 0.6;

/// The share of an item's allotment that goes to rounds; the rest is for mapping and touching its
/// memory, and for checking what was copied.
const OWN_SHARE: f64 = 0.75;

/// Rounds that every size gets, whatever the budget.
const ROUNDS_MIN: usize = 7;

/// How long a sample should take, where one call does not take longer.
const SAMPLE: Duration = Duration::from_micros(150);

/// A tuned set is kept when it saves at least this share of the time over all checks ...
const GAIN_MIN: f64 = 0.005;

/// ... and is behind by no more than this at any one of them, beyond that one's noise floor.
const LOSS_MAX: f64 = 0.01;

/// Distributions of the check, with the level at which large sizes matter for each.
const CHECK_DISTRIBUTIONS: [(&str, Level); 3] =
    [("storage", Level::L2), ("storage", Level::Llc), ("messages", Level::L2)];

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

/// What tuning found.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The thresholds to use: the defaults where tuning does not win.
    pub thresholds: Thresholds,
    /// For copies and for fills: what was found, and what became of it.
    pub verdicts: Vec<Verdict>,
    /// Whether it was stopped; then `thresholds` are the defaults for whatever was not complete.
    pub stopped: bool,
}

/// What was found for copies or for fills.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// `Memcpy` for copies, `Memset` for fills.
    pub function: Function,
    /// The thresholds that training found; those of the other function are the defaults.
    pub found: Thresholds,
    /// Time under `found` over time under the defaults: geometric mean over all checks; `None`
    /// where training found nothing better than the defaults, and nothing was to be checked.
    pub ratio: Option<f64>,
    /// The largest ratio of a single check.
    pub ratio_worst: Option<f64>,
    /// Whether `found` is kept.
    pub is_kept: bool,
}

/// Tunes, and emits the evidence: a record for each way or set of thresholds, and size.
///
/// # Errors
/// See [`haul_measure::Error`]; a wrong byte of haul's.
pub fn tune(config: &Tune, context: &mut Context<'_>) -> Result<Tuned, Error> {
    let _restore = Restore(Thresholds::current());
    let defaults = Thresholds::defaults().clamped();
    let mut tuned = Tuned { thresholds: defaults, verdicts: Vec::new(), stopped: false };
    for function in [Function::Memcpy, Function::Memset] {
        let verdict = tune_function(config, function, defaults, context)?;
        if let Some(verdict) = verdict.filter(|_| !context.is_stopped()) {
            if verdict.is_kept {
                merge(&mut tuned.thresholds, &verdict.found, function);
            }
            tuned.verdicts.push(verdict);
        }
    }
    tuned.stopped = context.is_stopped();
    Ok(tuned)
}

/// Train, search, check; `None` when stopped.
fn tune_function(
    config: &Tune,
    function: Function,
    defaults: Thresholds,
    context: &mut Context<'_>,
) -> Result<Option<Verdict>, Error> {
    let sizes = training_sizes(config, context)?;
    let share = config.budget / 2;
    let mut clock = Allotment::new(share.mul_f64(TRAIN_SHARE), sizes.len());
    let mut trained = Vec::new();
    for &size in &sizes {
        if context.is_stopped() {
            return Ok(None);
        }
        trained.extend(train(config, function, size, defaults, clock.next(), context)?);
    }
    let found = search::best(function, &trained, defaults);
    let mut verdict = Verdict { function, found, ratio: None, ratio_worst: None, is_kept: false };
    if found == defaults {
        return Ok(Some(verdict));
    }
    let checks = check(
        config,
        function,
        &sizes,
        [defaults, found],
        share.mul_f64(1.0 - TRAIN_SHARE),
        context,
    )?;
    verdict.ratio =
        statistics::geometric_mean(&checks.iter().map(|check| check.ratio).collect::<Vec<_>>());
    verdict.ratio_worst = checks.iter().map(|check| check.ratio).max_by(f64::total_cmp);
    let never_behind = checks.iter().all(|check| check.ratio <= 1.0 + LOSS_MAX + check.floor);
    verdict.is_kept = never_behind && verdict.ratio.is_some_and(|ratio| ratio <= 1.0 - GAIN_MIN);
    Ok(Some(verdict))
}

/// The largest size that is measured where nobody says another, and memory allows it: no cache holds it.
#[must_use]
pub fn size_uncached_bytes(caches: &Caches) -> usize {
    caches.llc_bytes.saturating_mul(4).clamp(16 << 20, 128 << 20)
}

/// The powers of two from where haul looks thresholds up to a size that no cache holds.
fn training_sizes(config: &Tune, context: &Context<'_>) -> Result<Vec<usize>, Error> {
    let uncached = size_uncached_bytes(&context.caches);
    let mut largest = config.size_max_bytes.unwrap_or(uncached).max(2 * LOOKUP_MIN);
    if let Some(available) = Proc::default().memory_available_bytes() {
        // Source and target, and as much again left to the machine.
        while largest as u64 > available / 4 && largest > 2 * LOOKUP_MIN {
            largest /= 2;
        }
    }
    sizes::powers(LOOKUP_MIN, largest, 1)
}

/// haul as it comes and with each way forced, at one size; `None` when stopped before a round.
fn train(
    config: &Tune,
    function: Function,
    size: usize,
    defaults: Thresholds,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Trained>, Error> {
    let ways = Way::of(function);
    let mut entrants = vec![("default", defaults)];
    entrants.extend(ways.iter().map(|way| (way.name(function), way.forced())));
    let workload = Workload::resident(size, Alignment::default(), 1, config.seed)?;
    let item =
        Item { phase: "train", what: ("size_bytes", size.into()), level: Level::Mixed, function };
    let outcome = compare(config, &item, workload, &entrants, budget, context)?;
    let compared = outcome.subjects.iter().skip(1).map(|subject| subject.comparison.as_ref());
    let ratios =
        ways.iter().zip(compared).map(|(&way, found)| Some((way, search::counted(found?))));
    Ok(ratios.collect::<Option<Vec<_>>>().map(|ratios| Trained { size, ratios }))
}

/// One check: the found set over the defaults.
#[derive(Clone, Copy, Debug)]
struct Checked {
    ratio: f64,
    floor: f64,
}

/// The found set against the defaults, where it was not trained: between the powers, wherever the
/// two differ, and on distributions.
fn check(
    config: &Tune,
    function: Function,
    sizes: &[usize],
    [defaults, found]: [Thresholds; 2],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Vec<Checked>, Error> {
    let between = sizes.iter().map(|size| size + size * 3 / 8);
    let between: Vec<usize> = between
        .filter(|&size| {
            search::way(function, &defaults, size) != search::way(function, &found, size)
        })
        .collect();
    let mut clock = Allotment::new(budget, between.len() + CHECK_DISTRIBUTIONS.len());
    let entrants = [("default", defaults), ("tuned", found)];
    let mut checks = Vec::new();
    for size in between {
        let workload = Workload::resident(size, Alignment::default(), 1, config.seed + 1)?;
        let item = Item {
            phase: "check",
            what: ("size_bytes", size.into()),
            level: Level::Mixed,
            function,
        };
        checks.extend(checked(&compare(
            config,
            &item,
            workload,
            &entrants,
            clock.next(),
            context,
        )?));
    }
    for (name, level) in CHECK_DISTRIBUTIONS {
        let sizes = Distribution::find(name)?;
        let mix = Mix {
            sizes: &sizes,
            level,
            alignment: Alignment::default(),
            overlap: Overlap { share: 0.0 },
            branches: Branches::Random,
            seed: config.seed + 2,
        };
        let workload = Workload::drawn(&mix, &context.caches, 1)?;
        let item = Item { phase: "check", what: ("distribution", name.into()), level, function };
        checks.extend(checked(&compare(
            config,
            &item,
            workload,
            &entrants,
            clock.next(),
            context,
        )?));
    }
    Ok(checks)
}

fn checked(outcome: &Outcome) -> Option<Checked> {
    let comparison = outcome.subjects.last()?.comparison.as_ref()?;
    Some(Checked { ratio: comparison.ratio, floor: comparison.floor })
}

/// Shares what is left of a time among the items that are left: what preparing one takes, or few
/// rounds of a large size, comes off the others.
struct Allotment {
    end: Instant,
    items: usize,
}

impl Allotment {
    fn new(budget: Duration, items: usize) -> Self {
        Self { end: Instant::now() + budget, items }
    }

    /// What the rounds of the next item may take.
    fn next(&mut self) -> Duration {
        let left = self.end.saturating_duration_since(Instant::now());
        let share = left / self.items.max(1) as u32;
        self.items = self.items.saturating_sub(1);
        share.mul_f64(OWN_SHARE)
    }
}

/// One thing that is measured while tuning.
struct Item {
    phase: &'static str,
    what: (&'static str, serde_json::Value),
    level: Level,
    function: Function,
}

/// haul under several sets of thresholds, the first being the baseline; emits the records.
fn compare(
    config: &Tune,
    item: &Item,
    mut workload: Workload,
    entrants: &[(&'static str, Thresholds)],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Outcome, Error> {
    let plan = Plan {
        sample: SAMPLE,
        budget,
        rounds_min: ROUNDS_MIN,
        iterations_multiple: workload.operations_multiple(),
        seed: config.seed,
        ..Plan::default()
    };
    let candidates =
        entrants.iter().map(|&(name, thresholds)| (haul(item.function, name), thresholds));
    let subjects: Vec<UnderThresholds<'_>> = candidates
        .map(|(candidate, thresholds)| UnderThresholds {
            thresholds,
            subject: OnWorkload::new(candidate, &workload, ThenRead::Nothing),
        })
        .collect();
    let subjects: Vec<&dyn Subject> =
        subjects.iter().map(|subject| subject as &dyn Subject).collect();
    let shown = item
        .what
        .1
        .as_u64()
        .map_or_else(|| item.what.1.to_string(), |size| Bytes(size).to_string());
    let what = format!("{} {} of {shown}", item.phase, item.function.name());
    let outcome = outcome::measure(context, &what, &subjects, 0, &plan)?;
    drop(subjects);
    for &(name, thresholds) in entrants {
        thresholds.install();
        proof::check(item.function, &[haul(item.function, name)], &mut workload)?;
    }
    let template = Template {
        experiment: "copy.tune",
        parameters: vec![
            ("phase", item.phase.into()),
            ("function", item.function.name().into()),
            item.what.clone(),
            ("level", item.level.name().into()),
            ("threads", 1.into()),
        ],
        metric: Metric::Time,
        notes: Vec::new(),
    };
    outcome::emit(context, &outcome, &template);
    Ok(outcome)
}

/// haul's function by call, under another name.
fn haul(function: Function, name: &'static str) -> Candidate {
    let found =
        available(function, Plain::C).into_iter().find(|candidate| candidate.name == "haul");
    Candidate { name, ..found.expect("haul is available everywhere") }
}

/// Takes the thresholds of one function from another set.
fn merge(target: &mut Thresholds, source: &Thresholds, function: Function) {
    for name in search::names(function) {
        let value = source.get(name).unwrap_or(NEVER);
        let known = target.set(name, value);
        debug_assert!(known, "{name} is a threshold");
    }
}

/// A subject that puts its thresholds in force before each sample.
struct UnderThresholds<'a> {
    thresholds: Thresholds,
    subject: OnWorkload<'a>,
}

impl Subject for UnderThresholds<'_> {
    fn name(&self) -> &str {
        self.subject.name()
    }

    fn run(&self, thread: usize, iterations: u64) {
        self.subject.run(thread, iterations);
    }

    fn prepare(&self, thread: usize, round: u64, iterations: u64) {
        self.thresholds.install();
        self.subject.prepare(thread, round, iterations);
    }
}

/// Puts the thresholds back.
struct Restore(Thresholds);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.install();
    }
}
