//! `haul survey`: every way to move bytes on this machine, measured, tuned, and told.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::stage::{OnFailure, Runner, total};
use super::{Command, channel, heap, plan, this_machine, tune};
use crate::arguments;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::STOP;
use crate::terminal;

const RECORDS: &str = "survey.jsonl";
const PAGE: &str = "report.html";
const TUNING: &str = "haul.toml";

/// Below this time tuning finds nothing; the deadline then costs the steps after it.
const TUNING_MIN: Duration = Duration::from_secs(3);

pub(super) struct Survey {
    quick: bool,
    out: PathBuf,
    json: bool,
    /// Whether this run has written haul.toml.
    is_tuned: bool,
}

impl Survey {
    pub(super) fn new(arguments: arguments::Survey) -> Self {
        let arguments::Survey { quick, out, json } = arguments;
        Self { quick, out, json, is_tuned: false }
    }
}

impl Command for Survey {
    fn outputs(&self) -> Outputs {
        Outputs {
            json: self.json,
            folder: Some((self.out.clone(), RECORDS.to_owned())),
            ..Outputs::default()
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let extent = plan::Machine::of(&machine);
        let mut before = plan::before_tuning(self.quick, &extent);
        let (heaps, driver) = (heap::installed(), heap::driver());
        before.extend(plan::heaps(self.quick, &extent, &heaps, &driver));
        let ways = channel::ways_of_this_system();
        before.extend(plan::channels(self.quick, &extent, &ways, &channel::driver()));
        let after = plan::after_tuning(self.quick, &extent);
        let mut tuning = plan::tuning(self.quick);
        let steps = before.len() + 1 + after.len();
        let time = total(&before) + tuning.budget + total(&after);
        let deadline = Instant::now() + plan::limit(self.quick);
        let mut runner = Runner::new(&machine, journal, steps, time)?.until(deadline);
        runner.stages(&before, OnFailure::GoOn)?;
        if !STOP.load(Ordering::Relaxed) {
            // What is left, less what comes after it: a busy machine tunes less, but still tunes.
            let left = deadline.saturating_duration_since(Instant::now());
            tuning.budget = tuning.budget.min(left.saturating_sub(total(&after)).max(TUNING_MIN));
            let tuned = tune::thresholds(&mut runner, &tuning, &self.out.join(TUNING), RECORDS);
            if let Some(tuned) = runner.go_on("thresholds", tuned)?.flatten() {
                // What follows is measured as it will be once haul.toml is in use.
                tuned.thresholds.install();
                self.is_tuned = true;
            }
        }
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
        if self.is_tuned {
            let tuning = self.out.join(TUNING);
            last.push(tune::how_to_activate(&tuning));
        }
        let findings = haul_report::findings(journal.lines());
        let mut lines: Vec<String> = haul_report::shortlist(findings, LINES_MAX - last.len())
            .into_iter()
            .map(|finding| match finding.action {
                Some(action) => format!("{} {action}", finding.text),
                None => finding.text,
            })
            .collect();
        lines.append(&mut last);
        lines.join("\n")
    }
}
