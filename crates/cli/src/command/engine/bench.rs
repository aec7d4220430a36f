//! `haul engine bench`: copies beside the CPU, compared with the CPU itself.

use std::time::Duration;

use haul_experiments::engine::copier::Copier;
use haul_experiments::engine::{self, Subject, Tail, break_even};
use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Comparison, Record};

use super::tuning::File;
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
    /// The `haul.toml` for the break-even sizes.
    tuning: Option<File>,
    /// What became of this file.
    written: Option<String>,
}

impl Bench {
    /// Prepares the steps, and checks the file for the break-even sizes.
    ///
    /// # Errors
    /// As for [`File::check`].
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let tuning = arguments.out_file.clone().map(File::check).transpose()?;
        let against = present(arguments.against.iter().flat_map(|against| against.peers()));
        let all = [&Subject::Copy].into_iter().chain(&arguments.engine).chain(&against);
        let subjects = unique(all.copied());
        let shapes = shapes(&arguments);
        let mut asked: Steps = Vec::new();
        for busy in unique(arguments.busy_core.iter().copied()) {
            let is_busy = busy == 1;
            for size in &arguments.sizes.0 {
                let size = usize::try_from(size.0).unwrap_or(usize::MAX);
                for (number, &(depth, batch)) in shapes.iter().enumerate() {
                    let (subjects, budget, is_only_pending) =
                        (subjects.clone(), BUDGET_EACH, number > 0);
                    asked.push(Box::new(engine::Bench {
                        size,
                        depth,
                        batch,
                        is_only_pending,
                        subjects,
                        is_busy,
                        budget,
                    }));
                }
            }
            let (subjects, budget) = (subjects.clone(), BUDGET_EACH);
            asked.push(Box::new(Tail { subjects, is_busy, budget }));
        }
        let Arguments { budget, json, .. } = arguments;
        let steps = steps::evenly(asked, budget, BUDGET_EACH);
        Ok(Self { steps, budget, json, tuning, written: None })
    }
}

/// The peers of these that can be measured here. Reports the others.
fn present<'a>(peers: impl IntoIterator<Item = &'a Subject>) -> Vec<Subject> {
    let is_present = |peer: &&Subject| match Copier::open(**peer) {
        Ok(_) => true,
        Err(error) => {
            terminal::say(&format!("haul: {} is left out: {error}", peer.name()));
            false
        }
    };
    unique(peers.into_iter().copied()).iter().filter(is_present).copied().collect()
}

/// Each depth with each batch, as far as so many copies may be pending.
fn shapes(arguments: &Arguments) -> Vec<(usize, usize)> {
    let (depths, batches) = (unique(arguments.depth.clone()), unique(arguments.batch.clone()));
    let pairs = batches.iter().flat_map(|batch| depths.iter().map(|depth| (*depth, *batch)));
    let (fit, left_out): (Vec<_>, Vec<_>) =
        pairs.partition(|(depth, batch)| depth * batch <= engine::Bench::PENDING_MAX);
    for (depth, batch) in left_out {
        terminal::say(&format!(
            "haul: depth {depth} with batch {batch} is left out: more than {} copies would be pending",
            engine::Bench::PENDING_MAX
        ));
    }
    fit
}

/// Each value once, in order.
fn unique<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for value in values {
        if !unique.contains(&value) {
            unique.push(value);
        }
    }
    unique
}

impl Command for Bench {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let tuning = self.tuning.as_ref();
        Outputs {
            json: self.json,
            folder: tuning.map(File::records),
            files: tuning.map(|file| file.path.clone()).into_iter().collect(),
            ..Outputs::default()
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, self.budget, journal)?;
        add_break_even(journal)?;
        if let Some(file) = &self.tuning {
            let records: Vec<Record> = journal.records().cloned().collect();
            self.written = Some(file.write(&records)?);
        }
        Ok(())
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json {
            self.written.iter().for_each(|written| terminal::say(written));
            return Ok(());
        }
        let head = [
            "figure",
            ">size",
            ">depth",
            ">batch",
            ">busy",
            "engine",
            ">median",
            ">ratio to copy",
            ">floor",
        ];
        let mut table = Table::new(&head);
        for record in journal.records() {
            let count = |key| record.count(key).map_or_else(String::new, |count| count.to_string());
            let size = record.count(key::SIZE_BYTES);
            let caller = record.text(key::CALLER);
            let compared = |of: fn(&Comparison) -> f64| {
                record.comparison.as_ref().map_or_else(String::new, |it| three_digits(of(it)))
            };
            let figure = record.experiment.trim_start_matches(name::ENGINE).to_owned();
            table.add(vec![
                caller
                    .map_or_else(|| figure.clone(), |caller| format!("{figure}, caller {caller}")),
                size.map_or_else(String::new, |size| Bytes(size).to_string()),
                count(key::DEPTH),
                count(key::BATCH),
                count(key::BUSY_CORE),
                record.subject.clone(),
                record.median().map_or_else(String::new, |median| written(record, median)),
                compared(|it| it.ratio),
                compared(|it| it.floor),
            ]);
        }
        let written = self.written.iter().map(|written| format!("\n{written}"));
        terminal::print(&format!("{}{}", table.text(), written.collect::<String>()))
    }
}

/// Adds the sizes from which engines pay, as the measured records say.
///
/// # Errors
/// A record cannot be written.
pub(in crate::command) fn add_break_even(journal: &mut Journal) -> Result<(), Error> {
    let measured: Vec<Record> = journal.records().cloned().collect();
    let Some(last) = measured.last() else { return Ok(()) };
    for mut record in break_even(&measured) {
        record.stamp(&last.run, &this_machine().id, &last.time);
        journal.add(record);
    }
    journal.check()
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
