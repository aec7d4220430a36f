//! `haul pcie bandwidth`: the packet data that a link carries, by the public model of pcie-bench.

use haul_model::pcie::{
    self, Bench, BenchNic, Estimate, Histogram, Link, Nic, Packets, PcieError, Rate, Settings,
    Traffic, Version, Workload,
};
use haul_model::{Kind, Record};

use super::{link_of, show_notes};
use crate::arguments::pcie::{Bandwidth as Arguments, Model};
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

/// The NIC of the estimates that corresponds to the public model's dpdk NIC: the 82599 with DPDK's
/// driver.
const IXGBE: &str = "ixgbe";
/// The number of packets per burst in the public model.
const BATCH: u32 = 32;

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
    ///
    /// A link or a size cannot exist.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let link = link_of(&arguments.link, Settings::default())?;
        let frames = arguments.sizes.0.iter().map(|size| Ok((size.0, Packets::of_frames(size.0)?)));
        let mut nics = arguments.model_nic;
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

    /// The result of `haul pcie estimate` for the card and the driver of the public model's dpdk
    /// NIC.
    fn estimated_gigabits_per_s(&self, packets: &Packets) -> Result<f64, PcieError> {
        let nic: &Nic = IXGBE.parse()?;
        let batches = Histogram::of_one(BATCH);
        let workload = Workload {
            traffic: self.traffic,
            ..Workload::forwarding(Rate::new(1.0)?, packets.clone(), batches)
        };
        let full = pcie::limit(&Estimate {
            nic: *nic,
            version: Version::LAST,
            mode: nic.usual_mode(),
            thresholds: nic.thresholds,
            workload: &workload,
            link: &self.link,
        })?;
        Ok(full.map_or(0.0, |full| full.packets_per_s * packets.mean_bytes() * 8e-9))
    }

    /// Why an estimate differs from the public model's dpdk NIC.
    fn difference(&self) -> String {
        let settings = self.link.settings();
        let mut text = format!(
            "the last column is haul pcie estimate --nic {IXGBE}, the same card with the same driver. There, \
             the driver requests one transmit descriptor in 32 to be written back; the public model writes \
             back each, eight at once, which costs more the smaller packets are. The estimate splits \
             completions at each {} B (RCB, unless --set completions=mps is given); the public model splits \
             them by MPS, {} B, which costs less the larger packets are",
            settings.rcb, settings.mps
        );
        if self.model == Model::PcieBench {
            text += ". As published, the model also omits the request for each received packet's \
                     descriptor";
        }
        text
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
        let has_driver = self.nics.contains(&BenchNic::Dpdk);
        headings.extend(has_driver.then_some(">estimate --nic ixgbe Gb/s"));
        let mut table = Table::new(&headings);
        for (size, packets) in &self.frames {
            let mut row = vec![size.to_string()];
            let figures = self.nics.iter().map(|nic| self.gigabits_per_s(*nic, packets));
            row.extend(figures.map(|figure| format!("{figure:.2}")));
            if has_driver {
                row.push(format!("{:.2}", self.estimated_gigabits_per_s(packets)?));
            }
            table.add(row);
        }
        terminal::print(&table.text())?;
        let each = if self.traffic == Traffic::Both { " each way" } else { "" };
        terminal::print(&format!("\nmodelled, not measured: packet data{each} on {}", self.link))?;
        if has_driver {
            return show_notes(&[self.difference()], false);
        }
        Ok(())
    }
}
