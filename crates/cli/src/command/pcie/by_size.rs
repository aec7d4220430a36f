//! `haul pcie estimate --sizes FIRST..LAST`: the sums of every size, byte by byte.

use haul_model::pcie::{Direction, Packets, Sums, Transaction, Way, rate_max};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Record};

use super::count;
use super::estimate::Estimate;
use super::subject::Subject;
use crate::arguments::pcie::{ByteSizes, Estimate as Arguments};
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct BySize {
    /// Each size with its terms and records.
    rows: Vec<(u32, Vec<Transaction>, Vec<Record>)>,
    usable_bytes_per_s: f64,
    rate: f64,
    json: bool,
}

impl BySize {
    /// # Errors
    /// As of an estimate of any of the sizes.
    pub(super) fn check(arguments: Arguments, sizes: ByteSizes) -> Result<Self, Error> {
        let Arguments { subject, rules, json, .. } = arguments;
        let ByteSizes { first, last } = sizes;
        let is_frames = subject.with_fcs;
        let base = Subject::check(subject, Some(Packets::of_one(first)?))?;
        let (mut usable_bytes_per_s, rate) = (0.0, base.workload.rate.packets_per_s());
        let rows = (first..=last).map(|size| {
            let mut subject = base.clone();
            let packets = Packets::of_one(size)?;
            subject.workload.packets = if is_frames { packets.without_fcs()? } else { packets };
            let estimate = Estimate::of(subject, rules, json)?;
            usable_bytes_per_s = estimate.usable_bytes_per_s();
            Ok((size, estimate.terms().to_vec(), estimate.records()))
        });
        let rows = rows.collect::<Result<_, Error>>()?;
        Ok(Self { rows, usable_bytes_per_s, rate, json })
    }
}

impl Command for BySize {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let sums = |record: &&Record| record.metric != "transaction";
        let records = self.rows.iter().flat_map(|(_, _, records)| records.iter().filter(sums));
        record("pcie estimate", records.cloned(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let headings = [
            ">size B",
            ">inbound read",
            ">inbound write",
            ">outbound write",
            ">of the link %",
            ">full at packets/s",
            ">data Gb/s then",
        ];
        let mut table = Table::new(&headings);
        for (size, terms, _) in &self.rows {
            let sums = Sums::of(terms);
            let payload =
                |direction| BytesPerSecond(sums.payload_bytes_per_s(direction)).to_string();
            let share = [Way::ToHost, Way::ToDevice]
                .map(|way| sums.bytes_per_s_on(way) / self.usable_bytes_per_s * 100.0);
            let full = rate_max(&sums, self.rate, self.usable_bytes_per_s).map_or(0.0, |f| f.0);
            table.add(vec![
                size.to_string(),
                payload(Direction::InboundRead),
                payload(Direction::InboundWrite),
                payload(Direction::OutboundWrite),
                three_digits(share[0].max(share[1])),
                count(full),
                format!("{:.2}", full * f64::from(*size) * 8e-9),
            ]);
        }
        terminal::print(&table.text())?;
        terminal::print("\nmodelled, not measured: data in bytes/s, each way")
    }
}
