//! `haul channel bench`: transfers side by side with the peers' transfers.

use std::time::Duration;

use haul::channel::Mechanism;
use haul_experiments::Experiment;
use haul_experiments::channel::transport::{ANNOUNCED, BY_ENGINE, ENGINE, INTEGRITY, UNTRUSTED};
use haul_experiments::channel::{self, Launch, Peer, Subject, Target, baseline_first, can_move};
use haul_machine::sys::Sys;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Nanos, Record};

use crate::arguments::channel::{Asked, Bench as Arguments};
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::summary::{Comparisons, Measured, Printing};
use crate::terminal;

/// Time for a measurement without --budget.
const BUDGET_EACH: Duration = Duration::from_secs(3);

/// Size of the 2014 memcpy against vmsplice experiment: `dd bs=1M count=1000`.
const EXPERIMENT_2014_BYTES: u64 = 1000 << 20;

/// The peers with --experiment-2014, in addition to haul's choice: the mechanisms of the
/// experiment, and two that the experiment did not have.
const BESIDE_2014: [Peer; 3] = [Peer::Experiment2014, Peer::Memcpy, Peer::Pipe];
const MYMEMCPY: &str = "2014:mymemcpy";

pub(super) struct Bench {
    steps: Steps,
    budget: Option<Duration>,
    json: bool,
    left_out: Vec<String>,
    printing: Printing,
}

impl Bench {
    /// Resolves every name, looks for every peer, and lists the steps.
    ///
    /// # Errors
    /// A mechanism does not work here, or not for any of these sizes.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let is_2014 = arguments.experiment_2014;
        let against = if is_2014 { BESIDE_2014.to_vec() } else { arguments.against.clone() };
        let sizes =
            if is_2014 { vec![Bytes(EXPERIMENT_2014_BYTES)] } else { arguments.sizes.0.clone() };
        let targets = unique(&arguments.target);
        let mut subjects = mechanisms(&arguments.mechanism, &sizes, &targets)?;
        add_engines(&mut subjects, &arguments.engine)?;
        let (others, left_out) = present(&against);
        subjects.extend(others);
        if is_2014 {
            subjects.push(Subject { name: MYMEMCPY.to_owned(), found: None });
        }
        let subjects = baseline_first(subjects);
        warn_of_warm_only(&subjects, &sizes, &targets);
        let mut asked: Steps = Vec::new();
        for &busy in &unique(&arguments.busy_core) {
            for &target in &targets {
                for size in &sizes {
                    asked.push(step(
                        size.0,
                        target,
                        busy == 1,
                        &subjects,
                        &left_out,
                        arguments.tries,
                    )?);
                }
            }
        }
        let steps = steps::evenly(asked, arguments.budget, BUDGET_EACH);
        let Arguments { budget, json, printing, .. } = arguments;
        Ok(Self { steps, budget, json, left_out, printing })
    }
}

impl Command for Bench {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let files = self.printing.export_markdown.iter().cloned().collect();
        Outputs { json: self.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, self.budget, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let table = figures(journal.records());
        if self.json || table.is_empty() {
            return Ok(());
        }
        let left_out = match self.left_out.as_slice() {
            [] => String::new(),
            names => format!("\n{} left out: {}\n", names.len(), names.join(", ")),
        };
        let note = "\nGB/s: 10^9 bytes per second, from A's start to the later end of the two sides; s/GB: processor \
             time of both sides;\nlatency: half a round trip; ratio: time per byte over the baseline's, below 1 is \
             faster; floor: how far\nthe baseline differed from itself in the same run.";
        table.print(&self.printing, &(left_out + note))
    }
}

/// The command that drives one end.
pub(in crate::command) fn driver() -> Launch {
    Launch { program: steps::this_program(["channel", "drive"]), starts_both: false }
}

/// The transports that every system has: haul's mechanisms, a pipe, a Unix socket, and one copy for
/// scale.
pub(in crate::command) fn transports_of_this_system() -> Vec<Subject> {
    let (others, _) = present(&[Peer::Pipe, Peer::Unix, Peer::Memcpy]);
    baseline_first(of_haul().chain(others).collect())
}

/// haul's choice, without and with a checksum, and every mechanism that works here.
fn of_haul() -> impl Iterator<Item = Subject> {
    let permissions = Sys::new().permissions();
    let works = move |mechanism: &Mechanism| permissions.obstacle(*mechanism).is_none();
    let names = Mechanism::ALL.into_iter().filter(works).map(name_of);
    let choice = ["haul:auto".to_owned(), format!("haul:auto{INTEGRITY}")];
    let names = choice.into_iter().chain(names);
    names.map(|name| Subject { name, found: None })
}

/// Messages built in place between ends that do not trust each other: without and with an
/// announcement of the pages that the receiver will write to.
fn without_trust() -> [Subject; 2] {
    let sealed = name_of(Mechanism::Sealed);
    [UNTRUSTED, ANNOUNCED].map(|how| Subject { name: format!("{sealed}{how}"), found: None })
}

/// Each value once, in order.
fn unique<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for &value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

fn step(
    size: u64,
    target: Target,
    is_busy: bool,
    subjects: &[Subject],
    left_out: &[String],
    tries: u32,
) -> Result<Box<dyn Experiment>, Error> {
    const OPTION: &str = "--sizes";
    if size == 0 {
        return Err(Error::NoSize { option: OPTION });
    }
    let limit = Bytes(isize::MAX as u64);
    let too_large = Error::Size { asked: Bytes(size), limit, option: OPTION };
    Ok(Box::new(channel::Bench {
        size: isize::try_from(size).map_err(|_| too_large)?.unsigned_abs(),
        target,
        is_busy,
        subjects: subjects.to_vec(),
        driver: driver(),
        left_out: left_out.to_vec(),
        budget: BUDGET_EACH,
        tries,
        seed: 1,
    }))
}

/// haul's subjects.
///
/// # Errors
/// A named mechanism does not work here, or not for any of these sizes.
fn mechanisms(asked: &[Asked], sizes: &[Bytes], targets: &[Target]) -> Result<Vec<Subject>, Error> {
    let mut subjects: Vec<Subject> = Vec::new();
    for &asked in asked {
        match asked {
            Asked::All => subjects.extend(of_haul().chain(without_trust())),
            Asked::Auto => subjects.push(Subject { name: "haul:auto".to_owned(), found: None }),
            Asked::One(mechanism) => {
                subjects.push(one(mechanism, sizes, targets)?);
                if mechanism == Mechanism::Sealed {
                    subjects.extend(without_trust());
                }
            }
        }
    }
    let mut known = Vec::new();
    subjects.retain(|subject| {
        let is_new = !known.contains(&subject.name);
        known.push(subject.name.clone());
        is_new
    });
    Ok(subjects)
}

/// Adds the subjects for which an engine can copy, with each of these engines.
///
/// # Errors
/// Engines are named, and no mechanism for which they can copy.
fn add_engines(subjects: &mut Vec<Subject>, engines: &[String]) -> Result<(), Error> {
    let names = subjects.iter().map(|subject| subject.name.clone());
    let names: Vec<String> = names.filter(|name| BY_ENGINE.contains(&name.as_str())).collect();
    if let (Some(engine), true) = (engines.first(), names.is_empty()) {
        return Err(Error::Mechanism {
            name: "--engine",
            reason: format!("{engine} copies only for the mechanisms auto, ring and lease"),
            remedy: "add one of them to --mechanism",
        });
    }
    for engine in engines {
        let with = names.iter().map(|name| format!("{name}{ENGINE}{engine}"));
        subjects.extend(with.map(|name| Subject { name, found: None }));
    }
    Ok(())
}

fn one(mechanism: Mechanism, sizes: &[Bytes], targets: &[Target]) -> Result<Subject, Error> {
    let refused =
        |reason: String, remedy| Error::Mechanism { name: mechanism.name(), reason, remedy };
    if let Some(reason) = Sys::new().permissions().obstacle(mechanism) {
        return Err(refused(reason.to_owned(), "see haul channel list"));
    }
    let name = name_of(mechanism);
    let fits = |size: &Bytes| targets.iter().any(|&target| moves(&name, *size, target));
    if !sizes.iter().any(fits) {
        let to: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let reason =
            format!("it moves no message of {} to a {} target", listed(sizes), to.join(" or "));
        return Err(refused(reason, "name another --sizes, --target or --mechanism"));
    }
    Ok(Subject { name, found: None })
}

fn moves(name: &str, size: Bytes, target: Target) -> bool {
    usize::try_from(size.0).is_ok_and(|size| can_move(name, size, target))
}

/// Warns about the subjects that are measured only with warm targets.
fn warn_of_warm_only(subjects: &[Subject], sizes: &[Bytes], targets: &[Target]) {
    let is_warm_only = |subject: &&Subject| {
        let to = |target| sizes.iter().any(|&size| moves(&subject.name, size, target));
        to(Target::Warm) && !to(Target::Cold)
    };
    let names: Vec<&str> =
        subjects.iter().filter(is_warm_only).map(|subject| subject.name.as_str()).collect();
    if targets.contains(&Target::Cold) && !names.is_empty() {
        terminal::say(&format!(
            "haul: cold targets are measured without {}: messages by it stay in its own memory, never in the \
             target",
            names.join(", ")
        ));
    }
}

fn name_of(mechanism: Mechanism) -> String {
    format!("haul:{mechanism}")
}

fn listed(sizes: &[Bytes]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The subjects of the installed peers, and the names of the missing peers, with a warning for
/// each.
fn present(against: &[Peer]) -> (Vec<Subject>, Vec<String>) {
    let (mut subjects, mut left_out) = (Vec::new(), Vec::new());
    for &peer in &unique(against) {
        match peer.find() {
            Ok(found) => {
                for name in peer.subjects() {
                    let found = found.launch.is_some().then(|| found.clone());
                    subjects.push(Subject { name: (*name).to_owned(), found });
                }
            }
            Err(error) => {
                terminal::say(&format!("haul: warning: {error}"));
                left_out.push(peer.name().to_owned());
            }
        }
    }
    (subjects, left_out)
}

/// A row for each subject of each measurement; a blank line separates the measurements.
fn figures<'a>(records: impl Iterator<Item = &'a Record>) -> Comparisons {
    const HEADINGS: [&str; 11] = [
        ">size",
        "target",
        ">busy",
        "by",
        ">GB/s",
        ">s/GB",
        ">latency",
        ">extra memory",
        ">ratio",
        ">interval",
        ">floor",
    ];
    let mut table = Comparisons::new(&HEADINGS, true);
    let records: Vec<&Record> =
        records.filter(|record| record.experiment == name::CHANNEL_TRANSFER).collect();
    let text = |record: &Record, name: &str| record.shown(name).unwrap_or_default();
    let group = |record: &Record| {
        [key::SIZE_BYTES, key::TARGET, key::BUSY_CORE].map(|name| text(record, name))
    };
    for record in records.iter().filter(|record| record.metric == "throughput") {
        let own = group(record);
        let of = |metric: &str| {
            let is_it = |other: &&&Record| {
                other.metric == metric && other.subject == record.subject && group(other) == own
            };
            records.iter().find(is_it).and_then(|other| other.median())
        };
        let size = own[0].parse().map_or(own[0].clone(), |bytes| Bytes(bytes).to_string());
        let mut row = vec![size, own[1].clone(), load(record, &own[2]), subject(record)];
        row.push(number(of("throughput"), |value| format!("{value:.2}")));
        row.push(number(of("cpu"), |value| format!("{value:.3}")));
        row.push(number(of("latency"), |value| Nanos(value).to_string()));
        row.push(number(of("extra_memory"), |value| Bytes(value as u64).to_string()));
        let comparison = record.cost();
        if let Some(comparison) = &comparison {
            row.push(format!("{:.3}", comparison.ratio));
            row.push(format!("{:.3}-{:.3}", comparison.ratio_low, comparison.ratio_high));
            row.push(format!("{:.3}", comparison.floor));
        }
        let busy = if own[2] == "1" { ", one processor busy" } else { "" };
        let of_measurement = format!("{} to {} memory{busy}", row[0], own[1]);
        let cost = of("throughput").map(|rate| 1.0 / rate);
        let measured = Measured { cost, comparison, is_time: true };
        table.add(of_measurement, &record.subject, measured, row);
    }
    table
}

/// Number of processors that the bench kept busy, and number that other programs kept busy: `1 +
/// 0.9`.
fn load(record: &Record, busy: &str) -> String {
    match record.others_processors().filter(|_| record.is_beside_others()) {
        Some(others) => format!("{busy} + {others:.1}"),
        None => busy.to_owned(),
    }
}

/// The subject, with the mechanism that haul chose.
fn subject(record: &Record) -> String {
    let chosen = record.text(key::MECHANISM);
    match chosen.filter(|_| record.subject == "haul:auto") {
        Some(mechanism) => format!("{} ({mechanism})", record.subject),
        None => record.subject.clone(),
    }
}

fn number(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or(String::new(), show)
}
