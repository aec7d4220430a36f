//! haul under several policies in one run, and each comparison's share of the time.

use std::time::{Duration, Instant};

use haul_copy::Policy;
use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::{Distribution, Level, Outcome, Sampling, Subject};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Comparison};

use super::Tune;
use crate::context::Context;
use crate::copy::subjects::{Candidate, Plain, available};
use crate::copy::under::UnderPolicy;
use crate::copy::workload::{Branches, Mix, OnWorkload, Workload};
use crate::copy::{Function, ThenRead, proof};
use crate::error::Error;
use crate::outcome::{self, Metric, Template};

/// The share of a comparison's time that its rounds may take. The rest of the time is for mapping
/// and touching the comparison's memory, and for its proofs.
const OWN_SHARE: f64 = 0.75;

/// The smallest number of rounds per comparison, independent of the budget.
const ROUNDS_MIN: usize = 7;

/// The intended time of a sample, unless one call takes longer.
const SAMPLE: Duration = Duration::from_micros(150);

/// A policy with its name in records.
pub(super) type Entrant = (&'static str, Policy);

/// Divides the remaining time among the remaining comparisons. The preparation of a comparison,
/// or a few rounds of a large size, leave less time for the other comparisons.
pub(super) struct Allotment {
    end: Instant,
    items: usize,
}

impl Allotment {
    pub(super) fn new(budget: Duration, items: usize) -> Self {
        Self { end: Instant::now() + budget, items }
    }

    /// The time for the rounds of the next comparison.
    pub(super) fn next(&mut self) -> Duration {
        let left = self.end.saturating_duration_since(Instant::now());
        let share = left / self.items.max(1) as u32;
        self.items = self.items.saturating_sub(1);
        share.mul_f64(OWN_SHARE)
    }
}

/// One item that is measured while tuning.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) phase: &'static str,
    /// The size or the distribution.
    pub(super) what: (&'static str, serde_json::Value),
    pub(super) level: Level,
    pub(super) function: Function,
    pub(super) then_read: ThenRead,
    /// Further parameters of the record.
    pub(super) more: Vec<(&'static str, serde_json::Value)>,
    /// The kind of call.
    pub(super) plain: Plain,
}

/// A distribution at a level, without overlaps.
pub(super) fn drawn(
    sizes: &Distribution,
    level: Level,
    seed: u64,
    context: &Context<'_>,
) -> Result<Workload, Error> {
    let mix = Mix {
        sizes,
        level,
        alignment: Alignment::default(),
        overlap: Overlap { share: 0.0 },
        branches: Branches::Random,
        seed,
    };
    Ok(Workload::drawn(&mix, &context.caches, 1)?)
}

/// Measures haul under several policies, the first of which is the baseline. Emits the records,
/// and returns the ratio of each other policy to the baseline. `None` if the run was stopped
/// before the first round was complete.
pub(super) fn compare(
    config: &Tune,
    item: &Item,
    workload: &mut Workload,
    entrants: &[Entrant],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Vec<Comparison>>, Error> {
    let outcome = run(config, item, workload, entrants, budget, context)?;
    for &(name, policy) in entrants {
        policy.install();
        proof::check(item.function, &[haul(item, name)], workload)?;
    }
    let mut parameters = vec![
        (key::PHASE, item.phase.into()),
        (key::FUNCTION, item.function.name().into()),
        item.what.clone(),
        (key::LEVEL, item.level.name().into()),
        (key::THREADS, 1.into()),
    ];
    if item.then_read != ThenRead::Nothing {
        parameters.push((key::THEN_READ, item.then_read.name().into()));
    }
    parameters.extend(item.more.iter().cloned());
    let template = Template {
        experiment: name::COPY_TUNE,
        parameters,
        metric: Metric::Time,
        notes: Vec::new(),
    };
    outcome::emit(context, &outcome, &template);
    Ok(outcome.subjects.into_iter().skip(1).map(|subject| subject.comparison).collect())
}

fn run(
    config: &Tune,
    item: &Item,
    workload: &Workload,
    entrants: &[Entrant],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Outcome, Error> {
    let sampling = Sampling {
        sample: SAMPLE,
        budget,
        rounds_min: ROUNDS_MIN,
        iterations_multiple: workload.operations_multiple(),
        seed: config.seed,
        ..Sampling::default()
    };
    let subjects: Vec<UnderPolicy<'_>> = entrants
        .iter()
        .map(|&(name, policy)| {
            let subject = OnWorkload::new(haul(item, name), workload, item.then_read);
            UnderPolicy::new(policy, subject)
        })
        .collect();
    let subjects: Vec<&dyn Subject> =
        subjects.iter().map(|subject| subject as &dyn Subject).collect();
    let (_, what) = &item.what;
    let shown = what.as_u64().map_or_else(|| what.to_string(), |size| Bytes(size).to_string());
    let what = format!("{} {} of {shown}", item.phase, item.function.name());
    outcome::measure(context, &what, &subjects, 0, &sampling)
}

/// haul's function, under another name.
fn haul(item: &Item, name: &'static str) -> Candidate {
    let all = available(item.function, item.plain);
    let found = all.into_iter().find(|candidate| candidate.name == "haul");
    Candidate { name, ..found.expect("haul is available everywhere") }
}
