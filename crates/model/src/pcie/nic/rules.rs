//! The behaviours of drivers and devices, as types.

use super::version::Version;
use crate::pcie::error::PcieError;

/// The kind of a driver's burst functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver handles the packets one at a time.
    Scalar,
    /// The driver allocates buffers in bulk.
    Bulk,
    /// The driver uses vector instructions: SSE, AVX, Neon.
    Vector,
}

/// The rule by which the driver writes the receive ring's tail register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxDoorbell {
    /// After a poll, if the driver holds more descriptors than the free threshold.
    Above,
    /// After a poll, if the driver holds at least as many descriptors as the free threshold.
    AtLeast,
    /// After a poll, once for every full portion of held descriptors. A portion is as large as
    /// the free threshold.
    Threshold,
    /// Once per batch of this many packets, valid from the given release on. The releases ascend.
    Batch(&'static [(Version, u32)]),
    /// After each poll that returned a packet.
    Poll,
    /// Once the driver holds at least this many descriptors: for all held descriptors, rounded
    /// down to a multiple of four.
    Fours(u32),
    /// Never: the driver announces free buffers in memory.
    Memory,
}

/// The rule by which the driver writes the transmit ring's tail register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxDoorbell {
    /// Once for each burst.
    Burst,
    /// Once per chunk of this many packets in a burst. The last chunk may be smaller.
    Chunk(u32),
    /// Like [`TxDoorbell::Chunk`], with the report-status threshold as the size of a chunk.
    ReportStatus,
}

/// The number of descriptors that a device reads with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The largest number of descriptors.
    pub descriptors: u32,
    /// The source of the number; an assumption is marked as one.
    pub source: &'static str,
}

/// The writes of a device to memory after packets were received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The size of one completion in bytes.
    pub bytes: u32,
    /// The rule by which the device writes a completion.
    pub every: WriteBack,
    /// The number of completions that one write contains.
    pub together: u32,
}

/// The rule by which a device writes completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// One for each descriptor.
    Each,
    /// One for each packet, for its last descriptor.
    Packet,
    /// One for as many descriptors as the report-status threshold says.
    ReportStatus,
    /// One for this many packets.
    Packets(u32),
    /// One for each doorbell.
    Doorbell,
}

/// The rule by which a driver reports to the device how far it has read the completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionDoorbells {
    /// For received packets: once per chunk of this many packets in a poll. The last chunk may be
    /// smaller.
    pub rx_packets: u32,
    /// For sent packets: once if at least this many descriptors are with the device at the start of
    /// a burst.
    pub tx_descriptors: u32,
}

/// The form in which sent packets are described to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxDescriptors {
    /// One descriptor for each buffer, and one for a context, in a ring that the device reads.
    Ring {
        /// The size of one descriptor in bytes.
        bytes: u32,
    },
    /// Work entries of several packets: a head and a segment for each buffer, padded to a block.
    Entries {
        /// The size of an entry's head in bytes.
        head_bytes: u32,
        /// The size of a buffer's segment in bytes.
        each_bytes: u32,
        /// Entries are padded to a multiple of this many bytes.
        block_bytes: u32,
        /// The largest number of packets in one entry.
        packets: u32,
    },
    /// The processor writes descriptors and the packet's first bytes into the device's memory.
    Pushed {
        /// The size of an entry in bytes.
        entry_bytes: u32,
        /// The size of one descriptor in an entry, in bytes.
        each_bytes: u32,
        /// The number of descriptors that precede the packet's first bytes in the first entry.
        before_header: u32,
        /// The largest number of bytes of entries between two doorbells, if the device has such a
        /// limit.
        between_doorbells: Option<u32>,
    },
}

/// The rule by which the driver copies short packets into their descriptors, so that the device
/// need not read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// The largest such packet, in bytes.
    pub bytes_max: u32,
    /// The bytes that are added to each packet before it is padded to `align_bytes`.
    pub extra_bytes: u32,
    /// The alignment in bytes to which a packet is padded.
    pub align_bytes: u32,
}

/// The thresholds that a program may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// `rx_free_thresh`.
    pub rx_free: u32,
    /// `tx_rs_thresh`.
    pub tx_rs: u32,
}

/// An option with which a driver may be built or started and that changes the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The name: `rx-16-byte`.
    pub name: &'static str,
    /// A description, and how to set it.
    pub about: &'static str,
    /// Applies the option to a NIC.
    pub apply: fn(&mut Nic),
    /// Whether the option selects another device, so that a program or a build cannot set the
    /// option.
    pub is_device: bool,
}

/// A NIC with its driver in DPDK.
#[derive(Clone, Copy, Debug)]
pub struct Nic {
    /// The name of the driver: the name of its folder in DPDK.
    pub name: &'static str,
    /// The devices that it drives.
    pub devices: &'static str,
    /// The speed of the devices' fastest port, in Gb/s; `None` if that is not a property of the
    /// device.
    pub line_gigabits: Option<u32>,
    /// The size of a receive descriptor in bytes, as the device reads it.
    pub rx_descriptor_bytes: u32,
    /// The number of receive descriptors that the device reads with one request.
    pub rx_fetch: Fetch,
    /// The device's completions for received packets.
    pub rx_completion: Completion,
    /// The modes of the driver with their doorbell rules, the usual mode last.
    pub modes: &'static [(Mode, RxDoorbell, TxDoorbell)],
    /// The form in which sent packets are described.
    pub tx_descriptors: TxDescriptors,
    /// The number of transmit descriptors (for entries, of 16 B pieces) that the device reads at
    /// once.
    pub tx_fetch: Fetch,
    /// The device's completions for sent packets.
    pub tx_completion: Completion,
    /// The size of a doorbell in bytes.
    pub doorbell_bytes: u32,
    /// The doorbells of the completion rings, if the driver writes such doorbells.
    pub completion_doorbells: Option<CompletionDoorbells>,
    /// The rule for short packets that the device need not read.
    pub inline: Option<Inline>,
    /// The default thresholds.
    pub thresholds: Thresholds,
    /// The build and start options.
    pub choices: &'static [Choice],
    /// The source of the numbers.
    pub source: &'static str,
    /// The traffic that is not counted, or not known.
    pub remarks: &'static str,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Bulk, Self::Vector];

    /// `scalar`, `bulk` or `vector`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Bulk => "bulk",
            Self::Vector => "vector",
        }
    }
}

impl RxDoorbell {
    /// The packets for one doorbell, if the rule has a fixed number for this release.
    #[must_use]
    pub fn batch(self, version: Version) -> Option<u32> {
        let Self::Batch(rows) = self else { return None };
        let known = rows.iter().rev().find(|(from, _)| *from <= version.nearest());
        known.or(rows.first()).map(|(_, packets)| *packets)
    }
}

impl Nic {
    /// The mode that the driver chooses by itself if it can.
    #[must_use]
    pub fn usual_mode(&self) -> Mode {
        self.modes.last().map_or(Mode::Scalar, |(mode, _, _)| *mode)
    }

    /// A mode by its name.
    ///
    /// # Errors
    /// [`PcieError::Mode`] if this driver has no such mode.
    pub fn mode(&self, name: &str) -> Result<Mode, PcieError> {
        let found = self.modes.iter().find(|(mode, _, _)| mode.name() == name);
        found.map(|(mode, _, _)| *mode).ok_or_else(|| PcieError::Mode {
            nic: self.name,
            mode: name.to_owned(),
            known: listed(self.modes.iter().map(|(mode, _, _)| mode.name())),
        })
    }

    /// Both doorbell rules of a mode. If the driver has no such mode, the rules of its usual
    /// mode.
    #[must_use]
    pub fn doorbells(&self, mode: Mode) -> (RxDoorbell, TxDoorbell) {
        let found = self.modes.iter().find(|(known, _, _)| *known == mode).or(self.modes.last());
        found.map_or((RxDoorbell::Memory, TxDoorbell::Burst), |(_, rx, tx)| (*rx, *tx))
    }

    /// This NIC with a build or start option applied.
    ///
    /// # Errors
    /// [`PcieError::Choice`] if it has no such option.
    pub fn with(mut self, option: &str) -> Result<Self, PcieError> {
        let found = self.choices.iter().find(|choice| choice.name == option);
        let choice = found.ok_or_else(|| PcieError::Choice {
            nic: self.name,
            option: option.to_owned(),
            known: listed(self.choices.iter().map(|choice| choice.name)),
        })?;
        (choice.apply)(&mut self);
        Ok(self)
    }

    /// The size of a transmit descriptor in bytes. For work entries, it is the size of an entry
    /// with one packet.
    #[must_use]
    pub fn tx_descriptor_bytes(&self) -> u32 {
        match self.tx_descriptors {
            TxDescriptors::Ring { bytes } => bytes,
            TxDescriptors::Entries { head_bytes, each_bytes, block_bytes, .. } => {
                (head_bytes + each_bytes).next_multiple_of(block_bytes)
            }
            TxDescriptors::Pushed { entry_bytes, .. } => entry_bytes,
        }
    }
}

impl TxDescriptors {
    /// The number of entries that are pushed for a packet with this many descriptors; 0 if
    /// descriptors are not pushed.
    pub(in crate::pcie) fn pushes(self, descriptors: u32) -> u32 {
        let Self::Pushed { entry_bytes, each_bytes, before_header, .. } = self else { return 0 };
        let beyond = descriptors.saturating_sub(before_header) * each_bytes;
        1 + beyond.div_ceil(entry_bytes)
    }

    /// The number of packets with this many descriptors that can be pushed until a doorbell must be
    /// written.
    pub(in crate::pcie) fn packets_until_doorbell(self, descriptors: u32) -> u32 {
        match self {
            Self::Pushed { entry_bytes, between_doorbells: Some(bytes), .. } => {
                (bytes / entry_bytes / self.pushes(descriptors)).max(1)
            }
            _ => u32::MAX,
        }
    }
}

pub(super) fn listed(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
