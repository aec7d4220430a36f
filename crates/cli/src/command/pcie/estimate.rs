//! `haul pcie estimate`: the terms of a workload, their sums, and the limit of the link.

use haul_model::experiment::name;
use haul_model::pcie::{
    self, Bench, BenchNic, Direction, Sums, Transaction, Way, rate_max, recipe,
};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Kind, Record};

use super::subject::Subject;
use super::{count, show_notes};
use crate::arguments::pcie::{Estimate as Arguments, Rules};
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct Estimate {
    subject: Subject,
    rules: Rules,
    /// The terms by the chosen rules.
    terms: Vec<Transaction>,
    /// Notes that explain the terms.
    notes: Vec<String>,
    json: bool,
}

impl Estimate {
    /// # Errors
    ///
    /// A link, a size, a mode or a threshold cannot exist.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let subject = Subject::check(arguments.subject, None)?;
        Self::of(subject, arguments.rules, arguments.json)
    }

    /// # Errors
    ///
    /// The errors of `check`.
    pub(super) fn of(subject: Subject, rules: Rules, json: bool) -> Result<Self, Error> {
        let mut estimate = Self { subject, rules, terms: Vec::new(), notes: Vec::new(), json };
        estimate.terms = estimate.terms_by_rules()?;
        Ok(estimate)
    }

    /// The terms, with their notes.
    fn terms_by_rules(&mut self) -> Result<Vec<Transaction>, Error> {
        let Subject { nic, thresholds, workload, link, .. } = &self.subject;
        // All rules refuse a workload that the driver cannot have.
        let by_driver = pcie::estimate(&self.subject.estimate())?;
        match self.rules {
            Rules::Haul => {
                self.notes = self.subject.notes();
                Ok(by_driver)
            }
            Rules::Recipe => {
                let terms = recipe(nic, *thresholds, workload).by_polls;
                self.notes = self.subject.packet_notes();
                self.notes.push(self.readings());
                Ok(terms)
            }
            Rules::PcieBench => {
                self.notes = self.subject.packet_notes();
                self.notes.push(
                    "the public model has one NIC for all: the 82599 with DPDK, 16 B descriptors \
                     and bursts of 32; it ignores the NIC, mode, options, thresholds and batches \
                     that were named"
                        .to_owned(),
                );
                Ok(Bench::as_published(link).terms(
                    BenchNic::Dpdk,
                    workload.traffic,
                    workload.rate.packets_per_s(),
                    &workload.packets,
                ))
            }
        }
    }

    /// Both averages of the recipe, side by side.
    fn readings(&self) -> String {
        let recipe = recipe(&self.subject.nic, self.subject.thresholds, &self.subject.workload);
        let written = |terms: &[Transaction]| {
            BytesPerSecond(Sums::of(terms).payload_bytes_per_s(Direction::OutboundWrite))
        };
        format!(
            "the recipe does not say how it averages batches: {} packets over polls that were not \
             empty, which is right for doorbells and used here, gives outbound writes of {}; {} \
             weighted by packets gives {}",
            three_digits(recipe.average_by_polls),
            written(&recipe.by_polls),
            three_digits(recipe.average_by_packets),
            written(&recipe.by_packets)
        )
    }

    pub(super) fn terms(&self) -> &[Transaction] {
        &self.terms
    }

    /// Notes that explain the terms.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn usable_bytes_per_s(&self) -> f64 {
        match self.rules {
            Rules::PcieBench => Bench::as_published(&self.subject.link).usable_bytes_per_s(),
            _ => self.subject.link.usable_bytes_per_s(),
        }
    }

    /// A record of this estimate.
    fn record(&self, metric: &str, unit: &str, sample: f64) -> Record {
        let subject = match self.rules {
            Rules::Haul => "haul",
            Rules::Recipe => "recipe",
            Rules::PcieBench => "pcie-bench",
        };
        let record = Record::new("", name::PCIE_ESTIMATE, subject, metric, unit);
        let mut record = self.subject.describe(record);
        record.kind = Kind::Modelled;
        record.samples = vec![sample];
        record
    }

    pub(super) fn records(&self) -> Vec<Record> {
        let sums = Sums::of(&self.terms);
        let mut records: Vec<Record> = self.terms.iter().map(|term| self.of_term(term)).collect();
        for direction in Direction::ALL {
            let payload = sums.payload_bytes_per_s(direction);
            let mut record = self.record(direction.name(), "bytes/s", payload);
            let headers = sums.header_bytes_per_s(direction);
            record = record.with("header_bytes_per_s", headers);
            if self.rules == Rules::Recipe && direction == Direction::OutboundWrite {
                let recipe =
                    recipe(&self.subject.nic, self.subject.thresholds, &self.subject.workload);
                let other = Sums::of(&recipe.by_packets).payload_bytes_per_s(direction);
                records.push(
                    self.record("outbound_write_by_packets", "bytes/s", other)
                        .with("average_batch", recipe.average_by_packets),
                );
                record = record.with("average_batch", recipe.average_by_polls);
            }
            records.push(record);
        }
        let usable = self.usable_bytes_per_s();
        for way in [Way::ToHost, Way::ToDevice] {
            let carried = sums.bytes_per_s_on(way);
            let record = self.record(way.name(), "bytes/s", carried);
            records.push(record.with("usable_bytes_per_s", usable));
        }
        if let Some((rate, way)) =
            rate_max(&sums, self.subject.workload.rate.packets_per_s(), usable)
        {
            let mut record = self.record("rate_max", "packets/s", rate).with("binds", way.name());
            if !self.notes.is_empty() {
                record = record.with("note", self.notes.join("; "));
            }
            records.push(record);
        }
        records
    }

    fn of_term(&self, term: &Transaction) -> Record {
        self.record("transaction", "bytes/s", term.count_per_s * term.payload_bytes)
            .with("what", term.what)
            .with("direction", term.direction.name())
            .with("count_per_s", term.count_per_s)
            .with("payload_bytes", term.payload_bytes)
            .with("header_bytes", term.header_bytes)
    }

    fn table(&self) -> String {
        let mut terms = self.terms.clone();
        terms.sort_by(|a, b| b.bytes_per_s().total_cmp(&a.bytes_per_s()));
        let headings =
            ["transaction", "direction", ">per second", ">data B", ">headers B", ">with headers"];
        let mut table = Table::new(&headings);
        for term in &terms {
            table.add(vec![
                term.what.to_owned(),
                term.direction.name().replace('_', " "),
                count(term.count_per_s),
                three_digits(term.payload_bytes),
                three_digits(term.header_bytes),
                BytesPerSecond(term.bytes_per_s()).to_string(),
            ]);
        }
        let sums = Sums::of(&self.terms);
        let mut totals = Table::new(&["sum", ">data", ">headers"]);
        for direction in Direction::ALL {
            totals.add(vec![
                direction.name().replace('_', " "),
                BytesPerSecond(sums.payload_bytes_per_s(direction)).to_string(),
                BytesPerSecond(sums.header_bytes_per_s(direction)).to_string(),
            ]);
        }
        format!("{}\n\n{}", table.text(), totals.text())
    }

    /// The limit of the link, in sentences.
    fn verdict(&self) -> String {
        let sums = Sums::of(&self.terms);
        let usable = self.usable_bytes_per_s();
        let share = |way| three_digits(sums.bytes_per_s_on(way) / usable * 100.0);
        let mut text = format!(
            "modelled, not measured: {} carries {} each way; this workload uses {}% of it to the host and \
             {}% to the device.",
            self.subject.link,
            BytesPerSecond(usable),
            share(Way::ToHost),
            share(Way::ToDevice)
        );
        let Some((rate, way)) = rate_max(&sums, self.subject.workload.rate.packets_per_s(), usable)
        else {
            return text;
        };
        let largest = self
            .terms
            .iter()
            .max_by(|a, b| a.bytes_per_s_on(way).total_cmp(&b.bytes_per_s_on(way)));
        let side = if way == Way::ToHost { "to the host" } else { "to the device" };
        text += &format!(
            " It is full {side} at {} packets/s, most of that for: {}.",
            count(rate),
            largest.map_or("nothing", |term| term.what)
        );
        if rate < self.subject.workload.rate.packets_per_s() {
            text += &format!(
                " The {} packets/s asked for do not fit: haul pcie explain shows what would carry them.",
                count(self.subject.workload.rate.packets_per_s())
            );
        }
        text
    }
}

impl Command for Estimate {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        record("pcie estimate", self.records(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.json {
            let verdict = terminal::wrap(&self.verdict(), terminal::width(), 0);
            terminal::print(&format!("{}\n\n{verdict}", self.table()))?;
        }
        show_notes(&self.notes, self.json)
    }
}
