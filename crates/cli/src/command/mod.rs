//! One module per command, or one folder per part: what each reads, opens, measures and shows.
//!
//! From the bottom up:
//!
//! - `steps`: measures a list of experiments in sequence;
//! - `tuning`: what a `haul.toml` changes besides copies;
//! - `program`: a program that haul starts with a library preloaded;
//! - `shell`: `haul completions` and `haul man`;
//! - `doctor`: `haul doctor`;
//! - `report`: `haul report`;
//! - `compare`: `haul compare`;
//! - `copy`: `haul copy`;
//! - `heap`: `haul heap`;
//! - `engine`: `haul engine`;
//! - `channel`: `haul channel`;
//! - `forward`: `haul forward`;
//! - `pcie`: `haul pcie`;
//! - `sim`: `haul sim`;
//! - `field`: `haul field`;
//! - `survey`: `haul survey`.

mod channel;
mod compare;
mod copy;
mod doctor;
mod engine;
mod field;
mod forward;
mod heap;
mod pcie;
mod program;
mod report;
mod shell;
mod sim;
mod steps;
mod survey;
mod tuning;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use haul_experiments::context;
use haul_machine::sys::Sys;
use haul_model::{Machine, Record};

use crate::arguments::{Arguments, Verb};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;

/// A command whose arguments were checked and whose inputs were read.
pub(crate) trait Command {
    /// The outputs that are opened before the command runs.
    fn outputs(&self) -> Outputs;

    /// Measures, or looks up, and adds each line to the journal as soon as it is complete.
    ///
    /// # Errors
    /// The error that stopped the command; the lines added before it are valid.
    fn run(&mut self, journal: &mut Journal) -> Result<(), Error>;

    /// Shows the lines to a person, or writes the files that are made from them.
    ///
    /// # Errors
    /// Something could not be written.
    fn render(&self, journal: &Journal) -> Result<(), Error>;

    /// How the command reacts to a signal.
    fn stops(&self) -> Stops {
        Stops::AtOnce
    }

    /// Whether a signal is the command's normal end, because the command runs until a signal
    /// arrives.
    fn lasts_until_stopped(&self) -> bool {
        false
    }

    /// The message after an interrupted run: which records are kept, and where.
    fn kept(&self, journal: &Journal) -> String {
        journal.kept()
    }
}

/// The command that the arguments name.
///
/// # Errors
/// A name is unknown, an input cannot be read, or a value is beyond this machine's limits.
pub(crate) fn of(arguments: Arguments) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments.command {
        Verb::Doctor(arguments) => Box::new(doctor::Doctor::new(arguments)),
        Verb::Report(arguments) => Box::new(report::Report::read(arguments)?),
        Verb::Compare(arguments) => Box::new(compare::Compare::read(arguments)?),
        Verb::Completions(arguments) => Box::new(shell::Completions::new(arguments)),
        Verb::Man(arguments) => Box::new(shell::Manual::new(arguments)),
        Verb::Survey(arguments) => Box::new(survey::Survey::new(arguments)),
        Verb::Copy(arguments) => copy::of(arguments)?,
        Verb::Field(arguments) => field::of(*arguments)?,
        Verb::Heap(arguments) => heap::of(arguments)?,
        Verb::Forward(arguments) => forward::of(arguments)?,
        Verb::Pcie(arguments) => pcie::of(arguments)?,
        Verb::Sim(arguments) => sim::of(arguments)?,
        Verb::Engine(arguments) => engine::of(arguments)?,
        Verb::Channel(arguments) => channel::of(arguments)?,
    })
}

/// This machine, in its present state.
fn this_machine() -> Machine {
    Sys::new().machine()
}

/// Adds this machine to the journal, and then the records that one run of this name has just made
/// on it.
///
/// # Errors
/// A record cannot be written.
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

/// Refuses an output that would replace an input, such as records that cannot be measured again.
///
/// # Errors
/// An output is one of the inputs, possibly under another name.
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
