//! `haul heap bench`: haul's heap side by side with libc, the general heaps and DPDK.

use std::time::Duration;

use haul_experiments::drive::Program;
use haul_experiments::heap::{self, Extent, Found, Peer, Shape, Test, baseline_first, check_shape};
use haul_model::experiment::{key, name};
use haul_model::{Better, Bytes, Nanos, Record};

use crate::arguments::heap::{Align, Bench as Arguments};
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::summary::{Comparisons, Measured, Printing};
use crate::terminal;

/// Time for a measurement without --budget: DPDK's growth in ByteDance's rte_malloc test needs two
/// seconds once.
const BUDGET_EACH: Duration = Duration::from_secs(3);

pub(super) struct Bench {
    steps: Steps,
    budget: Option<Duration>,
    json: bool,
    printing: Printing,
}

impl Bench {
    /// Resolves every name, looks for every peer's library, and lists the steps.
    ///
    /// # Errors
    /// A size or an alignment is invalid.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let mut asked: Steps = Vec::new();
        let heaps = present(&arguments.against);
        for &test in &arguments.test {
            let threads = test.threads(arguments.threads.map(usize::from))?;
            for shape in shapes(&arguments, test)? {
                asked.push(Box::new(heap::Bench {
                    test,
                    extent: extent(&arguments, test, shape),
                    threads,
                    shared: arguments.shared,
                    pool: !arguments.no_pool,
                    grow_ahead_bytes: grow_ahead_bytes(&arguments, test),
                    ready_bytes: arguments.ready.map_or(0, bytes_of),
                    engine: arguments.engine.clone(),
                    heaps: heaps.clone(),
                    driver: driver(),
                    budget: BUDGET_EACH,
                    seed: 1,
                }));
            }
        }
        let steps = steps::evenly(asked, arguments.budget, BUDGET_EACH);
        let Arguments { budget, json, printing, .. } = arguments;
        Ok(Self { steps, budget, json, printing })
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
        let note = "\ngrowth: the last round's time over the first's; footprint: resident bytes over those \
             asked for;\nratio: time or cost over the baseline's, below 1 is better; floor: how far the baseline \
             differed from itself\nin the same run.";
        table.print(&self.printing, note)
    }
}

/// The command that drives a heap.
pub(in crate::command) fn driver() -> Program {
    steps::this_program(["heap", "drive"])
}

/// haul and every installed peer, the baseline first.
pub(in crate::command) fn installed() -> Vec<Found> {
    with_haul(Peer::ALL.iter().filter_map(|peer| peer.find().ok()).collect())
}

/// haul and those of these peers that are installed, with the baseline first. Warns about the
/// missing peers.
pub(super) fn present(against: &[Peer]) -> Vec<Found> {
    let mut heaps = Vec::new();
    for peer in against {
        match peer.find() {
            Ok(found) if heaps.contains(&found) => {}
            Ok(found) => heaps.push(found),
            Err(error) => terminal::say(&format!("haul: warning: {error}")),
        }
    }
    with_haul(heaps)
}

fn with_haul(mut heaps: Vec<Found>) -> Vec<Found> {
    heaps.push(Found { peer: Peer::Haul, library: None });
    baseline_first(heaps)
}

/// Sizes and alignments that a test uses.
fn shapes(arguments: &Arguments, test: Test) -> Result<Vec<Shape>, Error> {
    let grows = matches!(test, Test::Growth | Test::Mixed | Test::Regrow | Test::Latency);
    let default = match test {
        _ if grows => Bytes(4096),
        Test::Lifetimes => Bytes(16 << 10),
        Test::Zeroed => Bytes(4 << 20),
        _ => Bytes(64),
    };
    let sizes = arguments.sizes.as_ref().map_or(vec![default], |sizes| sizes.0.clone());
    let align =
        arguments.align.unwrap_or(if grows { Align::Size } else { Align::Bytes(Bytes(16)) });
    let shape = |size: Bytes| {
        let align = match align {
            Align::Bytes(align) => align.0,
            Align::Size => 1 << size.0.trailing_zeros().min(u64::BITS - 1),
        };
        Ok(check_shape(size.0, align)?)
    };
    sizes.into_iter().map(shape).collect()
}

fn extent(arguments: &Arguments, test: Test, shape: Shape) -> Extent {
    let default = test.extent(shape);
    let many = |asked: Option<u64>, default| {
        asked.map_or(default, |count| usize::try_from(count).unwrap_or(usize::MAX))
    };
    Extent {
        rounds: many(arguments.rounds.map(u64::from), default.rounds),
        count: many(arguments.count, default.count),
        ..default
    }
}

fn grow_ahead_bytes(arguments: &Arguments, test: Test) -> usize {
    arguments.grow_ahead.map_or(test.grow_ahead_bytes(), bytes_of)
}

fn bytes_of(asked: Bytes) -> usize {
    usize::try_from(asked.0).unwrap_or(usize::MAX)
}

/// Every figure as a row; a blank line separates the tests.
fn figures<'a>(records: impl Iterator<Item = &'a Record>) -> Comparisons {
    const HEADINGS: [&str; 9] =
        ["test", "blocks", ">threads", "figure", "heap", ">value", ">ratio", ">interval", ">floor"];
    let mut table = Comparisons::new(&HEADINGS, true);
    let records: Vec<&Record> =
        records.filter(|record| record.experiment.starts_with(name::HEAP)).collect();
    let last_round = records.iter().filter_map(|record| round(record)).max();
    for record in records {
        let (blocks, figure) = (blocks(record), figure(record));
        let text = |name: &str| record.shown(name).unwrap_or_default();
        let mut row = vec![
            record.experiment.trim_start_matches(name::HEAP).to_owned(),
            blocks.clone(),
            text(key::THREADS),
            figure.clone(),
            record.subject.clone(),
            value(record),
        ];
        let better = Better::of(record);
        let comparison = record.cost();
        if let Some(comparison) = &comparison {
            row.extend([
                format!("{:.3}", comparison.ratio),
                format!("{:.3}-{:.3}", comparison.ratio_low, comparison.ratio_high),
                format!("{:.3}", comparison.floor),
            ]);
        }
        // Times get a sentence; their components are only in the table.
        let cost = better.zip(record.median()).map(|(better, value)| better.cost(value));
        let of = format!("{} of {blocks}, {figure}", row[0]);
        let measured = Measured { cost, comparison, is_time: is_time(record, last_round) };
        table.add(of, &record.subject, measured, row);
    }
    table
}

fn round(record: &Record) -> Option<u64> {
    record.count(key::ROUND)
}

/// Whether the record gets a sentence. Times get a sentence, but of several rounds only the last.
fn is_time(record: &Record, last_round: Option<u64>) -> bool {
    match (record.metric.as_str(), round(record)) {
        ("time" | "throughput" | "p99", _) => true,
        ("alloc_time", round) => round == last_round || round.is_none(),
        _ => false,
    }
}

fn blocks(record: &Record) -> String {
    match (record.count(key::SIZE_BYTES), record.count(key::ALIGN_BYTES)) {
        (Some(size), Some(align)) => format!("{} @ {}", Bytes(size), Bytes(align)),
        _ => String::new(),
    }
}

fn figure(record: &Record) -> String {
    match record.shown(key::ROUND) {
        Some(round) => format!("{} {round}", record.metric),
        None => record.metric.clone(),
    }
}

fn value(record: &Record) -> String {
    match (record.median(), record.unit.as_str()) {
        (None, _) => String::new(),
        (Some(ns), "ns") => Nanos(ns).to_string(),
        (Some(value), "ratio") => format!("{value:.3}"),
        (Some(value), unit) => format!("{value:.2} {unit}"),
    }
}
