//! What every experiment says of itself: its name, what it costs, and how it is measured.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use haul_measure::Caches;

use crate::context::Context;
use crate::error::Error;

/// Something to measure: whom, on what, and for how long. A survey is a list of them; a new part
/// of haul is one more entry.
///
/// Rounds take the budget. What is taken beside them, by placing buffers, starting processes,
/// proving bytes and the fewest rounds of each subject, is an estimate: every constant behind it is
/// what the experiment took of a quiet 2-processor Zen 4 (32 MiB of last-level cache) beyond its
/// budget, rounded up. A plan takes what one experiment takes more off the rounds of those that
/// follow.
pub trait Experiment {
    /// What it measures, for a person: `memcpy, service, l1`.
    fn name(&self) -> String;

    /// How long its rounds may take; nothing where it has none.
    fn budget(&self) -> Duration {
        Duration::ZERO
    }

    /// Sets how long its rounds may take.
    fn set_budget(&mut self, _budget: Duration) {}

    /// About how long it takes beside its rounds, on a quiet machine with these caches.
    fn beside(&self, caches: &Caches) -> Duration;

    /// How much of a budget it gets where it shares one with others.
    fn weight(&self) -> f64 {
        1.0
    }

    /// Whether the machine has the memory that it needs, as far as that is known before it begins.
    ///
    /// # Errors
    /// It does not.
    fn check_memory(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Measures, and emits each record as soon as it is complete.
    ///
    /// # Errors
    /// What stopped it; the records emitted before that hold.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error>;

    /// How long it takes, on a quiet machine with these caches.
    fn time(&self, caches: &Caches) -> Time {
        Time { rounds: self.budget(), beside: self.beside(caches) }
    }
}

/// What an experiment takes, or several of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// For rounds: what a budget is.
    pub rounds: Duration,
    /// Beside them.
    pub beside: Duration,
}

impl Time {
    /// All of it.
    #[must_use]
    pub fn whole(self) -> Duration {
        self.rounds + self.beside
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { rounds: self.rounds + other.rounds, beside: self.beside + other.beside }
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Add::add)
    }
}

/// The estimate for calibrating, and for proving some bytes.
pub(crate) const SMALL: Duration = Duration::from_millis(50);

/// So much for each of so many bytes.
pub(crate) fn nanoseconds(each: f64, count: usize) -> Duration {
    Duration::from_nanos((each * count as f64) as u64)
}

/// How many threads, as a name ends: nothing for one.
pub(crate) fn on_threads(threads: usize) -> String {
    if threads == 1 { String::new() } else { format!(", {threads} threads") }
}
