//! The small shape and the instruction set, which copies and fills share.
//!
//! The shapes for small sizes are compared on the sizes of a service, inlined as in programs. The
//! instruction sets are compared on single sizes, from the first size that uses blocks to the
//! first size that uses another method. Both comparisons run with both readers. The result is
//! checked on other distributions.

use std::time::Duration;

use haul_copy::Small;
use haul_copy::{Isa, Policy};
use haul_measure::Level;
use haul_measure::distribution::Alignment;
use haul_model::Comparison;
use haul_model::experiment::key;

use super::rounds::{Allotment, Entrant, Item, compare, drawn};
use super::{GAIN_MIN, Part, Tune, search};
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

/// The choices with the least time, or the choices of the base if no others are better; `None` if
/// the run was stopped.
pub(super) fn train(
    config: &Tune,
    base: Policy,
    budget: Duration,
    context: &mut Context<'_>,
) -> Result<Option<Policy>, Error> {
    let each = FUNCTIONS.len() * ThenRead::JUDGES.len();
    let shapes = shapes(base);
    let shaped = if shapes.is_empty() { 0 } else { SMALL_LEVELS.len() * each };
    let set = if sets(base).is_empty() { 0 } else { ISA_BYTES.len() * each };
    let mut clock = Allotment::new(budget, shaped + set);
    let mut sums = Sums::of(&shapes);
    for level in SMALL_LEVELS.into_iter().filter(|_| shaped > 0) {
        let mut workload = drawn(SMALL, level, config.seed, context)?;
        let item = item("small", (key::DISTRIBUTION, SMALL.into()), level);
        if !sums.measure(config, &item, base, &mut workload, &mut clock, context)? {
            return Ok(None);
        }
    }
    let base = sums.best(base);
    let mut sums = Sums::of(&sets(base));
    for size in ISA_BYTES.into_iter().filter(|_| set > 0) {
        let mut workload =
            Workload::resident(size, Alignment::default(), Branches::Repeating, 1, config.seed)?;
        let item = item("isa", (key::SIZE_BYTES, size.into()), Level::Nearest);
        if !sums.measure(config, &item, base, &mut workload, &mut clock, context)? {
            return Ok(None);
        }
    }
    Ok(Some(sums.best(base)))
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
    let count = CHECKS.len() * FUNCTIONS.len() * ThenRead::JUDGES.len();
    let mut clock = Allotment::new(budget, count);
    let mut checks = Vec::new();
    for (name, level) in CHECKS {
        let mut workload = drawn(name, level, config.seed + 2, context)?;
        for function in FUNCTIONS {
            let mut both = Vec::new();
            for then_read in ThenRead::JUDGES {
                let item = Item {
                    phase: "check",
                    function,
                    then_read,
                    more: vec![(key::PART, Part::Choices.name().into())],
                    ..item("", (key::DISTRIBUTION, name.into()), level)
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
    count: usize,
}

impl Sums {
    fn of(alternatives: &[Entrant]) -> Self {
        Self { alternatives: alternatives.iter().map(|&it| (it, 0.0)).collect(), count: 0 }
    }

    /// Measures all alternatives with every function and reader; `false` if the run was stopped.
    fn measure(
        &mut self,
        config: &Tune,
        item: &Item,
        base: Policy,
        workload: &mut Workload,
        clock: &mut Allotment,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let mut entrants = vec![("default", base)];
        entrants.extend(self.alternatives.iter().map(|(entrant, _)| *entrant));
        for function in FUNCTIONS {
            for then_read in ThenRead::JUDGES {
                if context.is_stopped() {
                    return Ok(false);
                }
                let item = Item { function, then_read, ..item.clone() };
                let found = compare(config, &item, workload, &entrants, clock.next(), context)?;
                let Some(found) = found else { return Ok(false) };
                for ((_, sum), comparison) in self.alternatives.iter_mut().zip(&found) {
                    *sum += search::counted(comparison).ln();
                }
                self.count += 1;
            }
        }
        Ok(true)
    }

    /// The alternative with the least time, if it saves enough over the base to be worth a change.
    fn best(&self, base: Policy) -> Policy {
        let least = self.alternatives.iter().min_by(|(_, a), (_, b)| a.total_cmp(b));
        match least {
            Some(((_, policy), sum)) if (sum / self.count as f64).exp() <= 1.0 - GAIN_MIN => {
                *policy
            }
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
            count: 1,
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
