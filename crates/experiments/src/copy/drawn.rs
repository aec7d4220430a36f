//! Operations of drawn sizes: `copy.distribution` and `copy.size_class`.

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

/// How long a sample should take: at least one list of operations in any case.
const SAMPLE: Duration = Duration::from_micros(100);

/// What cold sizes take beside their rounds, for each byte of the last-level cache, whose multiple
/// they are: placing and touching them, and rounds that each visit all of them.
const COLD_NS_PER_CACHE_BYTE: f64 = 40.0;

/// haul as it is in force, and as it would be without a haul.toml.
const HAUL: &str = "haul";
const UNTUNED: &str = "haul-untuned";

/// Which sizes are drawn.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A distribution: experiment `copy.distribution`.
    Distribution(Distribution),
    /// All sizes of a class equally often: experiment `copy.size_class`.
    SizeClass(SizeClass),
}

/// Calls of drawn sizes, subjects against libc.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// What is called.
    pub function: Function,
    /// Which sizes.
    pub shape: Shape,
    /// Where the bytes lie.
    pub level: Level,
    /// How many threads call at once, each on memory of its own.
    pub threads: usize,
    /// Who is measured against libc.
    pub subjects: Selection,
    /// How addresses are aligned.
    pub alignment: Alignment,
    /// How often memmove's source and target overlap.
    pub overlap: Overlap,
    /// Whether predictors can learn the branches.
    pub branches: Branches,
    /// What of each target is read right after its call.
    pub then_read: ThenRead,
    /// Whether `haul-untuned` takes part: `haul` under the default policy, whatever is in force. It
    /// is put in force before each of its samples, for the whole process.
    pub untuned: bool,
    /// How long it may take.
    pub budget: Duration,
    /// Ends it early when every ratio is known this precisely (0.005: within 0.5%).
    pub precision: Option<f64>,
    /// What sizes, addresses and the order of subjects are drawn from.
    pub seed: u64,
}

impl Drawn {
    /// `haul` in both ways to call it against libc, in L1, on one thread, with the published
    /// alignment and overlap, for two seconds.
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
    /// The class reaches beyond the largest size that is drawn.
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

    /// A class compares functions, each called through the C ABI; a distribution stands for a
    /// program, and programs that use haul are compiled with its small sizes in them.
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
        format!("{function}, {sizes}, {level}{threads}{read}")
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn beside(&self, caches: &Caches) -> Duration {
        if self.level != Level::Cold {
            return SMALL;
        }
        SMALL + nanoseconds(COLD_NS_PER_CACHE_BYTE, caches.llc_bytes * self.threads)
    }

    /// One record for each subject, libc's own among them.
    ///
    /// # Errors
    /// A subject is unknown or copied wrongly; the memory is more than the machine has; see
    /// [`haul_measure::Error`].
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

/// Who takes part, libc first.
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

/// A candidate with its workload and reader, and under the policy in force or the default one,
/// where both take part.
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

/// How the subject of this name was called: the record parameter `call`.
fn call_of(candidates: &[Candidate], subject: &str) -> &'static str {
    let found = candidates.iter().find(|candidate| candidate.name == subject);
    found.map_or("", |candidate| candidate.routine.call())
}

/// How addresses are aligned, as a record says it where it is not as published.
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
        // A name alone would be taken for one of those that haul ships.
        parameters.push((key::FILE, file.display().to_string().into()));
    }
    Template { experiment: config.shape.experiment(), parameters, metric: Metric::Time, notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_ends_where_drawing_does() {
        let class = |text: &str| text.parse::<SizeClass>().unwrap();
        assert!(Shape::of_class(class("0-1MiB")).is_ok());
        let message = Shape::of_class(class("0-1048577")).unwrap_err().to_string();
        assert!(message.contains("0-1048577") && message.contains("1 MiB"), "{message}");
    }
}
