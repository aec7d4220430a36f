//! The small shape and the instruction set, which copies and fills share.
//!
//! The shapes for small sizes are compared on the sizes of a service, inlined as in programs. The
//! instruction sets are compared on single sizes, from the first size that uses blocks to the
//! first size that uses another method. Both comparisons run with both readers. The result is
//! checked on other distributions.

use std::time::Duration;

use haul_copy::Small;
use haul_copy::{Isa, Policy};
use haul_measure::distribution::Alignment;
use haul_measure::{Distribution, Level};
use haul_model::Comparison;
use haul_model::experiment::key;
use haul_model::profile::Calls;

use super::rounds::{Allotment, Entrant, Item, compare, drawn};
use super::{GAIN_MIN, Part, Tune, program, search};
use crate::context::Context;
use crate::copy::workload::{Branches, Workload};
use crate::copy::{Function, Plain, ThenRead};
use crate::error::Error;

/// The functions that decide. memmove behaves like memcpy.
const FUNCTIONS: [Function; 2] = [Function::Memcpy, Function::Memset];

/// The distribution for the small shape. The comparison does not include the level memory, where
/// the shapes do not differ and the region would be large.
const SMALL: &str = "service";
const SMALL_LEVELS: [Level; 2] = [Level::L1, Level::Llc];

/// The sizes for the instruction set, in bytes: a block, two blocks, and loops in L1 and L2.
const ISA_BYTES: [usize; 6] = [192, 448, 1 << 10, 4 << 10, 12 << 10, 32 << 10];

/// The distributions and levels of the check.
const CHECKS: [(&str, Level); 4] = [
    ("packets", Level::L1),
    ("messages", Level::L1),
    ("storage", Level::L2),
    ("packets", Level::Llc),
];

/// The levels at which a program's sizes are checked.
const PROGRAM_LEVELS: [Level; 3] = [Level::L1, Level::L2, Level::Llc];

/// The choices with the least time, or the choices of the base if no others are better; `None` if
/// the run was stopped.
pub(super) fn train(
    config: &Tune,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Policy>, Error> {
    let (small, isa) = match &config.program {
        None => (of_fleet(&[(SMALL, SMALL_LEVELS[0]), (SMALL, SMALL_LEVELS[1])])?, isa_sizes()),
        Some(calls) => (of_program(calls, &SMALL_LEVELS)?, of_program(calls, &SMALL_LEVELS)?),
    };
    let count = |trials: &[Trial], entrants: &[Entrant]| match entrants.is_empty() {
        true => 0,
        false => trials.iter().map(|trial| trial.functions.len() * ThenRead::JUDGES.len()).sum(),
    };
    let (shaped, set) = (count(&small, &shapes(base)), count(&isa, &sets(base)));
    let mut clock = Allotment::new(budget, shaped + set);
    let Some(base) = choose(config, "small", small, base, shapes(base), &mut clock, context)?
    else {
        return Ok(None);
    };
    choose(config, "isa", isa, base, sets(base), &mut clock, context)
}

/// Whether training has anything to compare. Without AVX-512, a processor has no other shape and no
/// other instruction set; a program may have no call of a size that is drawn.
pub(super) fn has_alternatives(config: &Tune, base: Policy) -> bool {
    let is_drawn = config.program.as_ref().is_none_or(|calls| {
        of_program(calls, &SMALL_LEVELS).is_ok_and(|trials| !trials.is_empty())
    });
    is_drawn && !(shapes(base).is_empty() && sets(base).is_empty())
}

/// The alternative that costs the least over all trials, or the base; `None` if the run was
/// stopped.
fn choose(
    config: &Tune,
    choice: &str,
    trials: Vec<Trial>,
    base: Policy,
    alternatives: Vec<Entrant>,
    clock: &mut Allotment,
    context: &mut Context<'_>,
) -> Result<Option<Policy>, Error> {
    if alternatives.is_empty() {
        return Ok(Some(base));
    }
    let mut sums = Sums::of(&alternatives);
    for trial in trials {
        let mut workload = trial.workload(config.seed, context)?;
        let item = item(choice, trial.what(), trial.level);
        for &(function, weight) in &trial.functions {
            let measured = Measured { item: Item { function, ..item.clone() }, weight };
            if !sums.measure(config, &measured, base, &mut workload, clock, context)? {
                return Ok(None);
            }
        }
    }
    Ok(Some(sums.best(base)))
}

/// What is copied and filled in one workload, to compare choices.
struct Trial {
    sizes: TrialSizes,
    level: Level,
    /// The functions, with the weight of each.
    functions: Vec<(Function, f64)>,
}

enum TrialSizes {
    One(usize),
    Drawn(Distribution),
}

impl Trial {
    fn what(&self) -> (&'static str, serde_json::Value) {
        match &self.sizes {
            TrialSizes::One(size) => (key::SIZE_BYTES, (*size).into()),
            TrialSizes::Drawn(sizes) => (key::DISTRIBUTION, sizes.name().into()),
        }
    }

    fn workload(&self, seed: u64, context: &Context<'_>) -> Result<Workload, Error> {
        match &self.sizes {
            TrialSizes::One(size) => {
                let (alignment, branches) = (Alignment::default(), Branches::Repeating);
                Ok(Workload::resident(*size, alignment, branches, 1, seed)?)
            }
            TrialSizes::Drawn(sizes) => drawn(sizes, self.level, seed, context),
        }
    }
}

/// Distributions of a fleet, with equal weight for both functions.
fn of_fleet(all: &[(&str, Level)]) -> Result<Vec<Trial>, Error> {
    let trial = |&(name, level): &(&str, Level)| {
        let functions = FUNCTIONS.map(|function| (function, 1.0)).into();
        Ok(Trial { sizes: TrialSizes::Drawn(Distribution::find(name)?), level, functions })
    };
    all.iter().map(trial).collect()
}

fn isa_sizes() -> Vec<Trial> {
    let functions: Vec<_> = FUNCTIONS.map(|function| (function, 1.0)).into();
    let trial = |size| Trial {
        sizes: TrialSizes::One(size),
        level: Level::Nearest,
        functions: functions.clone(),
    };
    ISA_BYTES.into_iter().map(trial).collect()
}

/// A program's sizes of each function, which weighs as much as its share of the time.
fn of_program(calls: &Calls, levels: &[Level]) -> Result<Vec<Trial>, Error> {
    let mut trials = Vec::new();
    for function in FUNCTIONS {
        let Some(sizes) = program::distribution(calls, function)? else { continue };
        let functions = vec![(function, program::share(calls, function))];
        trials.extend(levels.iter().map(|&level| Trial {
            sizes: TrialSizes::Drawn(sizes.clone()),
            level,
            functions: functions.clone(),
        }));
    }
    Ok(trials)
}

/// Variants of the base, one with each further small shape that this processor supports.
fn shapes(base: Policy) -> Vec<Entrant> {
    others(base, Small::ALL.map(|small| (small.name(), with_small(base, small))))
}

/// Variants of the base, one with each further instruction set that is not far slower at all
/// sizes.
fn sets(base: Policy) -> Vec<Entrant> {
    let wide = Isa::ALL.into_iter().filter(|isa| !matches!(isa, Isa::Scalar | Isa::Sse2));
    others(base, wide.map(|isa| (isa.name(), with_isa(base, isa))))
}

fn with_small(base: Policy, small: Small) -> Policy {
    let mut policy = base;
    policy.small = small;
    policy
}

fn with_isa(base: Policy, isa: Isa) -> Policy {
    let mut policy = base;
    policy.isa = isa;
    policy
}

/// Compares the found choices with the choices of the base, on distributions that were not used
/// for training.
pub(super) fn check(
    config: &Tune,
    [base, found]: [Policy; 2],
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Vec<Comparison>, Error> {
    let trials = match &config.program {
        None => of_fleet(&CHECKS)?,
        Some(calls) => of_program(calls, &PROGRAM_LEVELS)?,
    };
    let count: usize = trials.iter().map(|trial| trial.functions.len()).sum();
    let mut clock = Allotment::new(budget, count * ThenRead::JUDGES.len());
    let mut checks = Vec::new();
    for trial in trials {
        let mut workload = trial.workload(config.seed + 2, context)?;
        for &(function, _) in &trial.functions {
            let mut both = Vec::new();
            for then_read in ThenRead::JUDGES {
                let item = Item {
                    phase: "check",
                    function,
                    then_read,
                    more: vec![(key::PART, Part::Choices.name().into())],
                    ..item("", trial.what(), trial.level)
                };
                let entrants = [("default", base), ("tuned", found)];
                let found =
                    compare(config, &item, &mut workload, &entrants, clock.next(), context)?;
                both.extend(found.unwrap_or_default());
            }
            checks.extend(Comparison::mean(&both.iter().collect::<Vec<_>>()));
        }
    }
    Ok(checks)
}

/// An item on which a choice is tried, inlined as in programs.
fn item(choice: &str, what: (&'static str, serde_json::Value), level: Level) -> Item {
    Item {
        phase: "choose",
        what,
        level,
        function: Function::Memcpy,
        then_read: ThenRead::Nothing,
        more: vec![(key::CHOICE, choice.into())],
        plain: Plain::Inline,
    }
}

/// The alternatives that this processor supports and that differ from the base.
fn others(base: Policy, all: impl IntoIterator<Item = Entrant>) -> Vec<Entrant> {
    let is_other = |(_, policy): &Entrant| policy.lacking().is_nothing() && *policy != base;
    all.into_iter().filter(is_other).collect()
}

/// For each alternative, the sum of the logarithms of its ratios to the base, as far as these
/// ratios count.
struct Sums {
    alternatives: Vec<(Entrant, f64)>,
    /// The weights of all ratios together.
    weights: f64,
}

/// An item with one function, and the weight of its ratios.
struct Measured {
    item: Item,
    weight: f64,
}

impl Sums {
    fn of(alternatives: &[Entrant]) -> Self {
        Self { alternatives: alternatives.iter().map(|&it| (it, 0.0)).collect(), weights: 0.0 }
    }

    /// Measures all alternatives with every reader; `false` if the run was stopped.
    fn measure(
        &mut self,
        config: &Tune,
        measured: &Measured,
        base: Policy,
        workload: &mut Workload,
        clock: &mut Allotment,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let mut entrants = vec![("default", base)];
        entrants.extend(self.alternatives.iter().map(|(entrant, _)| *entrant));
        for then_read in ThenRead::JUDGES {
            if context.is_stopped() {
                return Ok(false);
            }
            let item = Item { then_read, ..measured.item.clone() };
            let found = compare(config, &item, workload, &entrants, clock.next(), context)?;
            let Some(found) = found else { return Ok(false) };
            for ((_, sum), comparison) in self.alternatives.iter_mut().zip(&found) {
                *sum += measured.weight * search::counted(comparison).ln();
            }
            self.weights += measured.weight;
        }
        Ok(true)
    }

    /// The alternative with the least time, if it saves enough over the base to be worth a change.
    fn best(&self, base: Policy) -> Policy {
        let least = self.alternatives.iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
        match least {
            Some(((_, policy), sum)) if (sum / self.weights).exp() <= 1.0 - GAIN_MIN => *policy,
            _ => base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_sum_wins_if_saving_is_large_enough() {
        let base = Policy::for_this_processor();
        let of = |isa| ("", with_isa(base, isa));
        let sums = |first: f64, second: f64| Sums {
            alternatives: vec![(of(Isa::Sse2), first.ln()), (of(Isa::Scalar), second.ln())],
            weights: 1.0,
        };
        assert_eq!(sums(0.9, 0.8).best(base).isa, Isa::Scalar);
        assert_eq!(sums(0.9, 1.2).best(base).isa, Isa::Sse2);
        assert_eq!(sums(0.999, 1.2).best(base), base);
        assert_eq!(Sums::of(&[]).best(base), base);
    }

    /// An alternative that this processor lacks is not tried: it would be the default under another
    /// name.
    #[test]
    fn only_supported_alternatives_are_tried() {
        let base = Policy::for_this_processor();
        let found = others(base, Isa::ALL.map(|isa| (isa.name(), with_isa(base, isa))));
        assert_eq!(found.len(), Isa::available().count() - 1);
    }
}
