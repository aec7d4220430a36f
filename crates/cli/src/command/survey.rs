//! `haul survey`: every way to move bytes on this machine, measured, tuned, and told.

use std::path::{Path, PathBuf};

use haul::sys::Sys;
use haul_measure::Caches;

use super::stage::{OnFailure, Runner, total};
use super::{Command, plan, this_machine};
use crate::arguments;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

const RECORDS: &str = "survey.jsonl";
const PAGE: &str = "report.html";

pub(super) struct Survey {
    quick: bool,
    out: PathBuf,
    json: bool,
}

impl Survey {
    pub(super) fn new(arguments: arguments::Survey) -> Self {
        let arguments::Survey { quick, out, json } = arguments;
        Self { quick, out, json }
    }
}

impl Command for Survey {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, folder: Some((self.out.clone(), RECORDS)), ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let extent = plan::Machine {
            caches: Caches::from_sizes(&machine.caches_bytes),
            processors: machine.processors,
            available_bytes: Sys::new().memory().available_bytes,
        };
        let before = plan::before_tuning(self.quick, &extent);
        let after = plan::after_tuning(self.quick, &extent);
        let steps = before.len() + after.len();
        let time = total(&before) + total(&after);
        let mut runner = Runner::new(&machine, journal, steps, time)?;
        runner.stages(&before, OnFailure::GoOn)?;
        runner.stages(&after, OnFailure::GoOn)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if journal.records().next().is_none() {
            return Ok(());
        }
        let page = self.out.join(PAGE);
        haul::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
        let text = self.summary(journal, &page);
        if self.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }
}

impl Survey {
    /// At most ten lines that a person can act on.
    fn summary(&self, journal: &Journal, page: &Path) -> String {
        const LINES_MAX: usize = 10;
        let mut last = vec![format!("page: {} (records: {RECORDS})", page.display())];
        let findings = haul_report::findings(journal.lines());
        let mut lines: Vec<String> = findings
            .into_iter()
            .take(LINES_MAX - last.len())
            .map(|finding| match finding.action {
                Some(action) => format!("{} {action}", finding.text),
                None => finding.text,
            })
            .collect();
        lines.append(&mut last);
        lines.join("\n")
    }
}
