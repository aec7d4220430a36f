//! What a driver or a device can do, as types.

use super::version::Version;
use crate::pcie::error::PcieError;

/// How a driver's burst functions work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One packet after the other.
    Scalar,
    /// Buffers allocated in bulk.
    Bulk,
    /// SSE, AVX, Neon.
    Vector,
}

/// When the register behind the receive ring's tail is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxDoorbell {
    /// After a poll that leaves more than the free threshold held.
    Above,
    /// After a poll that leaves at least the free threshold held.
    AtLeast,
    /// Once for each free threshold of packets.
    Threshold,
    /// Once for each of these many packets, from a release on; ascending.
    Batch(&'static [(Version, u32)]),
    /// After each poll that returned something.
    Poll,
    /// Where at least these many are held, for all of them in whole fours.
    Fours(u32),
    /// Never: what is free stands in memory.
    Memory,
}

/// When the register behind the transmit ring's tail is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxDoorbell {
    /// Once a burst.
    Burst,
    /// Once for each of these many packets of a burst, or a part of them.
    Chunk(u32),
    /// Once for each report-status threshold of packets of a burst, or a part of it.
    ReportStatus,
}

/// How many descriptors a device reads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// At most these many.
    pub descriptors: u32,
    /// Where the number is from; an assumption says so.
    pub source: &'static str,
}

/// What a device writes into memory when packets have come or gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Bytes of one.
    pub bytes: u32,
    /// For how many descriptors one is written.
    pub every: WriteBack,
    /// How many are written at once.
    pub together: u32,
}

/// For how many descriptors a completion is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// For each.
    Each,
    /// For the last one of each packet.
    Packet,
    /// For one in each report-status threshold.
    ReportStatus,
    /// For one in these many packets.
    Packets(u32),
    /// For each doorbell that announced them.
    Doorbell,
}

/// When a driver tells the device how far it has read the completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionDoorbells {
    /// Once for each of these many received packets of a poll, or a part of them.
    pub rx_packets: u32,
    /// Of sent ones, when a burst finds at least these many descriptors with the device.
    pub tx_descriptors: u32,
}

/// How sent packets are described to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxDescriptors {
    /// One for each buffer, and one for a context, in a ring that the device reads.
    Ring {
        /// Bytes of one.
        bytes: u32,
    },
    /// Work entries of several packets: a head, something for each packet, padded to a block.
    Entries {
        /// Bytes of an entry's head.
        head_bytes: u32,
        /// Bytes for each buffer.
        each_bytes: u32,
        /// Entries are padded to a multiple of these many bytes.
        block_bytes: u32,
        /// Packets of one entry at most.
        packets: u32,
    },
    /// Written into the device's memory by the processor, with the packet's first bytes.
    Pushed {
        /// Bytes of an entry.
        entry_bytes: u32,
        /// Bytes of one descriptor in it.
        each_bytes: u32,
        /// Descriptors that stand before the packet's first bytes in the first entry.
        before_header: u32,
        /// The most bytes of entries between two doorbells, where the device has such a limit.
        between_doorbells: Option<u32>,
    },
}

/// Short packets copied into their descriptors instead of being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// The largest such packet, in bytes.
    pub bytes_max: u32,
    /// What each adds to its bytes, before it is padded to `align_bytes`.
    pub extra_bytes: u32,
    /// See there.
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

/// A way in which a driver may be built or started that changes the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// `rx-16-byte`.
    pub name: &'static str,
    /// What it is, and how a program gets it.
    pub about: &'static str,
    /// What it changes.
    pub apply: fn(&mut Nic),
    /// Whether it names another device: nothing that a program or a build could set.
    pub is_device: bool,
}

/// A NIC with its driver in DPDK.
#[derive(Clone, Copy, Debug)]
pub struct Nic {
    /// The driver's name, as DPDK's folder has it.
    pub name: &'static str,
    /// Which devices it drives.
    pub devices: &'static str,
    /// The fastest port of them, in Gb/s; `None` where that is not a property of the device.
    pub line_gigabits: Option<u32>,
    /// Bytes of a receive descriptor, as the device reads it.
    pub rx_descriptor_bytes: u32,
    /// How many it reads at once.
    pub rx_fetch: Fetch,
    /// What it writes for a received packet.
    pub rx_completion: Completion,
    /// Modes that the driver has, the usual one last, each with its doorbells.
    pub modes: &'static [(Mode, RxDoorbell, TxDoorbell)],
    /// How sent packets are described.
    pub tx_descriptors: TxDescriptors,
    /// How many descriptors, or bytes of entries over 16, it reads at once.
    pub tx_fetch: Fetch,
    /// What it writes for sent packets.
    pub tx_completion: Completion,
    /// Bytes of a doorbell.
    pub doorbell_bytes: u32,
    /// Doorbells of the completion rings, where the driver writes such.
    pub completion_doorbells: Option<CompletionDoorbells>,
    /// Short packets that need not be read.
    pub inline: Option<Inline>,
    /// What holds unless a program sets it.
    pub thresholds: Thresholds,
    /// Build and start options.
    pub choices: &'static [Choice],
    /// Where the numbers are from.
    pub source: &'static str,
    /// What is not counted, or not known.
    pub remarks: &'static str,
}

impl Mode {
    /// All of them.
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
    /// Packets for one doorbell where the rule has a fixed number for this release.
    #[must_use]
    pub fn batch(self, version: Version) -> Option<u32> {
        let Self::Batch(rows) = self else { return None };
        let known = rows.iter().rev().find(|(from, _)| *from <= version.nearest());
        known.or(rows.first()).map(|(_, packets)| *packets)
    }
}

impl Nic {
    /// The mode that the driver takes by itself where it can.
    #[must_use]
    pub fn usual_mode(&self) -> Mode {
        self.modes.last().map_or(Mode::Scalar, |(mode, _, _)| *mode)
    }

    /// A mode by its name.
    ///
    /// # Errors
    /// [`PcieError::Mode`] where this driver has none of that name.
    pub fn mode(&self, name: &str) -> Result<Mode, PcieError> {
        let found = self.modes.iter().find(|(mode, _, _)| mode.name() == name);
        found.map(|(mode, _, _)| *mode).ok_or_else(|| PcieError::Mode {
            nic: self.name,
            mode: name.to_owned(),
            known: listed(self.modes.iter().map(|(mode, _, _)| mode.name())),
        })
    }

    /// Both doorbell rules of a mode; those of the usual one where the driver has no such mode.
    #[must_use]
    pub fn doorbells(&self, mode: Mode) -> (RxDoorbell, TxDoorbell) {
        let found = self.modes.iter().find(|(known, _, _)| *known == mode).or(self.modes.last());
        found.map_or((RxDoorbell::Memory, TxDoorbell::Burst), |(_, rx, tx)| (*rx, *tx))
    }

    /// The same NIC with a build or start option taken.
    ///
    /// # Errors
    /// [`PcieError::Choice`] where it has none of that name.
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

    /// Bytes of a transmit descriptor; of work entries, those of a packet that is alone in one.
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
    /// Entries that a packet of so many descriptors is pushed in; none where nothing is pushed.
    pub(in crate::pcie) fn pushes(self, descriptors: u32) -> u32 {
        let Self::Pushed { entry_bytes, each_bytes, before_header, .. } = self else { return 0 };
        let beyond = descriptors.saturating_sub(before_header) * each_bytes;
        1 + beyond.div_ceil(entry_bytes)
    }

    /// Packets of so many descriptors that can be pushed until a doorbell has to be written.
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
