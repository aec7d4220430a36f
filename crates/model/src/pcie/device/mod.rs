//! A NIC and its driver that apply their rules to each packet and count every transaction.
//!
//! The estimate uses means, and this module counts transactions one by one, so that each checks the
//! other. There is no clock: the caller decides when packets arrive and when the driver polls and
//! sends, and the device acts at once.
//!
//! - `counts`: the counted traffic, by transaction;
//! - `hardware`: the device: reads descriptors, writes packets and completions;
//! - `driver`: the driver: announces buffers and packets to the device.

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

/// The parameters of a modelled NIC: the parameters of an [`Estimate`], without rate and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The NIC with its options applied.
    pub nic: Nic,
    /// The driver's release.
    pub version: Version,
    /// The burst mode, which the driver must have.
    pub mode: Mode,
    /// The thresholds that the program sets.
    pub thresholds: Thresholds,
    /// The link.
    pub link: Link,
    /// The number of buffers of a packet.
    pub segments: u32,
    /// Whether a context descriptor precedes each sent packet.
    pub context: bool,
    /// The offset of each packet's start in a cache line, in bytes.
    pub offset: u32,
    /// The number of descriptors in the receive ring.
    pub ring: u32,
}

/// A NIC with its driver and one queue pair.
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
    /// The driver's usual mode and thresholds, one aligned buffer for each packet, and a ring of
    /// 1,024 descriptors.
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

    /// The inputs of an estimate as a setup, with a ring of this many descriptors.
    #[must_use]
    pub fn from_estimate(inputs: &Estimate<'_>, ring: u32) -> Self {
        Self {
            nic: inputs.nic,
            version: inputs.version,
            mode: inputs.mode,
            thresholds: inputs.thresholds,
            link: *inputs.link,
            segments: inputs.workload.segments,
            context: inputs.workload.context,
            offset: inputs.workload.offset,
            ring,
        }
    }
}

impl Device {
    /// A device whose receive ring is full of empty buffers.
    ///
    /// # Errors
    /// It is an error if a threshold or a number is out of range, or if the ring is so small that
    /// the driver would never announce a buffer.
    pub fn new(setup: Setup) -> Result<Self, PcieError> {
        check_thresholds(&setup.nic, setup.mode, setup.thresholds)?;
        in_range("segments", u64::from(setup.segments), 1, 255)?;
        in_range("offset", u64::from(setup.offset), 0, 63)?;
        let driver = Driver::new(&setup);
        let least = u64::from(driver.held_most()) + 64;
        in_range("descriptors of the receive ring", u64::from(setup.ring), least, 32_768)?;
        Ok(Self { hardware: Hardware::new(&setup), driver, counts: Counts::default() })
    }

    /// Lets a packet arrive from the wire. Returns whether the device accepted it; without a free
    /// buffer, the packet is dropped.
    pub fn arrive(&mut self, bytes: u32) -> bool {
        self.hardware.receive(bytes, &mut self.counts)
    }

    /// Lets the device's timer expire: the device writes the completions that wait for others.
    pub fn flush(&mut self) {
        self.hardware.flush(&mut self.counts);
    }

    /// The number of packets that a poll would find.
    #[must_use]
    pub fn ready(&self) -> u32 {
        self.hardware.ready()
    }

    /// The number of packets for which the device has empty buffers.
    #[must_use]
    pub fn free_buffers(&self) -> u32 {
        self.hardware.free_buffers()
    }

    /// Lets the driver poll for at most `most` packets. Returns the number of packets, which are
    /// the oldest.
    pub fn poll(&mut self, most: u32) -> u32 {
        self.driver.poll(most, &mut self.hardware, &mut self.counts)
    }

    /// Lets the driver send packets of these sizes in bytes, with one call.
    pub fn send(&mut self, sizes: &[u32]) {
        self.driver.send(sizes, &mut self.hardware, &mut self.counts);
    }

    /// The traffic that has crossed the link so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The number of packets that were dropped because no buffer was free.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.hardware.dropped()
    }
}
