//! Turns watched intervals into records.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::pcie::{Direction, Sums, Way};
use haul_model::units::three_digits;
use haul_model::{Kind, Record};

use super::probe::{Bursts, Port, Queue};
use super::source::nic;
use super::watch::{Interval, PortInterval};

/// The sums of the intervals.
#[derive(Debug, Default)]
pub struct Recorder {
    seconds: f64,
    queues: BTreeMap<Queue, Series>,
    /// The rates by port, source and quantity.
    counted: BTreeMap<(u16, &'static str, String), Counted>,
    /// By port and sum.
    modelled: BTreeMap<(u16, &'static str), Modelled>,
    notes: BTreeMap<u16, Vec<String>>,
    ports: BTreeMap<u16, Port>,
}

/// A queue's bursts, and its packets per second in each interval.
#[derive(Debug, Default)]
struct Series {
    bursts: Bursts,
    rates: Vec<f64>,
}

#[derive(Debug)]
struct Counted {
    unit: &'static str,
    rates: Vec<f64>,
    /// The number of intervals in which the rate was not known.
    gaps: u64,
}

#[derive(Debug)]
struct Modelled {
    rates: Vec<f64>,
    parameters: Vec<(&'static str, serde_json::Value)>,
}

impl Recorder {
    /// Adds an interval.
    pub fn add(&mut self, interval: &Interval) {
        self.seconds += interval.seconds;
        for port in &interval.ports {
            self.ports.insert(port.number, port.port.clone());
            self.add_port(port, interval.seconds);
            let notes = self.notes.entry(port.number).or_default();
            for note in &port.notes {
                // Two notes that differ only in a number say the same to a reader.
                let is_known = |known: &String| words(known) == words(note);
                if !notes.iter().any(is_known) {
                    notes.push(note.clone());
                }
            }
        }
    }

    fn add_port(&mut self, port: &PortInterval, seconds: f64) {
        for (queue, bursts) in &port.queues {
            let series = self.queues.entry(*queue).or_default();
            series.bursts.add(bursts);
            series.rates.push(bursts.packets() as f64 / seconds);
        }
        for (source, rate) in &port.rates {
            let profile = (port.number, *source, rate.quantity.name().to_owned());
            let unit = rate.quantity.rate_unit();
            let counted =
                self.counted.entry(profile).or_insert(Counted { unit, rates: Vec::new(), gaps: 0 });
            match rate.per_s {
                Ok(rate) => counted.rates.push(rate),
                Err(_) => counted.gaps += 1,
            }
        }
        let Some(profile) = &port.profile else { return };
        let (sums, settings) = (Sums::of(&port.terms), profile.link.settings());
        let payloads = Direction::ALL.map(|direction| {
            let headers = sums.header_bytes_per_s(direction);
            (
                direction.name(),
                sums.payload_bytes_per_s(direction),
                (key::HEADER_BYTES_PER_S, headers),
            )
        });
        let usable = (key::USABLE_BYTES_PER_S, profile.link.usable_bytes_per_s());
        let ways =
            [Way::ToHost, Way::ToDevice].map(|way| (way.name(), sums.bytes_per_s_on(way), usable));
        for (name, value, more) in payloads.into_iter().chain(ways) {
            let modelled = self
                .modelled
                .entry((port.number, name))
                .or_insert(Modelled { rates: Vec::new(), parameters: Vec::new() });
            modelled.rates.push(value);
            modelled.parameters = vec![
                (key::NIC, profile.nic.name.into()),
                (key::DRIVER, profile.version.to_string().into()),
                (key::DRIVER_RULES, profile.version.nearest().to_string().into()),
                (key::MODE, profile.mode.name().into()),
                (key::LINK, profile.link.to_string().into()),
                (key::MPS_BYTES, settings.mps.into()),
                (key::MRRS_BYTES, settings.mrrs.into()),
                (more.0, more.1.into()),
            ];
        }
    }

    /// The watched time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// All results as records of a program of this version; `rerun` is the command.
    #[must_use]
    pub fn records(&self, version: &str, rerun: &str) -> Vec<Record> {
        let program = version.replace(' ', "-").to_lowercase();
        let queues = self.queues.iter().map(|(queue, series)| {
            let subject = Record::new("", name::PCIE_BURST, &program, "packets", "packets/s");
            self.of_queue(subject, *queue, series)
        });
        let counted = self.counted.iter().map(|((port, source, metric), counted)| {
            let mut record = Record::new("", name::PCIE_BURST, source, metric, counted.unit);
            record.samples.clone_from(&counted.rates);
            if *source == nic::NAME {
                record.kind = Kind::Modelled;
            }
            let record = self.of_port(record, *port);
            if counted.gaps > 0 { record.with(key::GAPS, counted.gaps) } else { record }
        });
        let modelled = self.modelled.iter().map(|((port, metric), modelled)| {
            let mut record = Record::new("", name::PCIE_BURST, "haul", metric, "bytes/s");
            (record.kind, record.samples) = (Kind::Modelled, modelled.rates.clone());
            let record = self.of_port(record, *port);
            let all = modelled.parameters.iter();
            all.fold(record, |record, (name, value)| record.with(name, value.clone()))
        });
        let all = queues.chain(counted).chain(modelled);
        all.map(|record| record.with(key::RERUN, rerun)).collect()
    }

    fn of_port(&self, record: Record, port: u16) -> Record {
        let known = self.ports.get(&port).cloned().unwrap_or_default();
        let record = record
            .with(key::PORT, port)
            .with(key::DEVICE, known.name)
            .with(key::PORT_DRIVER, known.driver)
            .with(key::SECONDS, round(self.seconds));
        match self.notes.get(&port).filter(|notes| !notes.is_empty()) {
            Some(notes) => record.with(key::NOTE, notes.join("; ")),
            None => record,
        }
    }

    fn of_queue(&self, mut record: Record, queue: Queue, series: &Series) -> Record {
        record.samples.clone_from(&series.rates);
        let bursts = &series.bursts;
        let full = bursts.polls() - bursts.empty();
        let mut record = self
            .of_port(record, queue.port)
            .with(key::QUEUE, queue.queue)
            .with(key::DIRECTION, queue.direction())
            .with(key::BATCHES, bursts.text())
            .with(key::POLLS, bursts.polls())
            .with(key::EMPTY_POLLS, bursts.empty())
            .with(key::PACKETS_COUNTED, bursts.packets());
        if full > 0 {
            record = record.with(key::AVERAGE_BATCH, round(bursts.packets() as f64 / full as f64));
        }
        for (name, value) in
            [(key::PACKET_BYTES, bursts.mean_bytes()), (key::GAP_NS, bursts.gap_ns())]
        {
            if let Some(value) = value {
                record = record.with(name, round(value));
            }
        }
        record
    }
}

/// Rounds to three digits, which is the precision of a mean of samples.
fn round(value: f64) -> f64 {
    three_digits(value).parse().unwrap_or(value)
}

fn words(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}
