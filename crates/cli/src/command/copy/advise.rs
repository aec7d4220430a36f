//! `haul copy advise`: the best copy for a call site.

use std::cmp::Reverse;
use std::time::Duration;

use haul_experiments::Experiment;
use haul_experiments::copy::advise::{self, Advise as Question};
use haul_experiments::copy::stream::{Recorded, Replay, recorded, track};
use haul_experiments::copy::workload::Branches;
use haul_experiments::copy::{Function, Sizes, ThenRead};
use haul_model::experiment::name;

use super::bench;
use crate::arguments::copy::Advise as Arguments;
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// Time for an answer without --budget, of which a single call site gets a quarter.
const BUDGET_EACH: Duration = Duration::from_secs(2);

/// The number of call sites that are answered one by one.
const SITES: usize = 10;

pub(super) struct Advise {
    steps: Steps,
    budget: Option<Duration>,
    json: bool,
}

impl Advise {
    /// Lists the questions, and reads every stream.
    ///
    /// # Errors
    /// A size is 0 or too large, or a stream cannot be replayed.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let mut asked: Steps = Vec::new();
        let sizes = bench::in_bytes(arguments.sizes.as_ref())?;
        for size in sizes {
            asked.push(Box::new(Question::of_size(of_size(&arguments, size))));
        }
        for name in &arguments.stream {
            for stream in recorded::find(name)? {
                asked.push(Box::new(Question::of_stream(Replay::new(stream.clone()))));
                let sites = busiest(&stream);
                asked.extend(sites.into_iter().map(|site| -> Box<dyn Experiment> {
                    let replay = Replay { site: Some(site), ..Replay::new(stream.clone()) };
                    Box::new(Question::of_stream(replay))
                }));
            }
        }
        let weights: f64 = asked.iter().map(|question| question.weight()).sum();
        let whole = arguments.budget.unwrap_or_else(|| BUDGET_EACH.mul_f64(weights));
        let steps = steps::evenly(asked, Some(whole), BUDGET_EACH);
        let Arguments { budget, json, .. } = arguments;
        Ok(Self { steps, budget, json })
    }
}

/// Calls of one size, in the regime of the arguments.
fn of_size(arguments: &Arguments, size: usize) -> Sizes {
    let function = arguments.function.unwrap_or(Function::Memcpy);
    let branches = if arguments.predictable { Branches::Repeating } else { Branches::Random };
    let then_read = if arguments.read { ThenRead::First } else { ThenRead::Nothing };
    Sizes { branches, then_read, ..Sizes::new(function, vec![size]) }
}

/// The call sites with the most calls, the busiest first.
fn busiest(recorded: &Recorded) -> Vec<u16> {
    let counts = track::calls_by_site(&recorded.stream);
    let mut sites: Vec<u16> = (0..=u16::MAX).take(counts.len()).collect();
    sites.retain(|site| counts[usize::from(*site)] > 0);
    sites.sort_by_key(|site| Reverse(counts[usize::from(*site)]));
    sites.truncate(SITES);
    sites
}

impl Command for Advise {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, self.budget, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let answers = journal.records().filter(|record| record.experiment == name::COPY_ADVISE);
        let lines: Vec<String> = answers.map(advise::sentence).collect();
        if self.json || lines.is_empty() {
            return Ok(());
        }
        terminal::print(&lines.join("\n"))
    }
}
