//! A port whose other side is a modelled NIC: packets arrive at a rate in a ring of buffers, and
//! every transaction that would cross PCIe is counted.
//!
//! [`haul_model::pcie::Device`] counts the descriptors read, the packets and completions written,
//! and the doorbells that the driver rings by its rules. This module holds the packets and the
//! time. The device acts within the port's own calls: each poll does the work that the device
//! would have done since the last poll. This work needs about 20 ns per packet on the worker's
//! core, which a real device does not need.
//!
//! - `time`: when packets arrive.

mod time;

use std::collections::VecDeque;

use haul_model::pcie::{Counts, Device, Setup};

pub use time::{ModelledCore, Time};

use super::contract::{Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::pool::{Burst, Packet, Pool, ROOM_BYTES};

/// The size of an Ethernet header in bytes: shorter packets are not frames.
const FRAME_BYTES_MIN: usize = 14;
/// The longest packet that a descriptor can describe.
const FRAME_BYTES_MAX: usize = 65_535;
/// The largest number of packets that arrive in one call. If more are due, such as after a pause
/// of the whole machine, the rest is dropped without simulation.
const CATCH_UP_MAX: u64 = 1 << 20;
/// How long completions wait for further completions before the device's timer writes them.
const TIMER_NS: u64 = 10_000;

/// The packets that arrive at a modelled NIC, and when.
#[derive(Clone, Debug)]
pub struct NicSettings {
    /// The NIC, its driver, and its link.
    pub setup: Setup,
    /// The size in bytes of each packet that arrives, without its check sequence.
    pub size_bytes: u32,
    /// Packets a second; `None` for as many as each poll requests.
    pub rate: Option<f64>,
    /// How many packets arrive back to back: the rate counts packets, which arrive in groups of
    /// this size.
    pub group: u32,
    /// How many packets arrive in all; `None` for no limit.
    pub packets: Option<u64>,
    /// The time that schedules packets.
    pub time: Time,
}

impl NicSettings {
    /// Packets of 64 B, one by one, as many as each poll requests.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup, size_bytes: 64, rate: None, group: 1, packets: None, time: Time::Clock }
    }
}

/// The port: see the module.
#[derive(Debug)]
pub struct Nic {
    name: String,
    settings: NicSettings,
    device: Device,
    /// Empty buffers that the device owns, in the order in which it fills them.
    posted: VecDeque<Packet>,
    /// Filled buffers that were not polled yet.
    filled: VecDeque<Packet>,
    header: [u8; FRAME_BYTES_MIN],
    /// When the first packet arrived, how many have arrived, and when the last one did.
    start_ns: Option<u64>,
    came: u64,
    last_ns: u64,
    sizes: Vec<u32>,
    counters: Counters,
}

impl Nic {
    /// Opens a port with its ring, which the first poll fills.
    ///
    /// # Errors
    /// [`Error::Value`] if a size, a rate or a group is outside its limits, or if the NIC's own
    /// parameters are invalid.
    pub fn open(name: &str, settings: NicSettings) -> Result<Self, Error> {
        let size = settings.size_bytes as usize;
        let value = |what, value: String, limit| Err(Error::Value { what, value, limit });
        if !(FRAME_BYTES_MIN..=ROOM_BYTES).contains(&size) {
            return value("a packet of", format!("{size} B"), "one buffer holds 14 to 2048 B");
        }
        if settings.rate.is_some_and(|rate| !(1.0..=1e9).contains(&rate)) {
            let rate = settings.rate.unwrap_or_default();
            return value("a rate of", format!("{rate}/s"), "it is 1 to 1,000,000,000 packets/s");
        }
        if !(1..=256).contains(&settings.group) {
            let group = settings.group.to_string();
            return value("a group of", group, "1 to 256 packets come back to back");
        }
        let device = Device::new(settings.setup).map_err(|error| Error::Value {
            what: "a modelled NIC:",
            value: error.to_string(),
            limit: "see haul pcie list --nics",
        })?;
        let mut header = [0x02, 0x68, 0x61, 0x75, 0x6C, 2, 0x02, 0x68, 0x61, 0x75, 0x6C, 1, 0, 0];
        // An EtherType for local experiments, IEEE 802.
        header[12..].copy_from_slice(&0x88B5_u16.to_be_bytes());
        let ring = settings.setup.ring as usize;
        Ok(Self {
            name: name.to_owned(),
            settings,
            device,
            posted: VecDeque::with_capacity(ring),
            filled: VecDeque::with_capacity(ring),
            header,
            start_ns: None,
            came: 0,
            last_ns: 0,
            sizes: Vec::with_capacity(super::pool::BURST_MAX),
            counters: Counters::default(),
        })
    }

    /// The transactions that crossed the modelled link so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        self.device.counts()
    }

    /// Packets that arrived, including the dropped ones.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.came
    }

    /// The time that schedules packets, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.settings.time.now_ns()
    }

    /// Gives the device as many empty buffers as the driver has announced.
    fn post(&mut self, pool: &mut Pool) {
        let announced = self.device.free_buffers() as usize;
        while self.posted.len() < announced {
            let Some(packet) = pool.take(self.settings.size_bytes as usize) else { break };
            self.posted.push_back(packet);
        }
    }

    /// Does the device's work since the last call.
    fn act(&mut self, pool: &mut Pool, asked: usize) {
        let now = self.settings.time.now_ns();
        let start = *self.start_ns.get_or_insert(now);
        let due = match self.settings.rate {
            Some(rate) => {
                let group = u64::from(self.settings.group);
                let due = (now.saturating_sub(start) as f64 * 1e-9 * rate) as u64;
                due / group * group
            }
            None => self.came + asked as u64,
        };
        let due = due.min(self.settings.packets.unwrap_or(u64::MAX));
        let came = due.saturating_sub(self.came);
        if came == 0 {
            if now.saturating_sub(self.last_ns) > TIMER_NS {
                self.device.flush();
            }
            return;
        }
        self.last_ns = now;
        self.came = due;
        let simulated = came.min(CATCH_UP_MAX);
        for _ in 0..simulated {
            self.arrive(pool);
        }
        self.counters.rx.dropped(DropReason::Full, came - simulated);
    }

    fn arrive(&mut self, pool: &mut Pool) {
        if self.posted.is_empty() && self.device.free_buffers() > 0 {
            self.counters.rx.dropped(DropReason::NoBuffer, 1);
            return;
        }
        if !self.device.arrive(self.settings.size_bytes) {
            self.counters.rx.dropped(DropReason::Full, 1);
            return;
        }
        let Some(packet) = self.posted.pop_front() else { return };
        // The packet is longer than a header.
        let _ = pool.write(&packet, 0, &self.header);
        self.filled.push_back(packet);
    }
}

impl Port for Nic {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.post(pool);
        let room = burst.room();
        self.act(pool, room);
        let found = self.device.poll(room as u32) as usize;
        let mut taken = 0;
        while taken < found {
            let Some(packet) = self.filled.pop_front() else { break };
            burst.push(packet);
            taken += 1;
        }
        self.settings.time.poll(taken);
        self.counters.rx.batch(taken, taken as u64 * u64::from(self.settings.size_bytes));
        taken
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        self.sizes.clear();
        let mut bytes = 0;
        while let Some(packet) = burst.pop() {
            let length = pool.length(&packet);
            pool.free(packet);
            match length {
                ..FRAME_BYTES_MIN => self.counters.tx.dropped(DropReason::TooShort, 1),
                FRAME_BYTES_MIN..=FRAME_BYTES_MAX => {
                    self.sizes.push(length as u32);
                    bytes += length as u64;
                }
                _ => self.counters.tx.dropped(DropReason::TooLong, 1),
            }
        }
        self.device.send(&self.sizes);
        self.counters.tx.batch(self.sizes.len(), bytes);
        self.sizes.len()
    }

    fn link(&self) -> Link {
        let is_over = self.settings.packets.is_some_and(|all| self.came >= all);
        if is_over && self.filled.is_empty() { Link::Finished } else { Link::Up }
    }

    fn crossed(&self) -> Option<&Counts> {
        Some(self.counts())
    }

    fn stop(&mut self, pool: &mut Pool) {
        let packets = self.posted.drain(..).chain(self.filled.drain(..));
        packets.for_each(|packet| pool.free(packet));
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

#[cfg(test)]
mod tests {
    use haul_model::pcie::{Histogram, Version, Workload, estimate};

    use super::*;

    fn settings(nic: &str) -> NicSettings {
        let nic: &haul_model::pcie::Nic = nic.parse().unwrap();
        NicSettings::new(Setup::of(*nic, "gen3x8".parse().unwrap()))
    }

    /// Forwards until all packets have passed.
    fn forward(nic: &mut Nic, pool: &mut Pool) {
        let mut burst = Burst::new();
        while nic.link() == Link::Up {
            nic.rx_burst(pool, &mut burst);
            nic.tx_burst(pool, &mut burst);
        }
    }

    /// Groups of 4 arrive at this rate, on a core that needs 100 ns a poll and 25 ns a packet.
    fn at_rate(rate: f64) -> (Nic, Vec<u64>) {
        let mut nic = Nic::open(
            "nic",
            NicSettings {
                rate: Some(rate),
                group: 4,
                packets: Some(100_000),
                time: Time::core(100.0, 25.0),
                ..settings("ice")
            },
        )
        .unwrap();
        let mut pool = Pool::new(4096).unwrap();
        forward(&mut nic, &mut pool);
        assert_eq!(nic.counters().rx.packets + nic.counters().rx.drops_sum(), 100_000);
        let batches = nic.counters().rx.batches.to_vec();
        nic.stop(&mut pool);
        assert_eq!(pool.available(), pool.size());
        (nic, batches)
    }

    #[test]
    fn batches_grow_with_rate_and_estimate_equals_counters() {
        let mut before = 0.0;
        for rate in [1e6, 5e6, 1e7, 2e7, 3e7] {
            let (nic, batches) = at_rate(rate);
            let batches = Histogram::of_counts(&batches).unwrap();
            assert!(batches.mean_of_polls() >= before, "{rate}: {batches:?}");
            before = batches.mean_of_polls();
            let setup = &nic.settings.setup;
            let rate = haul_model::pcie::Rate::new(nic.counters().rx.packets as f64).unwrap();
            let workload = Workload::forwarding(rate, "64".parse().unwrap(), batches);
            let terms = estimate(&haul_model::pcie::Estimate {
                nic: setup.nic,
                version: Version::LAST,
                mode: setup.mode,
                thresholds: setup.thresholds,
                workload: &workload,
                link: &setup.link,
            })
            .unwrap();
            for term in terms {
                let counted = nic.counts().get(term.what).unwrap().count as f64;
                let off = term.count_per_s - counted;
                // The remainder of a period: buffers not returned yet, a report not requested yet.
                assert!(off.abs() <= 4.0, "{}: {} counted {counted}", term.what, term.count_per_s);
            }
        }
        assert!(before > 4.0, "no batch grew");
    }

    #[test]
    fn stalled_machine_drops_packets_beyond_ring() {
        let time = Time::core(1e9, 0.0);
        let mut nic =
            Nic::open("nic", NicSettings { rate: Some(1e8), time, ..settings("ice") }).unwrap();
        let mut pool = Pool::new(2048).unwrap();
        let mut burst = Burst::new();
        for _ in 0..3 {
            nic.rx_burst(&mut pool, &mut burst);
            pool.free_burst(&mut burst);
        }
        let rx = &nic.counters().rx;
        assert!(rx.drops_for(DropReason::Full) > 190_000_000, "{:?}", rx.drops);
        assert_eq!(nic.came(), 200_000_000);
        nic.stop(&mut pool);
    }

    #[test]
    fn timer_writes_waiting_completions() {
        let time = Time::core(4_000.0, 0.0);
        let settings = NicSettings { packets: Some(3), rate: Some(1e9), time, ..settings("igb") };
        let mut nic = Nic::open("nic", settings).unwrap();
        let mut pool = Pool::new(2048).unwrap();
        let mut burst = Burst::new();
        let found: Vec<usize> = (0..6).map(|_| nic.rx_burst(&mut pool, &mut burst)).collect();
        assert_eq!(found.iter().sum::<usize>(), 3, "{found:?}");
        assert_eq!(found[..3], [0, 0, 0], "four are written together: {found:?}");
        pool.free_burst(&mut burst);
        nic.stop(&mut pool);
    }

    #[test]
    fn open_rejects_settings_outside_limits() {
        for settings in [
            NicSettings { size_bytes: 13, ..settings("ice") },
            NicSettings { size_bytes: 9000, ..settings("ice") },
            NicSettings { rate: Some(0.0), ..settings("ice") },
            NicSettings { rate: Some(f64::NAN), ..settings("ice") },
            NicSettings { group: 0, ..settings("ice") },
            NicSettings { setup: Setup { ring: 1, ..settings("ice").setup }, ..settings("ice") },
        ] {
            assert!(Nic::open("nic", settings.clone()).is_err(), "{settings:?}");
        }
    }
}
