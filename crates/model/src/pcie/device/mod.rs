//! A NIC and its driver that do for each packet what their rules say, and count every transaction.
//!
//! The estimate reckons with means; this counts one by one, so that each checks the other. Nothing
//! is timed here: packets arrive, polls and bursts come when the caller says so, and the device
//! acts at once on what it is told.
//!
//! - `counts`: what crossed the link, by transaction;
//! - `hardware`: the device: reads descriptors, writes packets and completions;
//! - `driver`: the driver: when it tells the device what.

mod counts;
mod driver;
mod hardware;

#[cfg(test)]
mod tests;

pub use counts::{Count, Counts};

use super::error::PcieError;
use super::estimate::{Estimate, check_thresholds};
use super::link::Link;
use super::nic::{Mode, Nic, Thresholds, Version};
use super::workload::in_range;
use driver::Driver;
use hardware::Hardware;

/// What a modelled NIC is made of: an [`Estimate`] without a rate and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The NIC, its options taken.
    pub nic: Nic,
    /// The driver's release.
    pub version: Version,
    /// Its burst mode; one that the driver has.
    pub mode: Mode,
    /// What the program sets.
    pub thresholds: Thresholds,
    /// The link.
    pub link: Link,
    /// Buffers that a packet is spread over.
    pub segments: u32,
    /// Whether each sent packet has a context descriptor before it.
    pub context: bool,
    /// How far into a cache line each packet begins, in bytes.
    pub offset: u32,
    /// Descriptors of the receive ring.
    pub ring: u32,
}

/// A NIC with its driver: one queue pair.
///
/// ```
/// use haul_model::pcie::{Device, Setup};
/// let nic: &haul_model::pcie::Nic = "ice".parse().unwrap();
/// let mut device = Device::new(Setup::of(*nic, "gen3x8".parse().unwrap())).unwrap();
/// for _ in 0..64 {
///     for _ in 0..4 {
///         assert!(device.arrive(64));
///     }
///     assert_eq!(device.poll(32), 4);
///     device.send(&[64; 4]);
/// }
/// let doorbells = device.counts().get("tx doorbell").unwrap();
/// assert_eq!(doorbells.count, 64);
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    hardware: Hardware,
    driver: Driver,
    counts: Counts,
}

impl Setup {
    /// The driver's usual mode and thresholds, one aligned buffer a packet, a ring of 1,024.
    #[must_use]
    pub fn of(nic: Nic, link: Link) -> Self {
        Self {
            nic,
            version: Version::LAST,
            mode: nic.usual_mode(),
            thresholds: nic.thresholds,
            link,
            segments: 1,
            context: false,
            offset: 0,
            ring: 1024,
        }
    }

    /// What an estimate is of, as a device with a ring of so many descriptors.
    #[must_use]
    pub fn from_estimate(what: &Estimate<'_>, ring: u32) -> Self {
        Self {
            nic: what.nic,
            version: what.version,
            mode: what.mode,
            thresholds: what.thresholds,
            link: *what.link,
            segments: what.workload.segments,
            context: what.workload.context,
            offset: what.workload.offset,
            ring,
        }
    }
}

impl Device {
    /// A device whose receive ring is full of empty buffers.
    ///
    /// # Errors
    /// A threshold or a number is beyond what there can be, or the ring is so small that the driver
    /// would never announce a buffer.
    pub fn new(setup: Setup) -> Result<Self, PcieError> {
        check_thresholds(&setup.nic, setup.mode, setup.thresholds)?;
        in_range("segments", u64::from(setup.segments), 1, 255)?;
        in_range("offset", u64::from(setup.offset), 0, 63)?;
        let driver = Driver::new(&setup);
        let least = u64::from(driver.held_most()) + 64;
        in_range("descriptors of the receive ring", u64::from(setup.ring), least, 32_768)?;
        Ok(Self { hardware: Hardware::new(&setup), driver, counts: Counts::default() })
    }

    /// A packet comes from the wire. Whether it was taken: without a free buffer it is dropped.
    pub fn arrive(&mut self, bytes: u32) -> bool {
        self.hardware.receive(bytes, &mut self.counts)
    }

    /// The device's timer: completions that wait for others are written now.
    pub fn flush(&mut self) {
        self.hardware.flush(&mut self.counts);
    }

    /// Packets that a poll would find.
    #[must_use]
    pub fn ready(&self) -> u32 {
        self.hardware.ready()
    }

    /// Packets for which the device has empty buffers.
    #[must_use]
    pub fn free_buffers(&self) -> u32 {
        self.hardware.free_buffers()
    }

    /// The driver polls for at most so many packets: how many it returns, oldest first.
    pub fn poll(&mut self, most: u32) -> u32 {
        self.driver.poll(most, &mut self.hardware, &mut self.counts)
    }

    /// The driver sends packets of these sizes, in bytes, by one call.
    pub fn send(&mut self, sizes: &[u32]) {
        self.driver.send(sizes, &mut self.hardware, &mut self.counts);
    }

    /// What crossed the link so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Packets that were dropped because no buffer was free.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.hardware.dropped()
    }
}
