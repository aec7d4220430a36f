//! A running program, one interval at a time: bursts, an estimate from them, and counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul::telemetry;
use haul_machine::sys::PcieDevice;
use haul_model::pcie::{
    Direction, Estimate, Histogram, PcieError, Rate as PacketRate, Sums, Traffic, Transaction,
    Workload, estimate,
};

use super::probe::{self, Bursts, Port, Queue};
use super::profile::{self, Overrides, Profile};
use super::source::ethdev::{Ethdev, Program};
use super::source::{Meter, Quantity, Rate, Tree, nic, of_device, perf, suspicion};
use crate::error::Error;

/// The watched program, and the sources with which haul watches it.
pub struct Settings<'a> {
    /// The program to which haul sends commands.
    pub program: Program,
    /// The version that the program reports.
    pub version: &'a str,
    /// Network devices of this machine.
    pub devices: Vec<PcieDevice>,
    /// `/sys` and `/proc`.
    pub tree: Tree,
    /// The factory of the kernel's counters.
    pub counters: Box<dyn perf::Counters>,
    /// The values that the user names.
    pub overrides: Overrides,
}

/// A watched program. Dropping this value detaches the probe, unless another program had attached
/// it before.
pub struct Watch<'a> {
    settings: Settings<'a>,
    begun: Instant,
    last_at: Duration,
    last: BTreeMap<Queue, Bursts>,
    ports: BTreeMap<u16, Known>,
    is_ours: bool,
}

/// The known properties of a port.
struct Known {
    port: Port,
    profile: Option<Profile>,
    meters: Vec<Meter>,
    notes: Vec<String>,
}

/// An interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// The length of the interval.
    pub seconds: f64,
    /// Each port that exists.
    pub ports: Vec<PortInterval>,
}

/// A port in an interval.
#[derive(Clone, Debug)]
pub struct PortInterval {
    /// The number of the port.
    pub number: u16,
    /// The properties of the port.
    pub port: Port,
    /// The properties that an estimate uses.
    pub profile: Option<Profile>,
    /// The growth of each queue's counters.
    pub queues: Vec<(Queue, Bursts)>,
    /// Rates of each source, by its name.
    pub rates: Vec<(&'static str, Rate)>,
    /// The terms of the estimate; empty if the port has no profile or no packets.
    pub terms: Vec<Transaction>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl PortInterval {
    /// The sum of all queues of a direction.
    #[must_use]
    pub fn sum(&self, receives: bool) -> Bursts {
        let mut sum = Bursts::default();
        let of = self.queues.iter().filter(|(queue, _)| queue.receives == receives);
        of.for_each(|(_, bursts)| sum.add(bursts));
        sum
    }

    /// A source's count of a quantity per second.
    #[must_use]
    pub fn rate(&self, source: &str, name: &str) -> Option<f64> {
        let is_it =
            |(own, rate): &&(&'static str, Rate)| *own == source && rate.quantity.name() == name;
        self.rates.iter().find(is_it)?.1.per_s.ok()
    }
}

impl<'a> Watch<'a> {
    /// Attaches the probe; the first interval begins.
    ///
    /// # Errors
    /// [`Error::NoProbe`], [`Error::Probe`], and errors of telemetry.
    pub fn begin(settings: Settings<'a>) -> Result<Self, Error> {
        let is_ours = match probe::queues(&settings.program) {
            Ok(queues) => queues.is_empty(),
            // The attempt to attach reports that the program does not have the probe.
            Err(Error::Telemetry(telemetry::Error::Refused { .. })) => false,
            Err(error) => return Err(error),
        };
        probe::attach(&settings.program)?;
        let mut watch = Self {
            settings,
            begun: Instant::now(),
            last_at: Duration::ZERO,
            last: BTreeMap::new(),
            ports: BTreeMap::new(),
            is_ours,
        };
        watch.interval()?;
        Ok(watch)
    }

    /// Returns the interval since the last call.
    ///
    /// # Errors
    /// The program does not answer any more, or a named value cannot exist for a new port.
    pub fn interval(&mut self) -> Result<Interval, Error> {
        // Ports may appear at any time. The probe is attached to a new port now, and counts from
        // the next interval on.
        if !self.last.is_empty() {
            probe::attach(&self.settings.program)?;
        }
        let queues = probe::queues(&self.settings.program)?;
        let mut now = BTreeMap::new();
        for queue in queues {
            if let Some(bursts) = probe::bursts(&self.settings.program, queue)? {
                now.insert(queue, bursts);
            }
        }
        let at = self.begun.elapsed();
        let seconds = (at - self.last_at).as_secs_f64();
        let mut by_port: BTreeMap<u16, Vec<(Queue, Bursts)>> = BTreeMap::new();
        for (queue, bursts) in &now {
            let grown = self.last.get(queue).and_then(|before| bursts.since(before));
            by_port.entry(queue.port).or_default().extend(grown.map(|grown| (*queue, grown)));
        }
        self.ports.retain(|number, _| by_port.contains_key(number));
        let mut ports = Vec::new();
        for (number, queues) in by_port {
            ports.push(self.port(number, queues, at, seconds)?);
        }
        (self.last, self.last_at) = (now, at);
        Ok(Interval { seconds, ports })
    }

    fn port(
        &mut self,
        number: u16,
        queues: Vec<(Queue, Bursts)>,
        at: Duration,
        seconds: f64,
    ) -> Result<PortInterval, Error> {
        let port = probe::port(&self.settings.program, number)?;
        if self.ports.get(&number).is_none_or(|known| known.port.name != port.name) {
            let known = self.settings.know(number, port)?;
            self.ports.insert(number, known);
        }
        let known = self.ports.get_mut(&number).expect("it was put there");
        let (mut rates, mut notes) = (Vec::new(), known.notes.clone());
        for meter in &mut known.meters {
            let name = meter.source.name();
            match meter.rates(at) {
                Ok(new) => rates.extend(new.into_iter().map(|rate| (name, rate))),
                Err(error) => notes.push(error.to_string()),
            }
        }
        let mut interval = PortInterval {
            number,
            port: known.port.clone(),
            profile: known.profile.clone(),
            queues,
            rates,
            terms: Vec::new(),
            notes: Vec::new(),
        };
        if let Some(profile) = &known.profile {
            match terms_of(profile, &interval, seconds) {
                Ok(terms) => interval.terms = terms,
                Err(error) => notes.push(format!("there is no estimate: {error}")),
            }
        }
        notes.extend(doubts(&interval, seconds));
        interval.notes = notes;
        Ok(interval)
    }

    /// Detaches the probe, unless another program had attached it.
    ///
    /// # Errors
    /// The program does not answer any more.
    pub fn end(mut self) -> Result<(), Error> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<(), Error> {
        match std::mem::take(&mut self.is_ours) {
            true => probe::detach(&self.settings.program),
            false => Ok(()),
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // The probe cannot be detached from a program that has ended, and need not be.
        let _ = self.let_go();
    }
}

impl Settings<'_> {
    /// The properties of a new port.
    fn know(&self, number: u16, port: Port) -> Result<Known, Error> {
        let (profile, mut notes) =
            profile::of_port(&port, self.version, &self.devices, &self.overrides)?;
        let device = profile::device_of(&port, &self.devices);
        let interfaces = device.map_or(&[][..], |device| &device.interfaces);
        let address = device.map(|device| device.address.as_str());
        let (sources, why) = match address {
            Some(_) => of_device(&self.tree, self.counters.as_ref(), address, interfaces),
            None => (Vec::new(), Vec::new()),
        };
        notes.extend(why);
        let mut meters = vec![Meter::new(Box::new(Ethdev::new(self.program.clone(), number)))];
        if !port.modelled.is_empty() {
            meters.push(Meter::new(Box::new(nic::Nic::new(self.program.clone(), number))));
        }
        meters.extend(sources.into_iter().map(Meter::new));
        let counts_traffic =
            |meter: &Meter| !matches!(meter.source.name(), "ethdev" | "kernel" | "mlx5");
        if profile.is_some() && !meters.iter().any(counts_traffic) {
            notes.push("there is no counter of the link here: only the estimate is shown".into());
        }
        for meter in &meters {
            let about = meter.source.about();
            if counts_traffic(meter) && !about.is_tested {
                notes.push(format!(
                    "{} counts {} in units of {}; it was not compared with a known transfer; {}",
                    meter.source.name(),
                    about.granularity,
                    about.unit,
                    about.traps.join("; ")
                ));
            }
        }
        Ok(Known { port, profile, meters, notes })
    }
}

/// The terms of received and of sent packets, each at its own rate.
fn terms_of(
    profile: &Profile,
    interval: &PortInterval,
    seconds: f64,
) -> Result<Vec<Transaction>, PcieError> {
    let (rx, tx) = (interval.sum(true), interval.sum(false));
    let mut terms = Vec::new();
    for (bursts, traffic, bytes, count) in
        [(&rx, Traffic::Rx, "ibytes", "ipackets"), (&tx, Traffic::Tx, "obytes", "opackets")]
    {
        if bursts.packets() == 0 || seconds <= 0.0 {
            continue;
        }
        let counted = interval.rate("ethdev", count).filter(|rate| *rate > 0.0);
        // Packets that the driver did not accept have not crossed the link.
        let rate = match traffic {
            Traffic::Tx => counted.map(|sent| sent.min(bursts.packets() as f64 / seconds)),
            _ => None,
        };
        let rate = PacketRate::new(rate.unwrap_or(bursts.packets() as f64 / seconds))?;
        let by_stats = interval.rate("ethdev", bytes).zip(counted).map(|(b, c)| b / c);
        let mean = bursts.mean_bytes().or(by_stats.filter(|mean| *mean > 0.0)).unwrap_or(64.0);
        let size = (mean.round() as u32).clamp(1, 65_535);
        let histogram: Histogram = bursts.text().parse()?;
        let workload = Workload {
            traffic,
            ..Workload::forwarding(rate, size.to_string().parse()?, histogram)
        };
        terms.extend(estimate(&Estimate {
            nic: profile.nic,
            version: profile.version,
            mode: profile.mode,
            thresholds: profile.thresholds,
            workload: &workload,
            link: &profile.link,
        })?);
    }
    Ok(terms)
}

/// Notes about figures that contradict each other.
fn doubts(interval: &PortInterval, seconds: f64) -> Vec<String> {
    /// The allowed difference of two reads of the same counters, some milliseconds apart.
    const TOLERANCE: f64 = 0.05;
    let mut doubts = Vec::new();
    let wanted = interval.sum(false).packets() as f64 / seconds;
    if let Some(sent) = interval.rate("ethdev", "opackets")
        && wanted > 0.0
        && sent < wanted * (1.0 - TOLERANCE)
    {
        doubts.push(format!(
            "the driver took {:.0}% of the packets to be sent; the others did not cross the link",
            sent / wanted * 100.0
        ));
    }
    let received = interval.rate("ethdev", "ipackets").unwrap_or(0.0);
    if received > 0.0 && interval.sum(true).polls() == 0 && !interval.queues.is_empty() {
        doubts.push(
            "packets are received, but the program calls no callback: it was built without them \
             (RTE_ETHDEV_RXTX_CALLBACKS), or another process polls; there are no bursts to show"
                .to_owned(),
        );
    }
    let estimated = Sums::of(&interval.terms);
    let usable = interval.profile.as_ref().map(|profile| profile.link.usable_bytes_per_s());
    if usable.is_some_and(|usable| estimated.busier().1 > usable) {
        doubts.push(
            "the estimate is more than the link carries: these packets do not all cross it, or it is \
             another NIC or link; name them with --nic and --link"
                .to_owned(),
        );
    }
    for (source, rate) in &interval.rates {
        if let Err(gap) = rate.per_s {
            doubts.push(format!("{source}: {}: {}", rate.quantity.name(), gap.text()));
        }
        let direction = Direction::ALL.into_iter().find(|direction| {
            rate.quantity == Quantity::of(*direction) && *direction != Direction::OutboundRead
        });
        let (Some(direction), Ok(counted)) = (direction, rate.per_s) else { continue };
        if let Some(why) = suspicion(counted, estimated.payload_bytes_per_s(direction)) {
            doubts.push(format!("{source}: {}: {why}", direction.name()));
        }
    }
    doubts
}
