//! `haul pcie bandwidth`: how much packet data a link carries, by the public model of pcie-bench.

use haul_model::pcie::{Bench, BenchNic, Link, Packets, Settings, Traffic};
use haul_model::{Kind, Record};

use super::link_of;
use crate::arguments::pcie::{Bandwidth as Arguments, Model};
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct Bandwidth {
    model: Model,
    nics: Vec<BenchNic>,
    link: Link,
    traffic: Traffic,
    /// Each frame's size, and its packets in memory.
    frames: Vec<(u64, Packets)>,
    json: bool,
}

impl Bandwidth {
    /// # Errors
    /// A link or a size is none that can be.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let link = link_of(&arguments.link, Settings::default())?;
        let frames = arguments.sizes.0.iter().map(|size| Ok((size.0, Packets::of_frames(size.0)?)));
        let mut nics = arguments.nic;
        if nics.is_empty() {
            nics = BenchNic::ALL.to_vec();
        }
        nics.sort_unstable_by_key(|nic| nic.name());
        nics.dedup();
        Ok(Self {
            model: arguments.model,
            nics,
            link,
            traffic: arguments.traffic.into(),
            frames: frames.collect::<Result<_, Error>>()?,
            json: arguments.json,
        })
    }

    fn gigabits_per_s(&self, nic: BenchNic, packets: &Packets) -> f64 {
        let bench = match self.model {
            Model::PcieBench => Bench::as_published(&self.link),
            Model::Mended => Bench::mended(&self.link),
        };
        bench.bandwidth_bytes_per_s(nic, self.traffic, packets) * 8e-9
    }

    fn records(&self) -> Vec<Record> {
        let subject = match self.model {
            Model::PcieBench => "pcie-bench",
            Model::Mended => "pcie-bench-mended",
        };
        let settings = self.link.settings();
        let mut records = Vec::new();
        for (size, packets) in &self.frames {
            for nic in &self.nics {
                let mut record = Record::new("", "pcie.bandwidth", subject, "throughput", "Gb/s")
                    .with("nic", nic.name())
                    .with("size_bytes", *size)
                    .with("traffic", self.traffic.name())
                    .with("link", self.link.to_string())
                    .with("mps_bytes", settings.mps)
                    .with("mrrs_bytes", settings.mrrs);
                record.kind = Kind::Modelled;
                record.samples = vec![self.gigabits_per_s(*nic, packets)];
                records.push(record);
            }
        }
        records
    }
}

impl Command for Bandwidth {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        record("pcie bandwidth", self.records(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut headings = vec![">frame B"];
        headings.extend(self.nics.iter().map(|nic| match nic {
            BenchNic::Simple => ">simple Gb/s",
            BenchNic::Kernel => ">kernel Gb/s",
            BenchNic::Dpdk => ">dpdk Gb/s",
        }));
        let mut table = Table::new(&headings);
        for (size, packets) in &self.frames {
            let mut row = vec![size.to_string()];
            let figures = self.nics.iter().map(|nic| self.gigabits_per_s(*nic, packets));
            row.extend(figures.map(|figure| format!("{figure:.2}")));
            table.add(row);
        }
        terminal::print(&table.text())?;
        let each = if self.traffic == Traffic::Both { " each way" } else { "" };
        terminal::print(&format!("\nmodelled, not measured: packet data{each} on {}", self.link))
    }
}
