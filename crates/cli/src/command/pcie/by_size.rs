//! `haul pcie estimate --sizes FIRST..LAST:STEP`: the sums of each size.

use haul_model::pcie::{Direction, Packets, Sums, Transaction, Way, rate_max};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use super::estimate::Estimate;
use super::subject::{Subject, size};
use super::{count, show_notes};
use crate::arguments::pcie::Estimate as Arguments;
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct BySize {
    rows: Vec<Row>,
    usable_bytes_per_s: f64,
    /// Notes on any of the sizes.
    notes: Vec<String>,
    json: bool,
}

struct Row {
    /// The size as the user named it.
    size: u32,
    /// The part of the size that crosses the link: without the check sequence.
    data_bytes: f64,
    /// Offered packets per second.
    rate: f64,
    terms: Vec<Transaction>,
    records: Vec<Record>,
}

impl BySize {
    /// # Errors
    ///
    /// The errors of an estimate of any of the sizes.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { subject, rules, json } = arguments;
        let is_frames = subject.with_fcs;
        let sizes: Vec<u32> = subject.sizes.iter().flat_map(|sizes| &sizes.0).map(size).collect();
        let first = sizes.first().copied().unwrap_or_default();
        let base = Subject::check(subject, Some(Packets::of_one(first)?))?;
        let mut usable_bytes_per_s = 0.0;
        let mut notes: Vec<String> = Vec::new();
        let rows = sizes.into_iter().map(|size| {
            let packets = Packets::of_one(size)?;
            let packets = if is_frames { packets.without_fcs()? } else { packets };
            let data_bytes = packets.mean_bytes();
            let subject = base.clone().with_packets(packets)?;
            let rate = subject.workload.rate.packets_per_s();
            let estimate = Estimate::of(subject, rules, json)?;
            usable_bytes_per_s = estimate.usable_bytes_per_s();
            for note in estimate.notes() {
                if !notes.iter().any(|known| is_same(known, note)) {
                    notes.push(note.clone());
                }
            }
            let (terms, records) = (estimate.terms().to_vec(), estimate.records());
            Ok(Row { size, data_bytes, rate, terms, records })
        });
        let rows = rows.collect::<Result<_, Error>>()?;
        Ok(Self { rows, usable_bytes_per_s, notes, json })
    }
}

impl Command for BySize {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let sums = |record: &&Record| record.metric != "transaction";
        let records = self.rows.iter().flat_map(|row| row.records.iter().filter(sums));
        record("pcie estimate", records.cloned(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.json {
            terminal::print(&self.table().text())?;
            terminal::print("\nmodelled, not measured: data in bytes/s, each way")?;
        }
        show_notes(&self.notes, self.json)
    }
}

impl BySize {
    fn table(&self) -> Table {
        let headings = [
            ">size B",
            ">packets/s",
            ">inbound read",
            ">inbound write",
            ">outbound write",
            ">of the link %",
            ">full at packets/s",
            ">data Gb/s then",
        ];
        let mut table = Table::new(&headings);
        for row in &self.rows {
            let sums = Sums::of(&row.terms);
            let payload =
                |direction| BytesPerSecond(sums.payload_bytes_per_s(direction)).to_string();
            let share = [Way::ToHost, Way::ToDevice]
                .map(|way| sums.bytes_per_s_on(way) / self.usable_bytes_per_s * 100.0);
            let full = rate_max(&sums, row.rate, self.usable_bytes_per_s).map_or(0.0, |f| f.0);
            table.add(vec![
                row.size.to_string(),
                count(row.rate),
                payload(Direction::InboundRead),
                payload(Direction::InboundWrite),
                payload(Direction::OutboundWrite),
                three_digits(share[0].max(share[1])),
                count(full),
                format!("{:.2}", full * row.data_bytes * 8e-9),
            ]);
        }
        table
    }
}

/// Whether two sentences differ only in their figures.
fn is_same(one: &str, other: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        // A suffix belongs to its figure: `14.2 M`.
        text.split(' ')
            .filter(|word| word.len() > 1 && !word.contains(|c: char| c.is_ascii_digit()))
    }
    words(one).eq(words(other))
}
