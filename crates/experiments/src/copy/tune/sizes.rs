//! The methods of long copies and fills: the use of string instructions, and the thresholds.

use std::time::Duration;

use haul_copy::LOOKUP_MIN;
use haul_copy::Policy;
use haul_copy::Strings;
use haul_machine::sys::Sys;
use haul_measure::distribution::Alignment;
use haul_measure::statistics::geometric_mean;
use haul_measure::{Distribution, Level};
use haul_model::Comparison;
use haul_model::experiment::key;

use super::program::Trainee;
use super::rounds::{Allotment, Entrant, Item, compare, drawn};
use super::search::{self, Method, Trained};
use super::{Part, Tune, offsets, program, size_uncached_bytes};
use crate::context::Context;
use crate::copy::workload::{Branches, Workload};
use crate::copy::{Function, Plain, ThenRead, sizes};
use crate::error::Error;

/// The distributions of the check, each with a memory level at which large sizes matter.
const CHECKS: [(&str, Level); 3] =
    [("storage", Level::L2), ("storage", Level::Llc), ("messages", Level::L2)];

/// A distribution at a level.
type Drawn = (Distribution, Level);

/// The levels at which a program's sizes are checked.
const PROGRAM_LEVELS: [Level; 2] = [Level::L2, Level::Llc];

/// From this size on, in bytes, a reader of 8 bytes makes no difference: a load from memory takes
/// 100 ns, and such a copy at least 15 µs.
const READ_BELOW_BYTES: usize = 1 << 20;

/// The policy of a function with the methods that cost the least; `None` if the run was stopped.
pub(super) fn train(
    config: &Tune,
    function: Function,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Policy>, Error> {
    let trainees = trainees(config, function, context)?;
    let count = trainees.iter().map(|trainee| readers(trainee.size).len()).sum();
    let mut clock = Allotment::new(budget, count);
    let mut trained = Vec::new();
    for &trainee in &trainees {
        if context.is_stopped() {
            return Ok(None);
        }
        trained.extend(train_one(config, function, trainee, base, &mut clock, context)?);
    }
    let found = search::best(function, &trained, base);
    if !takes_new_strings(&found, &base) {
        return Ok(Some(found));
    }
    // At offsets that random addresses rarely have, string instructions may be far slower. Sizes
    // that would newly use string instructions at any alignment are tried at offsets that are
    // known to be bad.
    for trained in &mut trained {
        let size = trained.size;
        let is_string = |policy| search::method(function, policy, size) == Method::String;
        if is_string(&found) && !is_string(&base) && size <= offsets::SIZE_MAX_BYTES {
            let budget = clock.next().min(offsets::BUDGET);
            let Some(worst) = offsets::worst(config, size, base, budget, context)? else {
                return Ok(None);
            };
            trained.add_worst(worst);
        }
    }
    Ok(Some(search::best(function, &trained, base)))
}

/// Whether training has a size to compare: a program may copy only sizes below all thresholds.
pub(super) fn has_trainees(config: &Tune, function: Function, context: &Context<'_>) -> bool {
    trainees(config, function, context).is_ok_and(|all| !all.is_empty())
}

/// Whether, under `found`, some copies use a string instruction at any alignment that did not use
/// it under `base`.
fn takes_new_strings(found: &Policy, base: &Policy) -> bool {
    let range =
        |policy: &Policy| (policy.thresholds.rep_movsb_min, policy.thresholds.rep_movsb_max);
    found.strings == Strings::Any && (base.strings != Strings::Any || range(found) != range(base))
}

/// The readers that decide at a size.
fn readers(size: usize) -> &'static [ThenRead] {
    if size < READ_BELOW_BYTES { &ThenRead::JUDGES } else { &ThenRead::JUDGES[..1] }
}

/// The sizes of the program, or else the powers of two from the first size with thresholds to a
/// size that no cache holds.
fn trainees(
    config: &Tune,
    function: Function,
    context: &Context<'_>,
) -> Result<Vec<Trainee>, Error> {
    let largest = largest_size(config, context);
    if let Some(calls) = &config.program {
        return Ok(program::trainees(calls, function, largest));
    }
    let sizes = sizes::powers(LOOKUP_MIN, largest, 1)?;
    Ok(sizes.into_iter().map(|size| Trainee { from: size, size, weight: 1.0 }).collect())
}

/// The largest trained size.
fn largest_size(config: &Tune, context: &Context<'_>) -> usize {
    let uncached = size_uncached_bytes(&context.caches);
    let mut largest = config.size_max_bytes.unwrap_or(uncached).max(2 * LOOKUP_MIN);
    if let Some(available) = Sys::new().memory_available_bytes() {
        // Source and target use at most half of the available memory. The rest is for other
        // processes.
        while largest as u64 > available / 4 && largest > 2 * LOOKUP_MIN {
            largest /= 2;
        }
    }
    largest
}

/// haul under the policy in force and with each method forced, at one size; `None` if the run was
/// stopped before the first round was complete.
fn train_one(
    config: &Tune,
    function: Function,
    trainee: Trainee,
    base: Policy,
    clock: &mut Allotment,
    context: &mut Context<'_>,
) -> Result<Option<Trained>, Error> {
    let Trainee { from, size, weight } = trainee;
    let methods = Method::of(function);
    let mut entrants: Vec<Entrant> = vec![("default", base)];
    entrants.extend(methods.iter().map(|method| (method.name(function), method.forced(base))));
    let mut workload =
        Workload::resident(size, Alignment::default(), Branches::Repeating, 1, config.seed)?;
    let mut counted: Vec<Vec<f64>> = vec![Vec::new(); methods.len()];
    for &then_read in readers(size) {
        let item =
            item("train", (key::SIZE_BYTES, size.into()), Level::Nearest, function, then_read);
        let found = compare(config, &item, &mut workload, &entrants, clock.next(), context)?;
        let Some(found) = found else { return Ok(None) };
        for (counted, comparison) in counted.iter_mut().zip(&found) {
            counted.push(search::counted(comparison));
        }
    }
    let ratios =
        methods.iter().zip(&counted).map(|(&method, all)| Some((method, geometric_mean(all)?)));
    Ok(ratios.collect::<Option<Vec<_>>>().map(|ratios| Trained { size: from, weight, ratios }))
}

/// Compares the found policy with the base on items that training did not use: on sizes between
/// the trained ones at which the two policies differ, and on distributions.
pub(super) fn check(
    config: &Tune,
    function: Function,
    [base, found]: [Policy; 2],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Vec<Comparison>, Error> {
    let (between, distributions) = checked_items(config, function, context)?;
    let differs = |&size: &usize| {
        search::method(function, &base, size) != search::method(function, &found, size)
    };
    let between: Vec<usize> = between.into_iter().filter(differs).collect();
    let of_sizes: usize = between.iter().map(|&size| readers(size).len()).sum();
    let count = of_sizes + distributions.len() * ThenRead::JUDGES.len();
    let mut clock = Allotment::new(budget, count);
    let entrants = [("default", base), ("tuned", found)];
    let mut checks = Vec::new();
    for size in between {
        let mut workload = Workload::resident(
            size,
            Alignment::default(),
            Branches::Repeating,
            1,
            config.seed + 1,
        )?;
        let mut both = Vec::new();
        for &then_read in readers(size) {
            let what = (key::SIZE_BYTES, size.into());
            let item = checked(item("check", what, Level::Nearest, function, then_read));
            let found = compare(config, &item, &mut workload, &entrants, clock.next(), context)?;
            both.extend(found.unwrap_or_default());
        }
        checks.extend(Comparison::mean(&both.iter().collect::<Vec<_>>()));
    }
    for (sizes, level) in distributions {
        let mut workload = drawn(&sizes, level, config.seed + 2, context)?;
        let mut both = Vec::new();
        for then_read in ThenRead::JUDGES {
            let what = (key::DISTRIBUTION, sizes.name().into());
            let item = checked(item("check", what, level, function, then_read));
            let found = compare(config, &item, &mut workload, &entrants, clock.next(), context)?;
            both.extend(found.unwrap_or_default());
        }
        checks.extend(Comparison::mean(&both.iter().collect::<Vec<_>>()));
    }
    Ok(checks)
}

/// The single sizes and the distributions of a check. Those of a program are all its sizes up to
/// 1 MiB, in the proportion of its calls, and each larger one.
fn checked_items(
    config: &Tune,
    function: Function,
    context: &Context<'_>,
) -> Result<(Vec<usize>, Vec<Drawn>), Error> {
    let trainees = trainees(config, function, context)?;
    let Some(calls) = &config.program else {
        let between = trainees.iter().map(|it| it.size + it.size * 3 / 8).collect();
        let named = |(name, level)| Ok((Distribution::find(name)?, level));
        return Ok((between, CHECKS.into_iter().map(named).collect::<Result<_, Error>>()?));
    };
    let own = program::distribution(calls, function)?;
    let is_drawn = |size: usize| own.as_ref().is_some_and(|own| size <= own.size_max_bytes());
    let larger = trainees.iter().map(|it| it.size).filter(|size| !is_drawn(*size)).collect();
    let at = |level| own.clone().map(|own| (own, level));
    Ok((larger, PROGRAM_LEVELS.into_iter().filter_map(at).collect()))
}

/// A check, with the part to which it belongs.
fn checked(item: Item) -> Item {
    let part = if item.function == Function::Memset { Part::Fills } else { Part::Copies };
    Item { more: vec![(key::PART, part.name().into())], ..item }
}

/// An item that is measured through C, to compare functions.
fn item(
    phase: &'static str,
    what: (&'static str, serde_json::Value),
    level: Level,
    function: Function,
    then_read: ThenRead,
) -> Item {
    Item { phase, what, level, function, then_read, more: Vec::new(), plain: Plain::C }
}
