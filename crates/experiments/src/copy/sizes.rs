//! Measures each size in turn, and compares all kernels: `copy.size`.

use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::distribution::{Alignment, Overlap, SIZE_MAX_BYTES};
use haul_measure::interleave::best;
use haul_measure::memory::check_available;
use haul_measure::{Caches, Distribution, Level, Outcome, Sampling, Subject};
use haul_model::Bytes;
use haul_model::experiment::{key, name};

use super::subjects::{self, Plain, Selection};
use super::then_read::ThenRead;
use super::workload::{Branches, Mix, OnWorkload, Workload};
use super::{Function, drawn, each_size, proof};
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL, nanoseconds, on_threads};
use crate::outcome::{self, Metric, Template};

/// The intended time of a sample, unless one call takes longer.
const SAMPLE: Duration = Duration::from_micros(200);

/// Above this size, a sample is one call of milliseconds or more, and a few rounds are enough.
const FEW_ROUNDS_FROM_BYTES: usize = 16 << 20;

/// The subject that is compared with the best of the other subjects.
const HAUL: &str = "haul";

/// The time of a size in addition to its rounds, for each of its bytes: a few rounds of every
/// kernel, and a proof of each.
const OVERHEAD_NS_PER_BYTE: f64 = 20.0;

/// The fixed cost of a step and of enough rounds of small sizes, as bytes copied in the same time.
const WEIGHT_BYTES: f64 = (64 << 20) as f64;

/// For sizes below a page, kernels that bypass the caches are measured only if the user names
/// them. At such sizes, a cache holds the target in any case, and these kernels take many times
/// as long as the others.
const STREAMED_BYTES_MIN: usize = 4 << 10;

/// The smallest number of rounds per size, independent of the budget: for small sizes and for
/// large sizes.
const ROUNDS_MIN: usize = 9;
const ROUNDS_MIN_LARGE: usize = 5;

/// A sweep over sizes, which compares subjects with libc.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The called function.
    pub function: Function,
    /// The sizes in bytes: see [`powers`].
    pub sizes_bytes: Vec<usize>,
    /// The cache level or memory that holds the bytes. With `Nearest`, the copy uses the same two
    /// buffers again and again, in the nearest cache that holds both, at another location in each
    /// round. Sizes above [`SIZE_MAX_BYTES`] are always measured in this way, and their records
    /// say so.
    pub level: Level,
    /// The number of threads that call at the same time, each on separate memory.
    pub threads: usize,
    /// The subjects that are measured against libc.
    pub subjects: Selection,
    /// The alignment of addresses.
    pub alignment: Alignment,
    /// Whether predictors can learn the branches: the same alignments again and again, or
    /// alignments that do not repeat.
    pub branches: Branches,
    /// The part of each target that is read right after its call.
    pub then_read: ThenRead,
    /// The longest time of the rounds of all sizes. Large sizes get as many rounds as a median
    /// needs.
    pub budget: Duration,
    /// The precision at which the rounds of a size end early: when every ratio is known this
    /// precisely (0.005: within half a percent). `None`: the rounds do not end early.
    pub precision: Option<f64>,
    /// The seed of addresses and of the order of subjects.
    pub seed: u64,
}

impl Sizes {
    /// haul, libc and every kernel, on one thread, with buffers in the nearest cache that holds
    /// them, for half a second per size.
    #[must_use]
    pub fn new(function: Function, sizes_bytes: Vec<usize>) -> Self {
        Self {
            budget: each_size::budget(&sizes_bytes),
            function,
            sizes_bytes,
            level: Level::Nearest,
            threads: 1,
            subjects: Selection::Kernels,
            alignment: Alignment::default(),
            branches: Branches::Repeating,
            then_read: ThenRead::Nothing,
            precision: None,
            seed: 1,
        }
    }
}

/// The sizes from `first` to `last`: `first`, `last` and every power of two between them, with
/// `steps` sizes per octave (1: the powers alone).
///
/// # Errors
/// `first` is 0 or above `last`.
pub fn powers(first: usize, last: usize, steps: u32) -> Result<Vec<usize>, Error> {
    if first == 0 || first > last {
        return Err(Error::Sizes { first: Bytes(first as u64), last: Bytes(last as u64) });
    }
    let steps = steps.max(1);
    let mut sizes = vec![first, last];
    for octave in first.ilog2()..=last.ilog2() {
        let power = 1usize << octave;
        // Between two powers, all steps have the same number of bytes, so that the sizes are
        // round numbers.
        sizes.extend((0..steps).map(|step| power + (power / steps as usize) * step as usize));
    }
    sizes.retain(|size| (first..=last).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

impl Experiment for Sizes {
    fn name(&self) -> String {
        let (function, sizes) = (self.function.name(), each_size::named(&self.sizes_bytes));
        format!("{function}, {sizes}{}{}", on_threads(self.threads), self.then_read.suffix())
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
            + nanoseconds(
                OVERHEAD_NS_PER_BYTE,
                self.sizes_bytes.iter().sum::<usize>() * self.threads,
            )
    }

    /// A larger size gets a larger share of the budget. From 2 KiB to 1 GiB in 25 s, sizes from
    /// 256 MiB on have eight to ten rounds, and the other sizes have hundreds of rounds. With
    /// equal shares, the large ones had five rounds.
    fn weight(&self) -> f64 {
        1.0 + self.sizes_bytes.iter().sum::<usize>() as f64 / WEIGHT_BYTES
    }

    /// Checks whether source and target of each thread fit into memory. A fill has a source and a
    /// target as well.
    fn check_memory(&self) -> Result<(), Error> {
        let largest = each_size::largest(&self.sizes_bytes) as u64;
        let wanted = largest.saturating_mul(2).saturating_mul(self.threads as u64);
        Ok(check_available(wanted, &Sys::new())?)
    }

    /// Emits one record for each size and subject.
    ///
    /// # Errors
    /// A size does not fit into memory, or a subject is unknown or copied wrongly; the records of
    /// the earlier sizes have been emitted. See also [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        each_size::measure(&self.sizes_bytes, context, |size, context| {
            measure_size(self, size, context)
        })
    }
}

fn measure_size(config: &Sizes, size: usize, context: &mut Context<'_>) -> Result<(), Error> {
    let mut candidates = subjects::select(config.function, &config.subjects, Plain::C)?;
    if matches!(config.subjects, Selection::Kernels) && size < STREAMED_BYTES_MIN {
        let is_streaming =
            |name: &str| ["stream", "paged"].iter().any(|start| name.starts_with(start));
        candidates.retain(|candidate| !is_streaming(candidate.name));
    }
    let mut workload = workload(config, size, context)?;
    let on: Vec<OnWorkload<'_>> = candidates
        .iter()
        .map(|candidate| OnWorkload::new(*candidate, &workload, config.then_read))
        .collect();
    let entrants: Vec<&dyn Subject> = on.iter().map(|subject| subject as &dyn Subject).collect();
    let what = format!("{} of {}", config.function.name(), Bytes(size as u64));
    let outcome =
        outcome::measure(context, &what, &entrants, 0, &sampling(config, size, &workload))?;
    drop(entrants);
    drop(on);
    proof::check(config.function, &candidates, &mut workload)?;
    let template = Template {
        experiment: name::COPY_SIZE,
        parameters: [
            (key::FUNCTION, config.function.name().into()),
            (key::SIZE_BYTES, size.into()),
            (key::LEVEL, level(config, size).name().into()),
            (key::THREADS, config.threads.into()),
            (key::BRANCHES, config.branches.name().into()),
            (key::THEN_READ, config.then_read.name().into()),
        ]
        .into_iter()
        .chain(drawn::misaligned(config.alignment))
        .collect(),
        metric: Metric::Time,
        notes: level_note(config, size).into_iter().collect(),
    };
    let over_best = over_best(&outcome, config.seed);
    outcome::emit_each(context, &outcome, &template, |subject| {
        if subject == HAUL { over_best.clone() } else { Vec::new() }
    });
    Ok(())
}

/// The ratio of `haul` to the best of all subjects, as parameters of its record: see [`best`].
fn over_best(outcome: &Outcome, seed: u64) -> Vec<(&'static str, serde_json::Value)> {
    let subjects = &outcome.subjects;
    let Some(haul) = subjects.iter().position(|subject| subject.name == HAUL) else {
        return Vec::new();
    };
    let series: Vec<&[f64]> = subjects.iter().map(|subject| &subject.samples_ns[..]).collect();
    let Some(found) = best::over_best(&series, haul, seed) else { return Vec::new() };
    let [even, odd] = found.best.map(|index| &*subjects[index].name);
    let best = if even == odd { even.to_owned() } else { format!("{even}, {odd}") };
    let rounded = |ratio: f64| ((ratio * 1e4).round() / 1e4).into();
    vec![
        (key::BEST, best.into()),
        (key::OVER_BEST, rounded(found.ratio.median)),
        (key::OVER_BEST_LOW, rounded(found.ratio.low)),
        (key::OVER_BEST_HIGH, rounded(found.ratio.high)),
    ]
}

/// The level that holds the bytes of this size. Above the largest size of a distribution, the
/// copy's own two buffers decide the level, and no level can be requested. The level "mixed" does
/// not exist for a single size.
fn level(config: &Sizes, size: usize) -> Level {
    if size > SIZE_MAX_BYTES || config.level == Level::Mixed {
        Level::Nearest
    } else {
        config.level
    }
}

/// A note if the bytes lie at another level than the requested one.
fn level_note(config: &Sizes, size: usize) -> Option<String> {
    let is_other = level(config, size) != config.level && config.level != Level::Mixed;
    is_other.then(|| {
        format!(
            "level {} was requested, but above {} the same two buffers are used again and again, \
             in the nearest cache that holds them",
            config.level,
            Bytes(SIZE_MAX_BYTES as u64)
        )
    })
}

fn workload(config: &Sizes, size: usize, context: &Context<'_>) -> Result<Workload, Error> {
    if level(config, size) == Level::Nearest {
        let Sizes { alignment, branches, threads, seed, .. } = *config;
        return Ok(Workload::resident(size, alignment, branches, threads, seed)?);
    }
    let mix = Mix {
        sizes: &Distribution::uniform("one size", size..=size),
        level: config.level,
        alignment: config.alignment,
        overlap: Overlap { share: 0.0 },
        branches: config.branches,
        seed: config.seed,
    };
    Ok(Workload::drawn(&mix, &context.caches, config.threads)?)
}

fn sampling(config: &Sizes, size: usize, workload: &Workload) -> Sampling {
    Sampling {
        sample: SAMPLE,
        iterations_multiple: workload.operations_multiple(),
        budget: each_size::share(config.budget, &config.sizes_bytes),
        precision: config.precision,
        rounds_min: if size >= FEW_ROUNDS_FROM_BYTES { ROUNDS_MIN_LARGE } else { ROUNDS_MIN },
        threads: config.threads,
        seed: config.seed,
        ..Sampling::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_include_both_ends() {
        assert_eq!(powers(2048, 16384, 1).unwrap(), [2048, 4096, 8192, 16384]);
        assert_eq!(powers(3000, 9000, 1).unwrap(), [3000, 4096, 8192, 9000]);
        assert_eq!(powers(1024, 2048, 4).unwrap(), [1024, 1280, 1536, 1792, 2048]);
        assert_eq!(powers(1, 1, 1).unwrap(), [1]);
        assert!(powers(0, 5, 1).is_err());
        let message = powers(9, 5, 1).unwrap_err().to_string();
        assert!(message.contains("9 B to 5 B"), "{message}");
    }
}
