//! `haul heap map`: draws what a heap holds.

use std::path::PathBuf;
use std::time::Duration;

use haul_experiments::heap::{Trace, map_shared, map_trace, operations_until};
use haul_model::Line;
use haul_model::experiment::name;
use haul_model::shell::quoted;

use super::picture;
use super::replay::{part_option, read};
use crate::arguments::heap::{At, Map as Arguments};
use crate::command::report::read_lines;
use crate::command::steps::Runner;
use crate::command::{Command, this_machine};
use crate::error::{Error, InputError};
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Time for a picture: enough to inspect a heap of some GiB.
const BUDGET: Duration = Duration::from_secs(1);

pub(super) struct Map {
    source: Source,
    rerun: String,
    json: bool,
}

enum Source {
    Shared(String),
    Trace(Box<Trace>, usize),
    Records(Vec<Line>),
}

impl Map {
    /// Reads the trace, or the records.
    ///
    /// # Errors
    /// The file cannot be read, or has the wrong content.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let rerun = rerun(&arguments);
        let source = match (arguments.name, arguments.trace, arguments.records) {
            (Some(name), ..) => Source::Shared(name),
            (_, Some(path), _) => {
                let trace = read(&path, &arguments.reading)?;
                let operations = operations(&trace, arguments.at);
                Source::Trace(Box::new(trace), operations)
            }
            (.., path) => Source::Records(map_records(path.unwrap_or_default())?),
        };
        Ok(Self { source, rerun, json: arguments.json })
    }
}

impl Command for Map {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        if let Source::Records(lines) = &self.source {
            lines.iter().for_each(|line| journal.add(line.clone()));
            return journal.check();
        }
        let machine = this_machine();
        let mut runner = Runner::new(&machine, journal, 1, BUDGET)?;
        runner.step("what the heap holds", BUDGET, |context| match &self.source {
            Source::Shared(name) => map_shared(name, &self.rerun, context),
            Source::Trace(trace, operations) => map_trace(trace, *operations, &self.rerun, context),
            Source::Records(_) => Ok(()),
        })
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let text = picture::text(journal.records(), terminal::width(), terminal::is_coloured());
        if text.is_empty() { Ok(()) } else { terminal::print(&text) }
    }
}

/// The lines of a file, which must hold a map.
fn map_records(path: PathBuf) -> Result<Vec<Line>, Error> {
    let lines = read_lines(&path)?;
    let is_map =
        |line: &Line| matches!(line, Line::Record(record) if record.experiment == name::HEAP_MAP);
    if lines.iter().any(is_map) {
        return Ok(lines);
    }
    Err(InputError::NoMap { name: path.display().to_string() }.into())
}

fn operations(trace: &Trace, at: At) -> usize {
    match at {
        At::Time(time) => {
            operations_until(trace, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        }
        At::Share(share) => (trace.history.operations.len() as f64 * share).round() as usize,
    }
}

/// The command that repeats the map. A trace is named without its folder, which is specific to this
/// machine.
fn rerun(arguments: &Arguments) -> String {
    let name =
        |path: &PathBuf| quoted(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy());
    let source = match (&arguments.name, &arguments.trace) {
        (Some(heap), _) => format!("--name {}", quoted(heap)),
        (_, Some(path)) => {
            let at = match arguments.at {
                At::Time(time) => format!("{}s", time.as_secs_f64()),
                At::Share(share) => format!("{}%", share * 100.0),
            };
            format!("--trace {} --at {at}{}", name(path), part_option(&arguments.reading))
        }
        _ => String::new(),
    };
    format!("haul heap map {source} --json")
}
