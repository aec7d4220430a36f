//! The time of a profiled program's calls, with libc's functions and with haul's.
//!
//! A profile has the calls of each class of sizes and their mean size. One call of that size is
//! measured, with libc and with haul in one run, on two buffers in the nearest cache that holds
//! both. The time of other sizes is interpolated.
//!
//! The program's own calls cost more if their bytes are in no cache, with either function.

use std::time::Duration;

use haul_measure::distribution::Alignment;
use haul_measure::{Sampling, Subject};
use haul_model::profile::{Calls, CallsOfSize};
use haul_model::statistics::quantile;

use super::subjects::{BASELINE, Candidate, available};
use super::workload::{Branches, OnWorkload, Workload};
use super::{Function, Plain, ThenRead, proof};
use crate::context::Context;
use crate::error::Error;
use crate::outcome;

/// The intended time of a sample, and of all rounds of one size. Seven rounds tell sizes apart that
/// differ by some percent, which is enough for a sum over all sizes of a program.
const SAMPLE: Duration = Duration::from_micros(30);
const BUDGET: Duration = Duration::from_millis(4);
const ROUNDS_MIN: usize = 7;

/// The quantile of the samples that counts: other programs lengthen some of so few samples.
const QUANTILE: f64 = 0.25;

/// A size is measured if its calls take at least this share of the estimated time of all calls, or
/// if it is the smallest.
const SHARE_MIN: f64 = 0.002;

/// The largest size that is measured, in bytes. No larger size is in a cache of one core, so that
/// its time grows with the size.
const SIZE_MAX_BYTES: u64 = 8 << 20;

/// The measured time of calls, by function and size.
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use haul_experiments::{Context, copy::cost::Costs};
/// use haul_model::profile::{Calls, CallsOfSize};
/// let pages = CallsOfSize { size_bytes: 4096, first_bytes: 4096, last_bytes: 8191, calls: 1e6 };
/// let calls = Calls { copies: vec![pages], fills: vec![] };
/// let costs = Costs::measure(&calls, &mut Context {
///     run: String::new(),
///     machine: String::new(),
///     stop: &AtomicBool::new(false),
///     caches: haul_measure::Caches::default(),
///     cpus: Vec::new(),
///     sink: &mut |_| (),
///     progress: &mut |_| (),
///     warn: &mut |_| (),
/// })?;
/// let spent = costs.unwrap().of(&calls);
/// assert!(spent.libc_s > 0.0 && spent.haul_s > 0.0);
/// # Ok::<(), haul_experiments::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Costs {
    copies: Vec<Cost>,
    fills: Vec<Cost>,
}

/// The time of one call of a size, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    size_bytes: f64,
    libc_ns: f64,
    haul_ns: f64,
}

/// The time of all calls of a program or a site, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// With libc's functions.
    pub libc_s: f64,
    /// With haul's functions, under the policy in force.
    pub haul_s: f64,
}

impl Costs {
    /// Measures the sizes that take most of the time of these calls; `None` if the run was stopped.
    /// Takes about 20 ms for each of at most 50 sizes, and emits no records.
    ///
    /// # Errors
    /// See [`haul_measure::Error`]. It is also an error if haul copies a wrong byte.
    pub fn measure(calls: &Calls, context: &mut Context<'_>) -> Result<Option<Self>, Error> {
        let whole: f64 =
            calls.copies.iter().chain(&calls.fills).map(CallsOfSize::estimated_ns).sum();
        let mut costs = Self::default();
        for (function, all, found) in [
            (Function::Memcpy, &calls.copies, &mut costs.copies),
            (Function::Memset, &calls.fills, &mut costs.fills),
        ] {
            // From the smallest size on, the time of the others is interpolated.
            let matters = |(at, one): &(usize, &CallsOfSize)| {
                *at == 0 || one.estimated_ns() >= SHARE_MIN * whole
            };
            let measured = all.iter().enumerate().filter(matters).map(|(_, one)| one);
            for size in sizes(measured) {
                if context.is_stopped() {
                    return Ok(None);
                }
                found.extend(of_size(function, size, context)?);
            }
        }
        Ok(Some(costs))
    }

    /// The time of these calls, which may be those of a part of the program.
    #[must_use]
    pub fn of(&self, calls: &Calls) -> Spent {
        let mut spent = Spent::default();
        for (all, costs) in [(&calls.copies, &self.copies), (&calls.fills, &self.fills)] {
            for one in all {
                let (libc_ns, haul_ns) = interpolated(costs, one.size_bytes as f64);
                spent.libc_s += one.calls * libc_ns / 1e9;
                spent.haul_s += one.calls * haul_ns / 1e9;
            }
        }
        spent
    }
}

/// The sizes to measure, ascending.
fn sizes<'a>(all: impl Iterator<Item = &'a CallsOfSize>) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        all.map(|one| one.size_bytes.min(SIZE_MAX_BYTES) as usize).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Measures one size; `None` if the run was stopped before the first round was complete.
fn of_size(
    function: Function,
    size: usize,
    context: &mut Context<'_>,
) -> Result<Option<Cost>, Error> {
    let mut workload = Workload::resident(size, Alignment::default(), Branches::Repeating, 1, 1)?;
    let all = available(function, Plain::C);
    let named = |name: &str| all.iter().find(|candidate| candidate.name == name).copied();
    let candidates: Vec<Candidate> = [BASELINE, "haul"].into_iter().filter_map(named).collect();
    let on: Vec<OnWorkload<'_>> = candidates
        .iter()
        .map(|candidate| OnWorkload::new(*candidate, &workload, ThenRead::Nothing))
        .collect();
    let subjects: Vec<&dyn Subject> = on.iter().map(|subject| subject as &dyn Subject).collect();
    let sampling = Sampling {
        sample: SAMPLE,
        budget: BUDGET,
        rounds_min: ROUNDS_MIN,
        iterations_multiple: workload.operations_multiple(),
        ..Sampling::default()
    };
    let what = format!("the cost of {} of {size} B", function.name());
    let outcome = outcome::measure(context, &what, &subjects, 0, &sampling)?;
    drop(subjects);
    drop(on);
    proof::check(function, &candidates, &mut workload)?;
    let [libc, haul] = &outcome.subjects[..] else { return Ok(None) };
    let typical = |samples: &[f64]| quantile(samples, QUANTILE);
    let (libc_ns, haul_ns) = (typical(&libc.samples_ns), typical(&haul.samples_ns));
    Ok(libc_ns.zip(haul_ns).map(|(libc_ns, haul_ns)| Cost {
        size_bytes: size as f64,
        libc_ns,
        haul_ns,
    }))
}

/// The times of a size: on the line between its neighbours; of the smallest measured size below
/// that one; in proportion to the size above the largest.
fn interpolated(costs: &[Cost], size_bytes: f64) -> (f64, f64) {
    let at = costs.partition_point(|cost| cost.size_bytes < size_bytes);
    let (below, above) = (at.checked_sub(1).map(|at| costs[at]), costs.get(at).copied());
    let (from, share) = match (below, above) {
        (None, None) => return (0.0, 0.0),
        (None, Some(first)) => return (first.libc_ns, first.haul_ns),
        (Some(last), None) => {
            let times = (size_bytes / last.size_bytes.max(1.0)).max(1.0);
            return (last.libc_ns * times, last.haul_ns * times);
        }
        (Some(below), Some(above)) => {
            let share = (size_bytes - below.size_bytes) / (above.size_bytes - below.size_bytes);
            ((below, above), share)
        }
    };
    let between = |low: f64, high: f64| low + share * (high - low);
    (between(from.0.libc_ns, from.1.libc_ns), between(from.0.haul_ns, from.1.haul_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::measured;

    fn of(size_bytes: u64, calls: f64) -> CallsOfSize {
        CallsOfSize { size_bytes, first_bytes: 0, last_bytes: u64::MAX, calls }
    }

    #[test]
    fn time_of_a_size_is_interpolated() {
        let cost = |size_bytes, libc_ns, haul_ns| Cost { size_bytes, libc_ns, haul_ns };
        let costs = [cost(16.0, 4.0, 5.0), cost(1016.0, 24.0, 15.0)];
        for (size, wanted) in
            [(0.0, (4.0, 5.0)), (16.0, (4.0, 5.0)), (516.0, (14.0, 10.0)), (2032.0, (48.0, 30.0))]
        {
            assert_eq!(interpolated(&costs, size), wanted, "{size}");
        }
        assert_eq!(interpolated(&[], 5.0), (0.0, 0.0));
    }

    #[test]
    fn calls_cost_what_their_parts_cost_and_rare_sizes_are_not_measured() {
        let whole = Calls {
            copies: vec![of(64, 1e6), of(100, 1.0), of(64 << 10, 1e3), of(64 << 20, 2.0)],
            fills: vec![of(1, 2.0), of(32, 1e6)],
        };
        let (costs, records, _) = measured(Vec::new(), |context| Costs::measure(&whole, context));
        let costs = costs.unwrap().unwrap();
        assert_eq!((costs.copies.len(), costs.fills.len(), records.len()), (3, 2, 0));
        let part =
            |copies: Vec<CallsOfSize>, fills: Vec<CallsOfSize>| costs.of(&Calls { copies, fills });
        let parts = [
            part(whole.copies[..2].to_vec(), Vec::new()),
            part(whole.copies[2..].to_vec(), whole.fills.clone()),
        ];
        let sum = |value: fn(&Spent) -> f64| parts.iter().map(value).sum::<f64>();
        let spent = costs.of(&whole);
        assert!((spent.libc_s - sum(|it| it.libc_s)).abs() < 1e-9, "{spent:?}");
        assert!((spent.haul_s - sum(|it| it.haul_s)).abs() < 1e-9, "{spent:?}");
        // A MiB takes longer than a call of 64 B with any function and build.
        let one = |size| costs.of(&Calls { copies: vec![of(size, 1.0)], fills: vec![] });
        assert!(one(64 << 20).libc_s > one(64).libc_s && one(64 << 20).haul_s > one(64).haul_s);
    }
}
