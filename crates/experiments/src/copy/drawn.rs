//! Operations of random sizes: `copy.distribution` and `copy.size_class`.

use std::time::Duration;

use haul_copy::Policy;
use haul_measure::distribution::{Alignment, Overlap, SIZE_MAX_BYTES};
use haul_measure::{Caches, Distribution, Level, Sampling, Subject};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, SizeClass};

use super::subjects::{self, Candidate, Plain, Selection};
use super::then_read::ThenRead;
use super::under::{Restore, UnderPolicy};
use super::workload::{Branches, Mix, OnWorkload, Workload};
use super::{Function, proof};
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL, nanoseconds, on_threads};
use crate::outcome::{self, Metric, Template};

/// The intended time of a sample, which has at least one list of operations.
const SAMPLE: Duration = Duration::from_micros(100);

/// The time of cold sizes in addition to their rounds, per byte of the last-level cache. The
/// memory of these sizes is a multiple of that cache. The memory is placed and touched, and each
/// round visits all of it.
const COLD_NS_PER_CACHE_BYTE: f64 = 40.0;

/// haul under the policy in force. `haul-untuned` is haul without a haul.toml.
const HAUL: &str = "haul";
const UNTUNED: &str = "haul-untuned";

/// The random sizes.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A distribution: experiment `copy.distribution`.
    Distribution(Distribution),
    /// All sizes of a class equally often: experiment `copy.size_class`.
    SizeClass(SizeClass),
}

/// Calls with random sizes, which compare subjects with libc.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The called function.
    pub function: Function,
    /// The sizes.
    pub shape: Shape,
    /// The cache level or memory that holds the bytes.
    pub level: Level,
    /// The number of threads that call at the same time, each on separate memory.
    pub threads: usize,
    /// The subjects that are measured against libc.
    pub subjects: Selection,
    /// The alignment of addresses.
    pub alignment: Alignment,
    /// The share of memmove's operations whose source and target overlap.
    pub overlap: Overlap,
    /// Whether predictors can learn the branches.
    pub branches: Branches,
    /// The part of each target that is read right after its call.
    pub then_read: ThenRead,
    /// Whether `haul-untuned` takes part: `haul` under the default policy. The default policy is
    /// installed before each sample of `haul-untuned`, for the whole process.
    pub untuned: bool,
    /// The longest time of the rounds.
    pub budget: Duration,
    /// Ends the measurement early when every ratio is known with this precision (0.005: within
    /// 0.5%).
    pub precision: Option<f64>,
    /// The seed of sizes, addresses and the order of subjects.
    pub seed: u64,
}

impl Drawn {
    /// Compares `haul`, called through C and inlined, with libc, in L1, on one thread, with the
    /// published alignment and overlap, for two seconds.
    #[must_use]
    pub fn new(function: Function, shape: Shape) -> Self {
        Self {
            function,
            shape,
            level: Level::L1,
            threads: 1,
            subjects: Selection::Products,
            alignment: Alignment::default(),
            overlap: Overlap::default(),
            branches: Branches::Random,
            then_read: ThenRead::Nothing,
            untuned: false,
            budget: Duration::from_secs(2),
            precision: None,
            seed: 1,
        }
    }

    fn sampling(&self, workload: &Workload) -> Sampling {
        Sampling {
            sample: SAMPLE,
            iterations_multiple: workload.operations_multiple(),
            budget: self.budget,
            precision: self.precision,
            threads: self.threads,
            seed: self.seed,
            ..Sampling::default()
        }
    }
}

impl Shape {
    /// All sizes of a class.
    ///
    /// # Errors
    /// The class has sizes above the largest one that can be drawn.
    pub fn of_class(class: SizeClass) -> Result<Self, Error> {
        if class.last.0 > SIZE_MAX_BYTES as u64 {
            return Err(Error::SizeClass { class, limit: Bytes(SIZE_MAX_BYTES as u64) });
        }
        Ok(Self::SizeClass(class))
    }

    fn distribution(&self) -> Distribution {
        match self {
            Self::Distribution(distribution) => distribution.clone(),
            Self::SizeClass(class) => {
                let last = usize::try_from(class.last.0).unwrap_or(usize::MAX).min(SIZE_MAX_BYTES);
                let first = usize::try_from(class.first.0).unwrap_or(last).min(last);
                Distribution::uniform("size class", first..=last)
            }
        }
    }

    fn experiment(&self) -> &'static str {
        match self {
            Self::Distribution(_) => name::COPY_DISTRIBUTION,
            Self::SizeClass(_) => name::COPY_SIZE_CLASS,
        }
    }

    /// A class compares functions that are each called through the C ABI. A distribution
    /// represents a program, and in a program that uses haul, small sizes are inlined.
    fn plain(&self) -> Plain {
        match self {
            Self::Distribution(_) => Plain::Inline,
            Self::SizeClass(_) => Plain::C,
        }
    }

    fn parameter(&self) -> (&'static str, serde_json::Value) {
        match self {
            Self::Distribution(distribution) => (key::DISTRIBUTION, distribution.name().into()),
            Self::SizeClass(class) => (key::SIZE_CLASS, class.to_string().into()),
        }
    }
}

impl Experiment for Drawn {
    fn name(&self) -> String {
        let sizes = match &self.shape {
            Shape::Distribution(distribution) => distribution.name().to_owned(),
            Shape::SizeClass(class) => format!("{class} B"),
        };
        let (function, level) = (self.function.name(), self.level);
        let (threads, read) = (on_threads(self.threads), self.then_read.suffix());
        let branches = match self.branches {
            Branches::Random => "",
            Branches::Repeating => ", repeating",
        };
        format!("{function}, {sizes}, {level}{threads}{branches}{read}")
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, caches: &Caches) -> Duration {
        if self.level != Level::Cold {
            return SMALL;
        }
        SMALL + nanoseconds(COLD_NS_PER_CACHE_BYTE, caches.llc_bytes * self.threads)
    }

    /// Emits one record for each subject and for libc.
    ///
    /// # Errors
    /// A subject is unknown or copied wrongly; the workload needs more memory than the machine
    /// has; see [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let candidates = candidates(self)?;
        let sizes = self.shape.distribution();
        let overlap = match self.function {
            Function::Memmove => self.overlap,
            Function::Memcpy | Function::Memset => Overlap { share: 0.0 },
        };
        let mix = Mix {
            sizes: &sizes,
            level: self.level,
            alignment: self.alignment,
            overlap,
            branches: self.branches,
            seed: self.seed,
        };
        let mut workload = Workload::drawn(&mix, &context.caches, self.threads)?;
        let _restore = self.untuned.then(Restore::current);
        let on: Vec<Box<dyn Subject + '_>> =
            candidates.iter().map(|candidate| subject(self, *candidate, &workload)).collect();
        let entrants: Vec<&dyn Subject> = on.iter().map(|subject| &**subject).collect();
        let sampling = self.sampling(&workload);
        let outcome = outcome::measure(context, &self.name(), &entrants, 0, &sampling)?;
        drop(entrants);
        drop(on);
        proof::check(self.function, &candidates, &mut workload)?;
        let template = template(self, &workload, &sizes);
        outcome::emit_each(context, &outcome, &template, |subject| {
            vec![(key::CALL, call_of(&candidates, subject).into())]
        });
        Ok(())
    }
}

/// The candidates, libc first.
fn candidates(config: &Drawn) -> Result<Vec<Candidate>, Error> {
    let plain = config.shape.plain();
    let mut candidates = subjects::select(config.function, &config.subjects, plain)?;
    if config.untuned {
        let named = Selection::Named(vec![HAUL.into()]);
        let haul = subjects::select(config.function, &named, plain)?;
        let haul = haul.into_iter().find(|candidate| candidate.name == HAUL);
        candidates.extend(haul.map(|haul| Candidate { name: UNTUNED, ..haul }));
    }
    Ok(candidates)
}

/// A candidate with its workload and reader. If both policies take part, the candidate runs under
/// the policy in force or under the default one.
fn subject<'a>(
    config: &Drawn,
    candidate: Candidate,
    workload: &'a Workload,
) -> Box<dyn Subject + 'a> {
    let subject = OnWorkload::new(candidate, workload, config.then_read);
    if !config.untuned {
        return Box::new(subject);
    }
    let policy = match candidate.name {
        UNTUNED => Policy::for_this_processor(),
        _ => Policy::current(),
    };
    Box::new(UnderPolicy::new(policy, subject))
}

/// The kind of call to the subject with this name, as the record parameter `call`.
fn call_of(candidates: &[Candidate], subject: &str) -> &'static str {
    let found = candidates.iter().find(|candidate| candidate.name == subject);
    found.map_or("", |candidate| candidate.routine.call())
}

/// The alignment of addresses as a record parameter, if it is not the published one.
pub(super) fn misaligned(alignment: Alignment) -> Option<(&'static str, serde_json::Value)> {
    (alignment != Alignment::default()).then(|| (key::MISALIGNED, alignment.odd_share.into()))
}

fn template(config: &Drawn, workload: &Workload, sizes: &Distribution) -> Template {
    let mut notes = Vec::new();
    if workload.is_grown() {
        let largest = Bytes(sizes.size_max_bytes() as u64);
        notes.push(format!(
            "sizes up to {largest} do not fit into {}: the region is larger",
            config.level
        ));
    }
    let mut parameters = vec![
        (key::FUNCTION, config.function.name().into()),
        config.shape.parameter(),
        (key::LEVEL, config.level.name().into()),
        (key::THREADS, config.threads.into()),
        (key::BRANCHES, config.branches.name().into()),
        (key::THEN_READ, config.then_read.name().into()),
    ];
    parameters.extend(misaligned(config.alignment));
    if config.function == Function::Memmove && config.overlap != Overlap::default() {
        parameters.push((key::OVERLAP, config.overlap.share.into()));
    }
    if let Some(file) = sizes.file() {
        // Without its folder, the name could be mistaken for the name of a distribution that haul
        // ships.
        parameters.push((key::FILE, file.display().to_string().into()));
    }
    Template { experiment: config.shape.experiment(), parameters, metric: Metric::Time, notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_class_above_largest_drawn_size_is_rejected() {
        let class = |text: &str| text.parse::<SizeClass>().unwrap();
        assert!(Shape::of_class(class("0-1MiB")).is_ok());
        let message = Shape::of_class(class("0-1048577")).unwrap_err().to_string();
        assert!(message.contains("0-1048577") && message.contains("1 MiB"), "{message}");
    }
}
