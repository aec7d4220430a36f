//! `haul engine bench`: copies beside the CPU, compared with the CPU itself.

use std::time::Duration;

use haul_experiments::engine::bench::break_even;
use haul_experiments::engine::{self, Subject, Tail};
use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Record};

use crate::arguments::engine::Bench as Arguments;
use crate::command::steps::{self, Steps};
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal::{self, Table};

/// Time for the rounds of a size, and of the tail, without --budget.
const BUDGET_EACH: Duration = Duration::from_secs(1);

pub(super) struct Bench {
    steps: Steps,
    budget: Option<Duration>,
    json: bool,
}

impl Bench {
    pub(super) fn new(arguments: Arguments) -> Self {
        let mut subjects = vec![Subject::Inline];
        for subject in arguments.engine.iter().chain(&arguments.against) {
            if !subjects.contains(subject) {
                subjects.push(*subject);
            }
        }
        let mut asked: Steps = Vec::new();
        for size in &arguments.sizes.0 {
            let (size, subjects) =
                (usize::try_from(size.0).unwrap_or(usize::MAX), subjects.clone());
            asked.push(Box::new(engine::Bench { size, subjects, budget: BUDGET_EACH }));
        }
        asked.push(Box::new(Tail { subjects, budget: BUDGET_EACH }));
        let Arguments { budget, json, .. } = arguments;
        Self { steps: steps::evenly(asked, budget, BUDGET_EACH), budget, json }
    }
}

impl Command for Bench {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, self.budget, journal)?;
        let measured: Vec<Record> = journal.records().cloned().collect();
        let Some(first) = measured.first() else { return Ok(()) };
        for mut record in break_even(&measured) {
            record.stamp(&first.run, &this_machine().id, &first.time);
            journal.add(record);
        }
        journal.check()
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::new(&["figure", ">size", "engine", ">median", ">ratio to inline"]);
        for record in journal.records() {
            let size = record.parameters.get(key::SIZE_BYTES).and_then(serde_json::Value::as_u64);
            let ratio = record.comparison.as_ref().map(|comparison| three_digits(comparison.ratio));
            table.add(vec![
                record.experiment.trim_start_matches("engine.").to_owned(),
                size.map_or_else(String::new, |size| Bytes(size).to_string()),
                record.subject.clone(),
                record.median().map_or_else(String::new, |median| written(record, median)),
                ratio.unwrap_or_default(),
            ]);
        }
        terminal::print(&table.text())
    }
}

/// A median with its unit.
fn written(record: &Record, median: f64) -> String {
    match (record.unit.as_str(), record.experiment.as_str()) {
        ("bytes/s", _) => format!("{} GB/s", three_digits(median / 1e9)),
        ("s", _) if median < 1e-6 => format!("{} ns", three_digits(median * 1e9)),
        ("s", _) => format!("{} us", three_digits(median * 1e6)),
        (_, name::ENGINE_OVERLAP) => format!("{} %", three_digits(median * 100.0)),
        (_, name::ENGINE_BREAK_EVEN) => format!("{median} B"),
        (unit, _) => format!("{} {unit}", three_digits(median)),
    }
}
