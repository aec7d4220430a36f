//! `haul heap replay`: a recorded history on haul's heap and on others.

use haul_experiments::heap::{self, Part, Trace};
use haul_model::shell::quoted;

use super::bench::{driver, present};
use super::course;
use crate::arguments::heap::{Reading, Replay as Arguments};
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::summary::Printing;
use crate::terminal;

/// Seed of the drawn orders.
const SEED: u64 = 1;

pub(super) struct Replay {
    steps: Steps,
    json: bool,
    printing: Printing,
}

impl Replay {
    /// Reads the trace, and looks for every peer's library.
    ///
    /// # Errors
    /// The trace cannot be read, is not a trace, or is too long.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let rerun = rerun(&arguments);
        let trace = read(&arguments.trace, &arguments.reading)?;
        let replay = heap::Replay {
            trace,
            is_merged: arguments.merged,
            heaps: present(&arguments.against),
            driver: driver(),
            budget: arguments.budget,
            seed: SEED,
            rerun,
        };
        let Arguments { json, printing, .. } = arguments;
        Ok(Self { steps: vec![Box::new(replay)], json, printing })
    }
}

impl Command for Replay {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let files = self.printing.export_markdown.iter().cloned().collect();
        Outputs { json: self.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, None, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        if let Some(path) = &self.printing.export_markdown {
            let records: Vec<_> = journal.records().collect();
            haul_machine::file::write_atomically(
                path,
                course::figures(&records).markdown(self.printing.sort).as_bytes(),
            )?;
        }
        let text = course::text(journal.records(), self.printing.sort);
        if text.is_empty() { Ok(()) } else { terminal::print(&text) }
    }
}

/// Reads a trace as the arguments require.
///
/// # Errors
/// The trace cannot be read, is not a trace, or is too long.
pub(super) fn read(path: &std::path::Path, reading: &Reading) -> Result<Trace, Error> {
    let limit = usize::try_from(reading.operations).unwrap_or(usize::MAX);
    Ok(Trace::read(path, limit, reading.part)?)
}

/// The `--part` option for the command that repeats the measurement.
pub(super) fn part_option(reading: &Reading) -> &'static str {
    match reading.part {
        Part::All => "",
        Part::Malloc => " --part malloc",
        Part::Rte => " --part rte",
    }
}

/// The command that repeats the measurement. The trace is named without its folder, which is
/// specific to this machine.
fn rerun(arguments: &Arguments) -> String {
    let name = arguments.trace.file_name().unwrap_or(arguments.trace.as_os_str());
    let peers: Vec<&str> = arguments.against.iter().map(|peer| peer.name()).collect();
    let merged = if arguments.merged { " --merged" } else { "" };
    format!(
        "haul heap replay {} --against {}{merged}{} --json",
        quoted(&name.to_string_lossy()),
        peers.join(","),
        part_option(&arguments.reading),
    )
}
