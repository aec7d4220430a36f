//! One module a command, or a folder a part: what it reads, opens, measures and shows.
//!
//! From the bottom up:
//!
//! - `steps`: what measures a list of experiments one after the other;
//! - `shell`: `haul completions` and `haul man`;
//! - `doctor`: `haul doctor`;
//! - `report`: `haul report`;
//! - `compare`: `haul compare`;
//! - `copy`: `haul copy`;
//! - `heap`: `haul heap`;
//! - `channel`: `haul channel`;
//! - `forward`: `haul forward`;
//! - `pcie`: `haul pcie`;
//! - `sim`: `haul sim`;
//! - `survey`: `haul survey`.

mod channel;
mod compare;
mod copy;
mod doctor;
mod forward;
mod heap;
mod pcie;
mod report;
mod shell;
mod sim;
mod steps;
mod survey;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use haul::sys::Sys;
use haul_experiments::context;
use haul_model::{Machine, Record};

use crate::arguments::{Arguments, Verb};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;

/// A command whose arguments were checked and whose inputs were read.
pub(crate) trait Command {
    /// What is opened before it runs.
    fn outputs(&self) -> Outputs;

    /// Measures, or looks up, and adds each line to the journal as it is complete.
    ///
    /// # Errors
    /// What stopped it; the lines added before that hold.
    fn run(&mut self, journal: &mut Journal) -> Result<(), Error>;

    /// Shows the lines to a person, or writes the files that are made of them.
    ///
    /// # Errors
    /// Something could not be written.
    fn render(&self, journal: &Journal) -> Result<(), Error>;

    /// What a signal does to it.
    fn stops(&self) -> Stops {
        Stops::AtOnce
    }

    /// Whether a signal is its normal end: it would go on without one.
    fn lasts_until_stopped(&self) -> bool {
        false
    }

    /// What is said of a run that a signal cut short: what of it is kept, and where.
    fn kept(&self, journal: &Journal) -> String {
        journal.kept()
    }
}

/// The command that the arguments ask for.
///
/// # Errors
/// A name is not known, an input cannot be read, or a value is beyond what this machine has.
pub(crate) fn of(arguments: Arguments) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments.command {
        Verb::Doctor(arguments) => Box::new(doctor::Doctor::new(arguments)),
        Verb::Report(arguments) => Box::new(report::Report::read(arguments)?),
        Verb::Compare(arguments) => Box::new(compare::Compare::read(arguments)?),
        Verb::Completions(arguments) => Box::new(shell::Completions::new(arguments)),
        Verb::Man(arguments) => Box::new(shell::Manual::new(arguments)),
        Verb::Survey(arguments) => Box::new(survey::Survey::new(arguments)),
        Verb::Copy(arguments) => copy::of(arguments)?,
        Verb::Heap(arguments) => heap::of(arguments)?,
        Verb::Forward(arguments) => forward::of(arguments)?,
        Verb::Pcie(arguments) => pcie::of(arguments)?,
        Verb::Sim(arguments) => sim::of(arguments)?,
        Verb::Channel(arguments) => channel::of(arguments)?,
    })
}

/// This machine, as it is now.
fn this_machine() -> Machine {
    Sys::new().machine()
}

/// Writes this machine, and records as made on it just now by one run of this name.
///
/// # Errors
/// They cannot be written.
fn record(
    run: &str,
    records: impl IntoIterator<Item = Record>,
    journal: &mut Journal,
) -> Result<(), Error> {
    let (machine, time) = (this_machine(), context::now());
    let (run, id) = (format!("{run} {time}"), machine.id.clone());
    journal.add(machine);
    for mut record in records {
        record.stamp(&run, &id, &time);
        journal.add(record);
    }
    journal.check()
}

/// Nothing that is written replaces what it is made of, such as records that cannot be measured
/// again.
///
/// # Errors
/// An output is one of the inputs, by whatever name.
fn refuse_replacing<'a>(
    inputs: &[PathBuf],
    outputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    let identity = |path: &PathBuf| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    let read: Vec<_> = inputs.iter().filter_map(identity).collect();
    let replaced =
        outputs.into_iter().find(|path| identity(path).is_some_and(|it| read.contains(&it)));
    replaced.map_or(Ok(()), |path| Err(Error::Replaced { path: path.clone() }))
}
