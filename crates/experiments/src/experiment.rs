//! The interface of every experiment: its name, its cost, and its measurement.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use haul_measure::Caches;

use crate::context::Context;
use crate::error::Error;

/// Something to measure: the subjects, the items, and the time. A survey is a list of
/// experiments; a new part of haul adds one more experiment.
///
/// The budget is the time of the rounds. The time in addition to the rounds is an estimate.
/// During this time, the experiment places buffers, starts processes, verifies bytes and runs the
/// fewest rounds of each subject. Every constant of the estimate is the time that the experiment
/// needed in addition to its budget on a quiet 2-processor Zen 4 (32 MiB of last-level cache),
/// rounded up. If an experiment takes longer, a plan gives less time to the rounds of the
/// following experiments.
pub trait Experiment {
    /// The experiment's description for a user: `memcpy, service, l1`.
    fn name(&self) -> String;

    /// The time of the experiment's rounds; zero if it has no rounds.
    fn budget(&self) -> Duration {
        Duration::ZERO
    }

    /// Sets the time of the experiment's rounds.
    fn set_budget(&mut self, _budget: Duration) {}

    /// The approximate time of the experiment in addition to its rounds, on a quiet machine with
    /// these caches.
    fn overhead(&self, caches: &Caches) -> Duration;

    /// The weight of the experiment if several experiments share a budget.
    fn weight(&self) -> f64 {
        1.0
    }

    /// Checks, before the experiment, whether the machine has enough memory, as far as its needs
    /// are known.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    fn check_memory(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Measures the subjects, and emits each record as soon as it is complete.
    ///
    /// # Errors
    /// The reason why the experiment stopped. The records emitted before the error are valid.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error>;

    /// The experiment's time on a quiet machine with these caches.
    fn time(&self, caches: &Caches) -> Time {
        Time { rounds: self.budget(), overhead: self.overhead(caches) }
    }
}

/// The time of one experiment, or the sum for several experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// The time of the rounds, which a budget limits.
    pub rounds: Duration,
    /// The time in addition to the rounds.
    pub overhead: Duration,
}

impl Time {
    /// The sum of both.
    #[must_use]
    pub fn whole(self) -> Duration {
        self.rounds + self.overhead
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { rounds: self.rounds + other.rounds, overhead: self.overhead + other.overhead }
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Add::add)
    }
}

/// The estimate for calibration and for a small proof.
pub(crate) const SMALL: Duration = Duration::from_millis(50);

/// The time for `count` bytes, with this number of nanoseconds per byte.
pub(crate) fn nanoseconds(each: f64, count: usize) -> Duration {
    Duration::from_nanos((each * count as f64) as u64)
}

/// The end of an experiment's name, which says the number of threads: empty for one thread.
pub(crate) fn on_threads(threads: usize) -> String {
    if threads == 1 { String::new() } else { format!(", {threads} threads") }
}
