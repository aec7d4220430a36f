//! One core forwards a modelled NIC's packets, at one rate after the other. The device's counts
//! are compared with the estimate for the batches that occurred.
//!
//! The core polls, swaps the addresses of each packet and sends it, and spends the time `work`
//! for each burst. These times determine the sizes of batches. At a low rate most polls are
//! empty. The nearer the core is to its limit, the more packets wait at each poll.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use haul::forward::{Burst, Direction as Side, Nic, NicSettings, Pool, Port, Time};
use haul_measure::{Caches, Progress, sys};
use haul_model::experiment::{key, name};
use haul_model::pcie::{
    Counts, Direction, Estimate, Histogram, Packets, Rate, Setup, Sums, Swept, Transaction,
    Workload, estimate, fracture,
};
use haul_model::{Kind, Record};

use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL};

/// The share of the time of each rate that passes before counting begins.
const WARM_UP: f64 = 0.1;
/// The number of polls between two checks of the clock and of the stop flag.
const POLLS_BETWEEN: u32 = 256;
/// The least number of packets of a reliable result.
const PACKETS_LEAST: u32 = 100;
/// Bytes of the two addresses of a frame.
const ADDRESSES_BYTES: usize = 12;

/// A sweep over rates: see the module.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The NIC, its driver and its link.
    pub setup: Setup,
    /// Bytes of each packet.
    pub size_bytes: u32,
    /// Packets a second, ascending.
    pub rates: Vec<f64>,
    /// The number of packets that arrive together.
    pub group: u32,
    /// The number of packets that a poll requests.
    pub burst: usize,
    /// The time that the program spends for each burst that is not empty, in addition to forwarding
    /// it.
    pub work: Duration,
    /// The clock that decides when packets arrive.
    pub time: Time,
    /// The measured time of each rate. With a modelled core, this is modelled time.
    pub each: Duration,
}

/// The result of one rate.
struct Ran {
    seconds: f64,
    rx: Side,
    tx: Side,
    counts: Counts,
}

impl Experiment for Sweep {
    fn name(&self) -> String {
        format!("PCIe sweep, {} in mode {}", self.setup.nic.name, self.setup.mode.name())
    }

    fn budget(&self) -> Duration {
        self.each * self.rates.len() as u32
    }

    fn set_budget(&mut self, budget: Duration) {
        self.each = budget / (self.rates.len() as u32).max(1);
    }

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
    }

    /// For each rate, emits a record of its packets, and records of the four metrics and of every
    /// transaction, each counted and estimated. At the end, emits the rate at which the curve of
    /// outbound writes breaks.
    ///
    /// # Errors
    /// The NIC or a rate cannot exist, or there is no memory for packets.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        if let Some(cpu) = context.cpus.first()
            && matches!(self.time, Time::Clock)
            && !sys::set_affinity(&[*cpu])
        {
            (context.warn)("cannot pin this thread to one core: rates near its limit may differ");
        }
        let mut pool = Pool::new(self.setup.ring + 1024)?;
        let (began, mut swept) = (Instant::now(), Vec::new());
        for (rounds, rate) in self.rates.iter().enumerate() {
            if context.is_stopped() {
                break;
            }
            let ran = self.run(*rate, &mut pool, context)?;
            if let Some(point) = self.emit(*rate, &ran, context)? {
                swept.push(point);
            }
            let (elapsed, budget) = (began.elapsed(), self.budget());
            context.report_progress(&self.name(), Progress { rounds, elapsed, budget });
        }
        // Near the core's limit, a higher rate may result in fewer packets.
        swept.sort_by(|a: &Swept, b: &Swept| a.packets_per_s.total_cmp(&b.packets_per_s));
        if let Some(found) = fracture(&swept) {
            let at = swept[found.before].packets_per_s;
            let mut record = self.record("haul", "break", "packets/s", at);
            record = record.with(key::NOTE, found.text).with(key::AVERAGE_BATCH, found.batch.0);
            context.emit(record);
        }
        Ok(())
    }
}

impl Sweep {
    /// Checks the NIC and every rate, so that no rate runs if the NIC or any rate cannot exist.
    ///
    /// # Errors
    /// The NIC or a rate cannot exist. The error names the first one that cannot.
    pub fn check(&self) -> Result<(), Error> {
        // The checks that apply to any rate come first: a group that fits is small.
        self.rates.iter().try_for_each(|rate| {
            Nic::open("nic", self.settings(*rate)).map(drop).map_err(Error::from)
        })?;
        let least = PACKETS_LEAST.max(4 * self.group);
        let comes = |rate: &f64| rate * self.each.as_secs_f64();
        if let Some(rate) = self.rates.iter().find(|rate| comes(rate) < f64::from(least)) {
            return Err(haul::forward::Error::Value {
                what: "a rate of",
                value: format!("{rate:.0}/s for {:?}", self.each),
                limit: "a hundred packets and four groups of them have to come; take a longer \
                        --for, or higher rates",
            }
            .into());
        }
        Ok(())
    }

    fn settings(&self, rate: f64) -> NicSettings {
        NicSettings {
            setup: self.setup,
            size_bytes: self.size_bytes,
            rate: Some(rate),
            group: self.group,
            packets: None,
            time: self.time.clone(),
        }
    }

    fn run(&self, rate: f64, pool: &mut Pool, context: &Context<'_>) -> Result<Ran, Error> {
        let mut nic = Nic::open("nic", self.settings(rate))?;
        let start = nic.now_ns();
        let each_ns = self.each.as_nanos() as u64;
        let warm = start + (each_ns as f64 * WARM_UP) as u64;
        self.forward_until(warm, &mut nic, pool, context);
        let (counters, counts) = (nic.counters().clone(), nic.counts().clone());
        let from = nic.now_ns();
        self.forward_until(from + each_ns, &mut nic, pool, context);
        let seconds = (nic.now_ns() - from) as f64 * 1e-9;
        let since = nic.counters().since(&counters);
        let counts = nic.counts().since(&counts);
        nic.stop(pool);
        Ok(Ran { seconds, rx: since.rx, tx: since.tx, counts })
    }

    /// The program: an L2 forwarder on one port.
    fn forward_until(&self, end_ns: u64, nic: &mut Nic, pool: &mut Pool, context: &Context<'_>) {
        let mut burst = Burst::with_limit(self.burst);
        while nic.now_ns() < end_ns && !context.is_stopped() {
            for _ in 0..POLLS_BETWEEN {
                if nic.rx_burst(pool, &mut burst) == 0 {
                    continue;
                }
                swap_addresses(pool, &burst);
                self.work();
                nic.tx_burst(pool, &mut burst);
            }
        }
    }

    fn work(&self) {
        if self.work.is_zero() {
            return;
        }
        let began = Instant::now();
        while began.elapsed() < self.work {
            spin_loop();
        }
    }

    /// Emits the records of one rate. Returns the point of the curve, if packets arrived.
    fn emit(
        &self,
        offered: f64,
        ran: &Ran,
        context: &mut Context<'_>,
    ) -> Result<Option<Swept>, Error> {
        let Ok(batches) = Histogram::of_counts(&ran.rx.batches) else {
            (context.warn)(&format!(
                "at {offered:.0} packets/s no packet arrived in {:?}",
                self.each
            ));
            return Ok(None);
        };
        let sent = Histogram::of_counts(&ran.tx.batches)?;
        let forwarded = ran.rx.packets as f64 / ran.seconds;
        let rate = Rate::new(forwarded)?;
        let describe = |record: Record| {
            record
                .with(key::OFFERED_PACKETS_PER_S, offered)
                .with(key::RATE_PACKETS_PER_S, forwarded)
        };
        let average = batches.mean_of_polls();
        let kind = if matches!(self.time, Time::Clock) { Kind::Measured } else { Kind::Modelled };
        let mut record = describe(self.record("haul:nic", "rate", "packets/s", forwarded))
            .with(key::RX_BATCHES, pairs(&batches))
            .with(key::TX_BATCHES, pairs(&sent))
            .with(key::AVERAGE_BATCH, average)
            .with(key::PACKETS, ran.rx.packets)
            .with(key::DROPPED, ran.rx.drops_sum());
        record.kind = kind;
        context.emit(record);
        let estimated = self.estimated(rate, &batches, &sent)?;
        let counted = ran.counts.terms(ran.seconds);
        for (terms, basis) in [(&counted, "counted"), (&estimated, "estimated")] {
            for record in self.of_terms(terms) {
                context.emit(describe(record.with(key::BASIS, basis)));
            }
        }
        let outbound_write = Sums::of(&counted).payload_bytes_per_s(Direction::OutboundWrite);
        Ok(Some(Swept { packets_per_s: forwarded, batches, outbound_write }))
    }

    fn estimated(
        &self,
        rate: Rate,
        batches: &Histogram,
        sent: &Histogram,
    ) -> Result<Vec<Transaction>, Error> {
        let Setup { nic, version, mode, thresholds, link, segments, context, offset, .. } =
            self.setup;
        let packets = Packets::of_one(self.size_bytes)?;
        let workload = Workload {
            tx: sent.clone(),
            segments,
            context,
            offset,
            ..Workload::forwarding(rate, packets, batches.clone())
        };
        let what = Estimate { nic, version, mode, thresholds, workload: &workload, link: &link };
        Ok(estimate(&what)?)
    }

    /// The records of each transaction, and of the four metrics.
    fn of_terms(&self, terms: &[Transaction]) -> Vec<Record> {
        let sums = Sums::of(terms);
        let metrics = Direction::ALL.map(|direction| {
            let data = sums.payload_bytes_per_s(direction);
            self.record("haul", direction.name(), "bytes/s", data)
                .with(key::HEADER_BYTES_PER_S, sums.header_bytes_per_s(direction))
        });
        let each = terms.iter().map(|term| {
            self.record("haul", "transaction", "bytes/s", term.count_per_s * term.payload_bytes)
                .with(key::WHAT, term.what)
                .with(key::DIRECTION, term.direction.name())
                .with(key::COUNT_PER_S, term.count_per_s)
                .with(key::PAYLOAD_BYTES, term.payload_bytes)
                .with(key::HEADER_BYTES, term.header_bytes)
        });
        metrics.into_iter().chain(each).collect()
    }

    fn record(&self, subject: &str, metric: &str, unit: &str, sample: f64) -> Record {
        let setup = &self.setup;
        let settings = setup.link.settings();
        let time = if matches!(self.time, Time::Clock) { "clock" } else { "modelled core" };
        let mut record = Record::new("", name::PCIE_SWEEP, subject, metric, unit)
            .with(key::NIC, setup.nic.name)
            .with(key::DRIVER_RULES, setup.version.nearest().to_string())
            .with(key::MODE, setup.mode.name())
            .with(key::SIZE_BYTES, self.size_bytes)
            .with(key::GROUP, self.group)
            .with(key::WORK_NS, self.work.as_nanos() as u64)
            .with(key::TIME, time)
            .with(key::LINK, setup.link.to_string())
            .with(key::MPS_BYTES, settings.mps)
            .with(key::MRRS_BYTES, settings.mrrs);
        record.kind = Kind::Modelled;
        record.samples = vec![sample];
        record
    }
}

/// Polls by their number of packets, empty ones first: `0:5,4:10`.
fn pairs(batches: &Histogram) -> String {
    let empty = (batches.empty() > 0).then_some((0, batches.empty()));
    let all = empty.into_iter().chain(batches.batches().iter().copied());
    all.map(|(batch, polls)| format!("{batch}:{polls}")).collect::<Vec<_>>().join(",")
}

fn swap_addresses(pool: &mut Pool, burst: &Burst) {
    let mut swapped = [0; ADDRESSES_BYTES];
    burst.for_each(|packet| {
        if pool.read(packet, 0, &mut swapped) {
            swapped.rotate_left(ADDRESSES_BYTES / 2);
            let is_written = pool.write(packet, 0, &swapped);
            debug_assert!(is_written, "the histogram can be written");
        }
    });
}

#[cfg(test)]
mod tests;
