//! The test of `haul field`: from its arguments to its verdict.

use std::ffi::OsString;
use std::path::PathBuf;

use haul_experiments::field::{self, Change, Field, Load};
use haul_model::experiment::name;
use haul_model::shell::quoted;
use haul_model::{Bytes, Record, Verdict};

use crate::arguments::field::{Exported, FailOn, Test as Arguments};
use crate::command::Command;
use crate::command::program::{self, Closed};
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// Names of the files in a folder for results.
const RECORDS: &str = "field.jsonl";
const PAGE: &str = "report.html";

/// Size of a page and its records together.
const ROOM: Bytes = Bytes(2 << 20);

/// Runs of each side: of a test of fixed length, and the most of one that ends once it is decided.
const RUNS: u16 = 15;
const RUNS_MOST: u16 = 60;

/// The library of the change `copy`, and the package that builds it.
const COPY: (&str, &str) = ("libhaul_copy.so", "haul-copy-preload");

pub(super) struct Test {
    steps: Steps,
    out: Option<PathBuf>,
    json: bool,
    export: Option<Exported>,
    fail_on: Vec<FailOn>,
}

impl Test {
    /// Reads the commands, and checks the changes on them.
    ///
    /// # Errors
    /// A command or a change is not possible.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let rerun = rerun(std::env::args_os().skip(1));
        let words = match &arguments.server {
            Some(server) => words("--server", server)?,
            None => arguments.program,
        };
        let command = field::Command::new(words);
        let changes = arguments.change.into_iter().map(|change| prepared(change, &command));
        let changes = changes.collect::<Result<Vec<Change>, Error>>()?;
        command.changed(&changes).map_err(|reason| {
            let attempt = format!("--change {}", quoted_changes(&changes));
            Error::Setting { attempt, reason }
        })?;
        let load = match (arguments.ready, &arguments.load) {
            (Some(ready), Some(load)) => {
                Some(Load { ready, command: field::Command::new(words_of_load(load)?) })
            }
            _ => None,
        };
        let runs = if arguments.until_decided { RUNS_MOST } else { RUNS };
        let test = Field {
            command,
            load,
            changes,
            metric: arguments.metric,
            is_higher_better: arguments.higher_is_better,
            rounds: arguments.runs.unwrap_or(runs).into(),
            is_until_decided: arguments.until_decided,
            budget: arguments.budget,
            matters: arguments.matters / 100.0,
            timeout: arguments.timeout,
            is_failure_allowed: arguments.allow_failure,
            driver: steps::this_program(["field", "drive"]),
            rerun,
            seed: 1,
        };
        Ok(Self {
            steps: vec![Box::new(test)],
            out: arguments.out,
            json: arguments.json,
            export: arguments.export,
            fail_on: arguments.fail_on,
        })
    }

    /// Fails if `--fail-on` names the verdict.
    fn judge(&self, record: &Record, sentence: &str) -> Result<(), Error> {
        let Some(verdict) = haul_report::field::verdict(record) else { return Ok(()) };
        let is_named = self.fail_on.iter().any(|on| match on {
            FailOn::Slower => verdict == Verdict::More,
            FailOn::Changed => matches!(verdict, Verdict::More | Verdict::Less),
            FailOn::CannotTell => verdict == Verdict::CannotTell,
        });
        match is_named {
            true => Err(Error::FieldVerdict { sentence: sentence.to_owned() }),
            false => Ok(()),
        }
    }
}

impl Command for Test {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let folder = self.out.clone().map(|folder| (folder, RECORDS.to_owned()));
        Outputs { json: self.json, folder, room: ROOM, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, None, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let tests = || journal.records().filter(|it| it.experiment == name::FIELD_VERDICT);
        let Some(record) = tests().last() else { return Ok(()) };
        let sentence = haul_report::field::sentence(record).unwrap_or_default();
        let copies = haul_report::field::copies(record);
        let mut text = [sentence.clone()].into_iter().chain(copies).collect::<Vec<_>>().join("\n");
        if let Some(folder) = &self.out {
            let page = folder.join(PAGE);
            let html = haul_report::html(journal.lines());
            haul_machine::file::write_atomically(&page, html.as_bytes())?;
            text.push_str(&format!("\npage: {} (records: {RECORDS})", page.display()));
        }
        match self.export {
            Some(export) => {
                terminal::say(&text);
                let exported = haul_report::export(tests(), export.format());
                terminal::print(exported.trim_end())?;
            }
            None if self.json => terminal::say(&text),
            None => terminal::print(&text)?,
        }
        self.judge(record, &sentence)
    }
}

/// The words of a command that is one argument.
fn words(option: &str, text: &str) -> Result<Vec<OsString>, Error> {
    let attempt = || format!("{option} {}", quoted(text));
    field::words(text).map_err(|reason| Error::Setting { attempt: attempt(), reason })
}

fn words_of_load(text: &str) -> Result<Vec<OsString>, Error> {
    words("--load", text)
}

/// The change with the path of its library, which must be one that the program will load.
///
/// # Errors
/// There is no such library, or the program ignores preloaded libraries.
fn prepared(change: Change, command: &field::Command) -> Result<Change, Error> {
    let attempt = format!("--change {change}");
    let path = match &change {
        Change::Copy(_) => program::library(COPY.0, COPY.1)?,
        // The program may run in another folder.
        Change::Preload(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
        _ => return Ok(change),
    };
    let refuse = |reason: String| Err(Error::Setting { attempt: attempt.clone(), reason });
    if let Some(fault) = program::library_fault(&path) {
        return refuse(format!("{}: {fault}", path.display()));
    }
    match command.words.first().and_then(|program| program::closed(program)) {
        Some(Closed::Static) => refuse(
            "the program is linked statically, so that it loads no library; link it dynamically"
                .into(),
        ),
        Some(Closed::SetUserId) => refuse(
            "the program is set-user-id, so that the dynamic linker ignores LD_PRELOAD; run a copy \
             without that bit"
                .into(),
        ),
        None => Ok(change.with_library(path)),
    }
}

fn quoted_changes(changes: &[Change]) -> String {
    let quoted = changes.iter().map(|change| quoted(&change.to_string()));
    quoted.collect::<Vec<_>>().join(" --change ")
}

/// The command line of this test, with which it can be repeated.
fn rerun(arguments: impl Iterator<Item = OsString>) -> String {
    let words = arguments.map(|word| quoted(&word.to_string_lossy()));
    ["haul".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}
