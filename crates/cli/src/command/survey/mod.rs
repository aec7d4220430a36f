//! `haul survey`: measures and tunes every mechanism for moving bytes on this machine, and reports.
//!
//! `plan` contains the steps, their order and their times.

mod plan;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_experiments::Experiment;
use haul_machine::sys::Sys;
use haul_measure::Caches;
use haul_model::Bytes;

use self::plan::{Plan, Resources};
use super::steps::{OnFailure, Runner};
use super::tuning::{Tables, what_next};
use super::{Command, channel, copy, engine, forward, heap, this_machine};
use crate::arguments;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal::{self, Table};

const RECORDS: &str = "survey.jsonl";
const PAGE: &str = "report.html";
const TUNING: &str = "haul.toml";

/// Size of a full survey's page (4 MB) and records (3 MB) together.
const ROOM: Bytes = Bytes(8 << 20);

pub(super) struct Survey {
    quick: bool,
    out: PathBuf,
    json: bool,
    /// Whether to print the plan and measure nothing.
    is_plan: bool,
    /// Whether this run has found a policy that beats the defaults.
    is_tuned: bool,
    /// What the haul.toml that this run wrote changes besides copies; `None` if it wrote none.
    written: Option<Tables>,
}

impl Survey {
    pub(super) fn new(arguments: arguments::Survey) -> Self {
        let arguments::Survey { quick, out, json, plan } = arguments;
        Self { quick, out, json, is_plan: plan, is_tuned: false, written: None }
    }
}

impl Command for Survey {
    fn stops(&self) -> Stops {
        if self.is_plan { Stops::AtOnce } else { Stops::WithWhatThereIs }
    }

    fn outputs(&self) -> Outputs {
        Outputs {
            json: self.json && !self.is_plan,
            folder: (!self.is_plan).then(|| (self.out.clone(), RECORDS.to_owned())),
            room: ROOM,
            ..Outputs::default()
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let resources = Resources::of(&machine);
        let mut plan = self.plan(&resources);
        warn_of_limits(machine.processors);
        if self.is_plan {
            return terminal::print(&self.shown(&plan, &resources.caches).text());
        }
        let deadline = Instant::now() + plan::limit(self.quick);
        let time = plan.time(&resources.caches);
        let runner = Runner::new(&machine, journal, plan.steps().count(), time.whole())?;
        let mut runner = runner.until(deadline, time);
        runner.steps(&mut plan.before, OnFailure::GoOn)?;
        let tuning = &mut plan.tuning;
        let is_stopped = STOP.load(Ordering::Relaxed);
        if let Some(budget) = (!is_stopped).then(|| runner.allot(tuning)).flatten() {
            tuning.budget = budget;
            let path = self.out.join(TUNING);
            let tuned = copy::policy(&mut runner, tuning, &path, RECORDS);
            if let Some(written) = runner.go_on(&tuning.name(), tuned)?.flatten() {
                // Later steps are measured as they will be once haul.toml is in use.
                written.tuned.policy.install();
                self.is_tuned = written.tuned.is_any_kept();
                self.written = Some(written.tables);
            }
        }
        if !self.is_tuned {
            plan.after = plan::after_tuning(self.quick, &resources, false);
        }
        runner.steps(&mut plan.after, OnFailure::GoOn)?;
        engine::add_break_even(journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if journal.records().next().is_none() {
            return Ok(());
        }
        let page = self.out.join(PAGE);
        haul_machine::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
        let text = self.summary(journal, &page);
        if self.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }

    fn kept(&self, journal: &Journal) -> String {
        match self.is_tuned {
            true => journal.kept(),
            false => format!("{}; no {TUNING} was written", journal.kept()),
        }
    }
}

/// Warns once of what this machine lacks, or what this process may not use.
fn warn_of_limits(processors: usize) {
    if processors < 2 {
        terminal::say(
            "haul: warning: transfers between processes are left out: this process may run on one \
             processor, and each end needs its own; allow it two (taskset, or the container's \
             cpuset)",
        );
    }
    let not_mounted = Sys::new().not_mounted();
    if !not_mounted.is_empty() {
        terminal::say(&format!(
            "haul: warning: not mounted here: {}: caches, topology and disturbances are only partly \
             known, but all is measured; mount them to know the rest",
            not_mounted.join(" ")
        ));
    }
}

impl Survey {
    fn plan(&self, resources: &Resources) -> Plan {
        let (heaps, heap_driver) = (heap::installed(), heap::driver());
        let (transports, end_driver) = (channel::transports_of_this_system(), channel::driver());
        let ends = (transports.as_slice(), &end_driver);
        let forward = forward::driver();
        Plan::new(self.quick, resources, (&heaps, &heap_driver), ends, &forward)
    }

    /// The plan, and its total compared with the command's time limit.
    fn shown(&self, plan: &Plan, caches: &Caches) -> Table {
        let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
        let mut table = Table::new(&["step", ">rounds s", ">beside s"]);
        for step in plan.steps() {
            let time = step.time(caches);
            table.add(vec![step.name(), seconds(time.rounds), seconds(time.overhead)]);
        }
        let (count, time) = (plan.steps().count(), plan.time(caches));
        table.add(Vec::new());
        table.add(vec![format!("{count} steps"), seconds(time.rounds), seconds(time.overhead)]);
        let (all, limit) = (seconds(time.whole()), seconds(plan::limit(self.quick)));
        table.add(vec![format!("all of it, within {limit} s"), all]);
        table
    }

    /// At most ten lines with actions for a person.
    fn summary(&self, journal: &Journal, page: &Path) -> String {
        const LINES_MAX: usize = 10;
        let mut last = vec![format!("page: {} (records: {RECORDS})", page.display())];
        if let Some(tables) = self.written {
            let tuning = self.out.join(TUNING);
            last.push(what_next(&tuning, self.is_tuned, tables));
        } else if journal.earlier().is_some() && self.out.join(TUNING).exists() {
            last.push(format!(
                "{TUNING} is from an earlier survey, whose records are kept as {RECORDS}.old, .old.2 and so on."
            ));
        }
        let verdicts = haul_report::verdicts(journal.lines());
        let mut lines: Vec<String> = verdicts
            .into_iter()
            .take(LINES_MAX - last.len())
            .map(|verdict| match verdict.action.as_str() {
                "" | "nothing" => format!("{}: {}.", verdict.question, verdict.text),
                action => format!("{}: {}. Do: {action}", verdict.question, verdict.text),
            })
            .collect();
        lines.append(&mut last);
        lines.join("\n")
    }
}
