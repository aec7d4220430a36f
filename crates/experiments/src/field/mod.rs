//! Field tests: a whole program with a change and without, and whether the change makes it faster.
//!
//! In each round the program runs three times, each time with a new start: as it is, changed, and
//! as it is again. [`haul_measure::rounds::placed`] orders and compares the runs. Every run is
//! [contained](crate::drive::contained), so that it leaves no process behind.
//!
//! From the bottom up:
//!
//! - `words`: the words of a command;
//! - `change`: what distinguishes the changed program;
//! - `metric`: what is compared;
//! - `trial`: one run of the program;
//! - `state`: the state of a test, and the comparison of its rounds;
//! - `copies`: the share of the copies in the program's processor time;
//! - `records`: the records of a test;
//! - `run`: the rounds of a test.

mod change;
mod copies;
mod metric;
mod records;
mod run;
mod state;
mod trial;
mod words;

use std::time::Duration;

use haul_measure::Caches;

use crate::context::Context;
use crate::drive::Program;
use crate::error::Error;
use crate::experiment::Experiment;

pub use change::{Change, Command};
pub use metric::{Expression, Figure, Metric};
pub use words::words;

/// A field test.
///
/// ```
/// use haul_experiments::field::{Change, Command, words};
/// let command = Command::new(words("sort -n numbers").unwrap());
/// let change: Change = "arg:-n=>-g".parse().unwrap();
/// assert_eq!(command.changed(&[change]).unwrap().shown(), "sort -g numbers");
/// ```
#[derive(Clone, Debug)]
pub struct Field {
    /// The program: the command, or the server.
    pub command: Command,
    /// The server's load; `None` if the command is not a server.
    pub load: Option<Load>,
    /// The changes, all of which the changed program has.
    pub changes: Vec<Change>,
    /// What is compared.
    pub metric: Metric,
    /// Whether more of the metric is better.
    pub is_higher_better: bool,
    /// The number of rounds; the largest number if the test ends once it is decided.
    pub rounds: usize,
    /// Whether the test ends once it is decided.
    pub is_until_decided: bool,
    /// The time after which no round begins.
    pub budget: Option<Duration>,
    /// The difference on which the user would act, as a share.
    pub matters: f64,
    /// The longest time of one run.
    pub timeout: Duration,
    /// Whether a run may end with an exit code other than 0.
    pub is_failure_allowed: bool,
    /// The program that supervises a run: [`crate::drive::contained::serve`].
    pub driver: Program,
    /// The command that repeats the test.
    pub rerun: String,
    /// The seed of orders and intervals.
    pub seed: u64,
}

/// What a server serves.
#[derive(Clone, Debug)]
pub struct Load {
    /// A text that the server prints when it is ready.
    pub ready: Expression,
    /// The program that loads it. Its end is the end of the run.
    pub command: Command,
}

impl Experiment for Field {
    fn name(&self) -> String {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        format!("field test of {}", changes.join(", "))
    }

    fn budget(&self) -> Duration {
        self.budget.unwrap_or_default()
    }

    /// The time of a run is not known before the first.
    fn overhead(&self, _caches: &Caches) -> Duration {
        Duration::ZERO
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        run::measure(self, context)
    }
}
