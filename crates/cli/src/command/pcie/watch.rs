//! `haul pcie watch`: a running DPDK program, live and recorded.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use haul::telemetry::Telemetry;
use haul_experiments::Error as Experiment;
use haul_experiments::pcie::records::Recorder;
use haul_experiments::pcie::source::{Tree, perf};
use haul_experiments::pcie::watch::{Interval, Settings, Watch as Watched};
use haul_machine::sys::Sys;
use haul_model::experiment::key;
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use super::{show_notes, view};
use crate::arguments::pcie::watch::Watch as Arguments;
use crate::arguments::users::Allowed;
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal;

/// Name of the record file in the folder of `--out`.
const RECORDS: &str = "watch.jsonl";
/// Name of the page in the same folder.
const PAGE: &str = "watch.html";
/// Longest time that a program may need for an answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between two checks for the end.
const NAP: Duration = Duration::from_millis(20);
/// Room for the records of a day, and their page.
const ROOM: haul_model::Bytes = haul_model::Bytes(64 << 20);

pub(super) struct Watch {
    arguments: Arguments,
    /// The number of the last view's lines that are on the terminal.
    lines: usize,
    recorder: Recorder,
    /// The program's version, once it is known.
    version: String,
}

impl Watch {
    /// # Errors
    ///
    /// None: the program is looked up when the command runs.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        Ok(Self { arguments, lines: 0, recorder: Recorder::default(), version: String::new() })
    }

    /// Watches until the time is over, a signal stops it, or the program ends.
    fn watch(&mut self) -> Result<(), Error> {
        let users = Allowed::users(&self.arguments.allow_user);
        let telemetry = Telemetry::find_for(&self.arguments.program(), &users, DEADLINE);
        let telemetry = telemetry.map_err(Experiment::from)?;
        if let Some(left) = telemetry.left_alone() {
            terminal::say(&format!("haul: note: {left}"));
        }
        let version = telemetry.version().to_owned();
        self.version.clone_from(&version);
        let name =
            format!("{version}, process {}, {}", telemetry.process(), telemetry.path().display());
        let settings = Settings {
            program: Arc::new(Mutex::new(Box::new(telemetry))),
            version: &version,
            devices: Sys::new().pcie_devices(),
            tree: Tree::at("/"),
            counters: Box::new(perf::Kernel),
            overrides: self.arguments.overrides(),
        };
        let mut watched = Watched::begin(settings)?;
        let begun = Instant::now();
        let end = self.arguments.time.map(|time| begun + time);
        let mut next = begun;
        loop {
            next += self.arguments.every;
            let until = end.map_or(next, |end| end.min(next));
            while Instant::now() < until && !STOP.load(Ordering::Relaxed) {
                thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
            }
            let interval = watched.interval()?;
            self.recorder.add(&interval);
            self.show(&interval, &name)?;
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            if is_over || STOP.load(Ordering::Relaxed) {
                break;
            }
            // After a delay, one interval begins now, instead of two intervals at the same time.
            next = next.max(Instant::now() - self.arguments.every);
        }
        Ok(watched.end()?)
    }

    fn show(&mut self, interval: &Interval, name: &str) -> Result<(), Error> {
        if self.arguments.json || !terminal::is_watched() {
            return Ok(());
        }
        let seconds = self.recorder.seconds();
        let head = match self.arguments.time {
            Some(time) => format!("{name}: {seconds:.0} s of {:.0} s", time.as_secs_f64()),
            None => format!("{name}: {seconds:.0} s, until Ctrl-C"),
        };
        let text = view::text(interval, &head, (terminal::width(), terminal::height()));
        terminal::print_over(&text, self.lines)?;
        self.lines = text.lines().count();
        Ok(())
    }

    fn folder(&self) -> Option<&PathBuf> {
        self.arguments.out.as_ref()
    }
}

impl Command for Watch {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let folder = self.folder().map(|folder| (folder.clone(), RECORDS.to_owned()));
        let room = if folder.is_some() { ROOM } else { haul_model::Bytes(0) };
        Outputs { json: self.arguments.json, folder, room, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        // Intervals from before the program's end are kept.
        let watched = self.watch();
        let records = self.recorder.records(&self.version, "haul pcie watch");
        let recorded = match records.is_empty() {
            true => Ok(()),
            false => record("pcie watch", records, journal),
        };
        watched.and(recorded)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if journal.records().next().is_none() {
            return Ok(());
        }
        if let Some(folder) = self.folder() {
            let page = folder.join(PAGE);
            let html = haul_report::html(journal.lines());
            haul_machine::file::write_atomically(&page, html.as_bytes())?;
            terminal::say(&format!("page: {} (records: {RECORDS})", page.display()));
        }
        if self.arguments.json || terminal::is_watched() {
            return Ok(());
        }
        // No terminal has shown the view, so its figures and notes are printed here.
        let findings = haul_report::findings(journal.lines());
        findings.iter().try_for_each(|finding| terminal::print(&finding.text))?;
        for estimate in estimates(journal) {
            terminal::print(&terminal::wrap(&estimate, terminal::width(), 2))?;
        }
        show_notes(&notes(journal), false)
    }

    fn lasts_until_stopped(&self) -> bool {
        self.arguments.time.is_none()
    }
}

/// The traffic of each port's packets across its link, a sentence each.
fn estimates(journal: &Journal) -> Vec<String> {
    let records: Vec<&Record> = journal.records().collect();
    let port = |record: &Record| record.count(key::PORT);
    let ports: BTreeSet<u64> = records.iter().filter_map(|record| port(record)).collect();
    let of = |number: u64| -> Vec<&Record> {
        records.iter().copied().filter(|record| port(record) == Some(number)).collect()
    };
    ports.into_iter().filter_map(|number| estimate(&of(number))).collect()
}

/// The sentence of one port, by the drivers' rules; `None` if there is no estimate of it.
fn estimate(port: &[&Record]) -> Option<String> {
    let sum = |metric: &str| {
        let is_it = |record: &&&Record| record.subject == "haul" && record.metric == metric;
        port.iter().find(is_it).copied()
    };
    let data = |metric: &str| Some(BytesPerSecond(sum(metric)?.median()?).to_string());
    let share = |metric: &str| {
        let record = sum(metric)?;
        let usable = record.number(key::USABLE_BYTES_PER_S)?;
        Some(three_digits(record.median()? / usable * 100.0))
    };
    let of = sum("to_host")?;
    let text = |name: &str| of.text(name);
    Some(format!(
        "Port {} ({}): by the estimate, {} with the rules of {} in mode {} reads {} of data, writes {} \
         and is written {}; {} is used {}% to the host and {}% to the device, headers included.",
        of.count(key::PORT)?,
        text(key::DEVICE)?,
        text(key::NIC)?,
        text(key::DRIVER_RULES)?,
        text(key::MODE)?,
        data("inbound_read")?,
        data("inbound_write")?,
        data("outbound_write")?,
        text(key::LINK)?,
        share("to_host")?,
        share("to_device")?
    ))
}

/// The notes on each port, once each.
fn notes(journal: &Journal) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for record in journal.records() {
        let text = |name: &str| record.text(name);
        if let (Some(device), Some(note)) = (text(key::DEVICE), text(key::NOTE)) {
            let note = format!("{device}: {note}");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}
