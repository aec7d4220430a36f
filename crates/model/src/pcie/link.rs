//! A link: the bytes that it carries in each direction, and the headers of a read or a write.
//!
//! Numbers are those of the PCI Express Base Specification 5.0, taken from the public sources of
//! pcie-bench (SIGCOMM'18): 64-bit addresses, no digest (ECRC), the framing of generations 1 to 5.
//! Names of constants under "Source" are those of its `model/pcie.py`.

use std::fmt;
use std::str::FromStr;

use super::error::PcieError;
use super::number::whole;

/// The size of a memory write's header and framing in bytes: 8 for framing, sequence number and
/// LCRC, and a header of 16. Source: `TLP_MWr_Hdr_Szs`.
pub(super) const WRITE_HEADER_BYTES: u64 = 24;
/// The size of a memory read's request in bytes. Source: `TLP_MRd_Hdr_Szs`.
pub(super) const REQUEST_HEADER_BYTES: u64 = 24;
/// The size of a completion's header and framing in bytes. The header has 12. Source:
/// `TLP_CplD_Hdr_Szs`.
pub(super) const COMPLETION_HEADER_BYTES: u64 = 20;
/// The bytes of an acknowledgement or a flow-control update with its framing. Source: `Ack_Size`,
/// `FC_Size`.
const DLLP_BYTES: f64 = 8.0;
/// The number of symbols between two ordered sets that compensate clocks, and the number in one
/// set. Source: `SKIP_Interval`, `SKIP_Length`.
const SKIP_INTERVAL: f64 = 1538.0;
const SKIP_SYMBOLS: f64 = 4.0;
/// A request must not cross an address that is a multiple of this. Source: PCI Express Base
/// Specification 2.1, section 2.2.7, as public designs of endpoints quote it; the specification
/// itself is not public.
const PAGE_BYTES: u64 = 4096;
/// A packet's payload consists of whole double words. Source: its length field, which public
/// designs of endpoints quote as the "length of data payload in DW".
const WORD_BYTES: u64 = 4;
/// The number of bytes that the formula for a packet's acknowledgement time adds for the packet's
/// header. Source: derived; with this number, the formula gives every entry of `Ack_Limits`.
const ACK_HEADER_BYTES: u64 = 28;

const WIDTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The widths of slots and cards: the connectors of the PCI Express Card Electromechanical
/// Specification have at most 16 lanes.
pub(super) const WIDTHS_USUAL: [u32; 5] = [1, 2, 4, 8, 16];

/// A generation of PCIe whose packets are framed one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// 2.5 GT/s.
    Gen1,
    /// 5 GT/s.
    Gen2,
    /// 8 GT/s.
    Gen3,
    /// 16 GT/s.
    Gen4,
    /// 32 GT/s.
    Gen5,
}

impl Generation {
    /// All generations, slowest first.
    pub const ALL: [Self; 5] = [Self::Gen1, Self::Gen2, Self::Gen3, Self::Gen4, Self::Gen5];

    /// The number, 1 to 5.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32 + 1
    }

    /// Transfers a second on one lane. Source: `GTs`.
    #[must_use]
    pub fn transfers_per_s(self) -> f64 {
        match self {
            Self::Gen1 => 2.5e9,
            Self::Gen2 => 5e9,
            Self::Gen3 => 8e9,
            Self::Gen4 => 16e9,
            Self::Gen5 => 32e9,
        }
    }

    /// The bits of data for each bit on the lane: 8b/10b, and 128b/130b from generation 3 on.
    /// Source: `Gbs`.
    #[must_use]
    pub fn encoding(self) -> f64 {
        match self {
            Self::Gen1 | Self::Gen2 => 8.0 / 10.0,
            _ => 128.0 / 130.0,
        }
    }

    /// The symbol times that a receiver needs to respond. Source: derived from `Ack_Limits`, less
    /// the times of packets.
    fn delay_symbols(self) -> u64 {
        match self {
            Self::Gen1 => 19,
            Self::Gen2 => 70,
            _ => 115,
        }
    }
}

/// The sizes of the completions into which a root complex splits a device's read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completions {
    /// One completion for each read completion boundary, as older and many present hosts do. This
    /// needs the most headers.
    #[default]
    Boundary,
    /// Each completion as large as the maximum payload. This needs the fewest headers.
    Payload,
}

/// The settings of a link that software controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum payload size, in bytes.
    pub mps: u32,
    /// Maximum read request size, in bytes.
    pub mrrs: u32,
    /// Read completion boundary, in bytes.
    pub rcb: u32,
    /// How reads are split into completions.
    pub completions: Completions,
}

impl Default for Settings {
    /// 256, 512 and 64 B, which most hosts set and pcie-bench uses.
    fn default() -> Self {
        Self { mps: 256, mrrs: 512, rcb: 64, completions: Completions::default() }
    }
}

/// A link with its settings.
///
/// ```
/// use haul_model::pcie::{Link, Settings};
/// let link = Link::new("gen3x8", Settings::default()).unwrap();
/// assert_eq!(link.to_string(), "gen3x8");
/// // 63.0 Gb/s after the encoding, 57.9 less acknowledgements, flow control and ordered sets.
/// assert_eq!((link.usable_bytes_per_s() * 8e-8).round(), 579.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    generation: Generation,
    lanes: u32,
    settings: Settings,
}

/// The overhead of packets, in addition to their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// The number of packets.
    pub packets: u64,
    /// The bytes of headers, framing, and padding to whole double words.
    pub bytes: u64,
}

/// The overhead of a read in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The overhead from the reader.
    pub requests: Overhead,
    /// The overhead to the reader, in addition to the data.
    pub completions: Overhead,
}

impl Link {
    /// A link from its text, such as `gen3x8`, and its settings.
    ///
    /// # Errors
    /// It is an error if the text is not a valid link, or if a setting is not in the specification.
    pub fn new(text: &str, settings: Settings) -> Result<Self, PcieError> {
        let (generation, lanes) = parse(text)?;
        let sizes = "128, 256, 512, 1024, 2048 and 4096";
        for (name, value) in [("MPS", settings.mps), ("MRRS", settings.mrrs)] {
            if !(value.is_power_of_two() && (128..=4096).contains(&value)) {
                return Err(PcieError::Setting { name, value, allowed: sizes });
            }
        }
        // The root complex determines 64 or 128 B. Source: PCI_EXP_LNKCTL_RCB of Linux' pci_regs.h
        // is one bit.
        if ![64, 128].contains(&settings.rcb) {
            let allowed = "64 and 128";
            return Err(PcieError::Setting { name: "RCB", value: settings.rcb, allowed });
        }
        Ok(Self { generation, lanes, settings })
    }

    /// This link with other settings, which must have been checked.
    pub(super) fn with(&self, settings: Settings) -> Self {
        Self { settings, ..*self }
    }

    /// Another link with the same settings.
    pub(super) fn of(&self, generation: Generation, lanes: u32) -> Self {
        Self { generation, lanes, ..*self }
    }

    /// The generation of the link.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of lanes.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The settings of the link.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The bytes a second in each direction after the encoding, before any other deduction.
    #[must_use]
    pub fn raw_bytes_per_s(&self) -> f64 {
        self.generation.transfers_per_s() * self.generation.encoding() * f64::from(self.lanes) / 8.0
    }

    /// The bytes a second in each direction that packets and their headers can use: the raw rate
    /// less acknowledgements and flow-control updates at the specification's recommended intervals,
    /// and less the ordered sets that compensate clocks. It is an upper bound: bit errors and the
    /// host's own speed reduce it further.
    #[must_use]
    pub fn usable_bytes_per_s(&self) -> f64 {
        let interval = self.interval_symbols() as f64;
        self.usable_with(interval, interval)
    }

    /// The usable bytes a second with given intervals between acknowledgements and between
    /// flow-control updates.
    pub(super) fn usable_with(&self, ack_symbols: f64, update_symbols: f64) -> f64 {
        let taken =
            DLLP_BYTES / ack_symbols + DLLP_BYTES / update_symbols + SKIP_SYMBOLS / SKIP_INTERVAL;
        self.raw_bytes_per_s() * (1.0 - taken)
    }

    /// The symbol times between acknowledgements, and between flow-control updates. Source:
    /// `Ack_Limits` and `FC_Guide`, which according to their comments are PCIe 5.0's tables 3-7 to
    /// 3-9 and 2-46 to 2-48. This formula gives each of their 108 entries, except the two that
    /// `bench` names.
    pub(super) fn interval_symbols(&self) -> u64 {
        let tenths = match (self.lanes, self.settings.mps) {
            (1 | 2 | 4, ..=256) => 14,
            (1 | 2 | 4 | 8, 512..) => 10,
            (8, _) => 25,
            (_, ..=256) => 30,
            _ => 20,
        };
        let packet = u64::from(self.settings.mps) + ACK_HEADER_BYTES;
        packet * tenths / (10 * u64::from(self.lanes)) + self.generation.delay_symbols()
    }

    /// The overhead of a write of `bytes` that starts `offset` bytes into a page of 4 KiB.
    #[must_use]
    pub fn write(&self, offset: u32, bytes: u32) -> Overhead {
        cut(offset, bytes, u64::from(self.settings.mps), WRITE_HEADER_BYTES)
    }

    /// The overhead of a read of `bytes` that starts `offset` bytes into a page of 4 KiB. The first
    /// completion ends at a read completion boundary, so a read that does not start at a boundary
    /// costs more.
    #[must_use]
    pub fn read(&self, offset: u32, bytes: u32) -> Read {
        let mut requests = cut(offset, bytes, u64::from(self.settings.mrrs), REQUEST_HEADER_BYTES);
        // A request has no data, so it is not padded.
        requests.bytes = requests.packets * REQUEST_HEADER_BYTES;
        let (mps, rcb) = (u64::from(self.settings.mps), u64::from(self.settings.rcb));
        let (chunk, from) = match self.settings.completions {
            Completions::Boundary => (mps.min(rcb), u64::from(offset) % mps.min(rcb)),
            Completions::Payload => (mps, u64::from(offset) % rcb),
        };
        // Each request has completions of its own, so there are at least as many completions as
        // requests.
        let packets = match bytes {
            0 => 0,
            bytes => (from + u64::from(bytes)).div_ceil(chunk).max(requests.packets),
        };
        let padding = padding(offset, bytes);
        let completions = Overhead { packets, bytes: packets * COMPLETION_HEADER_BYTES + padding };
        Read { requests, completions }
    }
}

/// Splits a transfer into packets of at most `chunk` bytes that do not cross a page.
fn cut(offset: u32, bytes: u32, chunk: u64, header_bytes: u64) -> Overhead {
    let (mut at, end) =
        (u64::from(offset) % PAGE_BYTES, u64::from(offset) % PAGE_BYTES + u64::from(bytes));
    let mut packets = 0;
    while at < end {
        let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        let piece = page_end.min(end) - at;
        // All whole pages are counted in one step, so that any size needs few steps.
        if at.is_multiple_of(PAGE_BYTES) && end - at >= PAGE_BYTES {
            let pages = (end - at) / PAGE_BYTES;
            packets += pages * (PAGE_BYTES / chunk);
            at += pages * PAGE_BYTES;
            continue;
        }
        packets += piece.div_ceil(chunk);
        at += piece;
    }
    Overhead { packets, bytes: packets * header_bytes + padding(offset, bytes) }
}

/// The bytes at both ends that are sent with their byte enables off.
fn padding(offset: u32, bytes: u32) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let (first, last) = (u64::from(offset), u64::from(offset) + u64::from(bytes));
    last.next_multiple_of(WORD_BYTES) - last + first % WORD_BYTES
}

fn parse(text: &str) -> Result<(Generation, u32), PcieError> {
    let no_link = || PcieError::NoLink { text: text.to_owned() };
    let (generation, lanes) =
        text.strip_prefix("gen").and_then(|rest| rest.split_once('x')).ok_or_else(no_link)?;
    let generation = whole(generation).ok_or_else(no_link)?;
    let lanes = whole(lanes).ok_or_else(no_link)?;
    let generation = Generation::ALL
        .into_iter()
        .find(|known| u64::from(known.number()) == generation)
        .ok_or_else(|| PcieError::Generation { text: text.to_owned() })?;
    let lanes = WIDTHS
        .into_iter()
        .find(|width| u64::from(*width) == lanes)
        .ok_or_else(|| PcieError::Width { text: text.to_owned() })?;
    Ok((generation, lanes))
}

impl FromStr for Link {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        Self::new(text, Settings::default())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("gen{}x{}", self.generation.number(), self.lanes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(text: &str, mps: u32) -> Link {
        Link::new(text, Settings { mps, ..Settings::default() }).unwrap()
    }

    /// Entries of the specification's tables, one for each factor and delay.
    #[test]
    fn intervals_match_specification() {
        for (text, mps, expected) in [
            ("gen1x1", 128, 237),
            ("gen1x2", 512, 289),
            ("gen2x4", 256, 169),
            ("gen2x8", 128, 118),
            ("gen3x8", 256, 203),
            ("gen3x8", 512, 182),
            ("gen4x16", 256, 168),
            ("gen5x16", 4096, 630),
            ("gen5x32", 1024, 180),
            ("gen1x32", 2048, 148),
        ] {
            assert_eq!(link(text, mps).interval_symbols(), expected, "{text} {mps}");
        }
    }

    #[test]
    fn overhead_counts_aligned_and_misaligned_packets() {
        let link = link("gen3x8", 256);
        let write = |offset, bytes| link.write(offset, bytes);
        assert_eq!(write(0, 64), Overhead { packets: 1, bytes: 24 });
        assert_eq!(write(0, 257), Overhead { packets: 2, bytes: 48 + 3 });
        assert_eq!(write(2, 64), Overhead { packets: 1, bytes: 24 + 4 });
        assert_eq!(write(4090, 64).packets, 2, "a page is crossed");
        assert_eq!(write(0, 0), Overhead::default());
        let read = link.read(0, 1500);
        assert_eq!((read.requests.packets, read.completions.packets), (3, 24));
        assert_eq!(link.read(60, 64).completions.packets, 2, "4 B off a boundary");
        let whole = Settings { completions: Completions::Payload, ..link.settings() };
        let whole = Link::new("gen3x8", whole).unwrap();
        assert_eq!(whole.read(0, 1500).completions.packets, 6);
    }

    #[test]
    fn invalid_links_are_rejected_with_reason() {
        for (text, part) in [
            ("", "gen3x8"),
            ("gen3", "gen3x8"),
            ("3x8", "gen3x8"),
            ("gen+3x8", "gen3x8"),
            ("gen6x8", "1 to 5"),
            ("gen0x8", "1 to 5"),
            ("gen3x3", "x16"),
            ("gen3x99999999999999999999999", "gen3x8"),
        ] {
            let message = text.parse::<Link>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        for settings in [
            Settings { mps: 64, ..Settings::default() },
            Settings { mps: 300, ..Settings::default() },
            Settings { mrrs: 8192, ..Settings::default() },
            Settings { rcb: 256, ..Settings::default() },
        ] {
            let message = Link::new("gen3x8", settings).unwrap_err().to_string();
            assert!(message.contains("one of"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn link_text_round_trips(generation in 1_u32..=5, width in 0_usize..6) {
            let text = format!("gen{generation}x{}", WIDTHS[width]);
            let link: Link = text.parse().unwrap();
            prop_assert_eq!(link.to_string(), text);
            prop_assert!(link.usable_bytes_per_s() > 0.0);
            prop_assert!(link.usable_bytes_per_s() < link.raw_bytes_per_s());
        }

        #[test]
        fn more_bytes_never_need_fewer_packets(offset: u32, bytes in 0_u32..u32::MAX) {
            let link = link("gen3x8", 256);
            prop_assert!(link.write(offset, bytes).packets <= link.write(offset, bytes + 1).packets);
            let (less, more) = (link.read(offset, bytes), link.read(offset, bytes + 1));
            prop_assert!(less.requests.bytes <= more.requests.bytes);
            prop_assert!(less.completions.packets <= more.completions.packets);
        }

        #[test]
        fn link_accepts_or_rejects_any_text(text in ".{0,20}") {
            let _ = text.parse::<Link>();
        }
    }
}
