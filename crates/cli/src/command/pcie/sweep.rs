//! `haul pcie sweep`: a modelled NIC at one rate after the other, with counted and estimated
//! traffic.

use std::time::Duration;

use haul::forward::Time;
use haul_experiments::pcie;
use haul_model::experiment::key;
use haul_model::pcie::{Packets, Setup, check_rate};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use super::subject::{Built, note_of_line, note_of_release};
use super::{count, show_notes};
use crate::arguments::pcie::{Rates, Sweep as Arguments};
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal::{self, Table};

/// Descriptors of the receive ring.
const RING: u32 = 1024;

pub(super) struct Sweep {
    steps: Steps,
    notes: Vec<String>,
    json: bool,
}

impl Sweep {
    /// # Errors
    ///
    /// A NIC, a mode, a link or a size cannot exist.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let built = Built::check(arguments.nic)?;
        let setup = Setup {
            version: built.asked,
            mode: built.mode,
            thresholds: built.thresholds,
            ring: RING,
            ..Setup::of(built.nic, built.link)
        };
        let packets = Packets::of_one(arguments.packet_size)?;
        let highest = arguments.rates.last.rate(&packets)?;
        check_rate(highest, &packets, &setup.nic)?;
        let rates = rates(&arguments.rates, &packets)?;
        let mut notes: Vec<String> = note_of_release(setup.version).into_iter().collect();
        notes.extend(note_of_line(&setup.nic, highest, &packets));
        let sweep = pcie::Sweep {
            setup,
            size_bytes: arguments.packet_size,
            rates,
            group: arguments.group,
            burst: arguments.burst.into(),
            work: Duration::from_nanos(arguments.work),
            time: match arguments.core {
                Some(core) => Time::core(core.poll_ns, core.packet_ns),
                None => Time::Clock,
            },
            each: arguments.each,
        };
        sweep.check()?;
        Ok(Self { steps: vec![Box::new(sweep)], notes, json: arguments.json })
    }
}

/// The rates in packets per second, which include `last` if a step leads to it.
///
/// # Errors
/// There are more rates than a sweep may have.
fn rates(rates: &Rates, packets: &Packets) -> Result<Vec<f64>, Error> {
    /// The largest number of rates per sweep.
    const COUNT_MAX: f64 = 1000.0;
    /// Quotients of rates in bits per second are off by a few units in the last place.
    const ROUNDING: f64 = 1e-9;
    let [first, last, step] = [rates.first, rates.last, rates.step]
        .map(|rate| rate.rate(packets).map(|rate| rate.packets_per_s()));
    let (first, last, step) = (first?, last?, step?);
    let count = ((last - first) / step + ROUNDING).floor();
    if count >= COUNT_MAX {
        let value = format!("{:.0}", count + 1.0);
        let (what, limit) =
            ("a number of rates of", "a sweep has at most 1000; write a larger STEP");
        return Err(haul::forward::Error::Value { what, value, limit }.into());
    }
    Ok((0..=count as u32).map(|index| first + step * f64::from(index)).collect())
}

/// One rate, with its records.
struct Row<'a> {
    rate: &'a Record,
    metrics: Vec<&'a Record>,
}

fn number(record: &Record, name: &str) -> f64 {
    record.number(name).unwrap_or(f64::NAN)
}

fn rows<'a>(records: &[&'a Record]) -> Vec<Row<'a>> {
    let of = |record: &&Record, rate: &Record| {
        record.number(key::OFFERED_PACKETS_PER_S) == rate.number(key::OFFERED_PACKETS_PER_S)
            && record.parameters.contains_key(key::BASIS)
    };
    let rates = records.iter().filter(|record| record.metric == "rate");
    rates
        .map(|rate| Row {
            rate,
            metrics: records.iter().copied().filter(|record| of(record, rate)).collect(),
        })
        .collect()
}

impl Row<'_> {
    fn metric(&self, name: &str, basis: &str) -> f64 {
        let found = self
            .metrics
            .iter()
            .find(|record| record.metric == name && record.text(key::BASIS) == Some(basis));
        found.and_then(|record| record.samples.first().copied()).unwrap_or_default()
    }

    /// The largest difference of a metric, in percent of the counted value.
    fn off_percent(&self) -> f64 {
        let off = |name| {
            let (counted, estimated) =
                (self.metric(name, "counted"), self.metric(name, "estimated"));
            if counted > 0.0 { (estimated / counted - 1.0) * 100.0 } else { 0.0 }
        };
        let all = ["inbound_read", "inbound_write", "outbound_write"].map(off);
        all.into_iter().fold(0.0, |most: f64, off| if off.abs() > most.abs() { off } else { most })
    }
}

/// The batches in which most packets arrived.
fn peaks(batches: &str) -> String {
    let pairs: Vec<(u64, u64)> = batches
        .split(',')
        .filter_map(|pair| pair.split_once(':'))
        .filter_map(|(batch, polls)| Some((batch.parse().ok()?, polls.parse().ok()?)))
        .filter(|(batch, _)| *batch > 0)
        .collect();
    let all: u64 = pairs.iter().map(|(batch, polls)| batch * polls).sum();
    let mut large: Vec<(u64, u64)> =
        pairs.iter().map(|(batch, polls)| (*batch, batch * polls)).collect();
    large.sort_by_key(|(batch, packets)| (u64::MAX - packets, *batch));
    let shown = large.iter().take(3).filter(|(_, packets)| packets * 50 >= all);
    shown
        .map(|(batch, packets)| format!("{batch} ({}%)", packets * 100 / all.max(1)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What the curve shows, if it has several rates: one point has no shape.
fn conclusion<'a>(records: &[&'a Record], rates: usize) -> Option<&'a str> {
    let found = records.iter().find(|record| record.metric == "break");
    let note = found.and_then(|record| record.text(key::NOTE));
    note.or_else(|| {
        (rates > 1).then_some(
            "The curve of outbound writes has no break of 5% at these rates, because the batches did not \
             change; use higher rates, or larger steps between them.",
        )
    })
}

impl Command for Sweep {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, None, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json {
            return show_notes(&self.notes, true);
        }
        let records: Vec<&Record> = journal.records().collect();
        let headings = [
            ">packets/s",
            ">dropped %",
            ">batch",
            "packets in polls of",
            ">inbound read",
            ">inbound write",
            ">outbound write",
            ">estimate off %",
        ];
        let rows = rows(&records);
        let mut table = Table::new(&headings);
        for row in &rows {
            let (packets, dropped) =
                (number(row.rate, key::PACKETS), number(row.rate, key::DROPPED));
            let batches = row.rate.text(key::RX_BATCHES);
            let data = |name| BytesPerSecond(row.metric(name, "counted")).to_string();
            table.add(vec![
                count(number(row.rate, key::RATE_PACKETS_PER_S)),
                three_digits(dropped / (packets + dropped) * 100.0),
                three_digits(number(row.rate, key::AVERAGE_BATCH)),
                peaks(batches.unwrap_or_default()),
                data("inbound_read"),
                data("inbound_write"),
                data("outbound_write"),
                // A difference that rounds to 0 has no sign.
                format!("{:+.3}", (row.off_percent() * 1e3).round() / 1e3 + 0.0),
            ]);
        }
        terminal::print(&table.text())?;
        terminal::print(
            "\nbatches of a real run, or of a modelled core; transactions counted by the modelled \
             NIC, data in bytes/s",
        )?;
        if let Some(text) = conclusion(&records, rows.len()) {
            terminal::print(&terminal::wrap(text, terminal::width(), 0))?;
        }
        show_notes(&self.notes, false)
    }
}
