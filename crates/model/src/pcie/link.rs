//! A link: how many bytes it carries each way, and what a read or a write adds in headers.
//!
//! Numbers are those of the PCI Express Base Specification 5.0 as the sources of pcie-bench
//! (SIGCOMM'18) have them, which are public: 64-bit addresses, no digest (ECRC), the framing of
//! generations 1 to 5. Names in capitals below are those of its `model/pcie.py`.

use std::fmt;
use std::str::FromStr;

use super::error::PcieError;
use super::number::whole;

/// Bytes of a memory write's header and framing: 8 of framing, sequence number and LCRC, and a
/// header of 16. Source: `TLP_MWr_Hdr_Szs`.
pub(super) const WRITE_HEADER_BYTES: u64 = 24;
/// The same of a memory read's request. Source: `TLP_MRd_Hdr_Szs`.
pub(super) const REQUEST_HEADER_BYTES: u64 = 24;
/// The same of a completion with data, whose header is 12. Source: `TLP_CplD_Hdr_Szs`.
pub(super) const COMPLETION_HEADER_BYTES: u64 = 20;
/// Bytes of an acknowledgement or a flow-control update with its framing. Source: `Ack_Size`,
/// `FC_Size`.
const DLLP_BYTES: f64 = 8.0;
/// Symbols between ordered sets that compensate clocks, and of one. Source: `SKIP_Interval`,
/// `SKIP_Length`.
const SKIP_INTERVAL: f64 = 1538.0;
const SKIP_SYMBOLS: f64 = 4.0;
/// No request crosses an address that is a multiple of this. Source: PCI Express Base Specification
/// 2.1, section 2.2.7, as public designs of endpoints quote it; the specification itself is not
/// public.
const PAGE_BYTES: u64 = 4096;
/// A packet's payload is of whole double words. Source: its length field, which public designs of
/// endpoints quote as the "length of data payload in DW".
const WORD_BYTES: u64 = 4;
/// Bytes that are allowed for a packet's header in the time to acknowledge it. Source: derived, for
/// with it every entry of `Ack_Limits` comes out.
const ACK_HEADER_BYTES: u64 = 28;

const WIDTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Those that slots and cards have: the connectors of the PCI Express Card Electromechanical
/// Specification end at 16 lanes.
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
    /// All of them, slowest first.
    pub const ALL: [Self; 5] = [Self::Gen1, Self::Gen2, Self::Gen3, Self::Gen4, Self::Gen5];

    /// 1 to 5.
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

    /// Bits of data for each bit on the lane: 8b/10b, from generation 3 on 128b/130b. Source:
    /// `Gbs`.
    #[must_use]
    pub fn encoding(self) -> f64 {
        match self {
            Self::Gen1 | Self::Gen2 => 8.0 / 10.0,
            _ => 128.0 / 130.0,
        }
    }

    /// Symbol times that a receiver takes to act. Source: derived, what `Ack_Limits` has beyond
    /// packets.
    fn delay_symbols(self) -> u64 {
        match self {
            Self::Gen1 => 19,
            Self::Gen2 => 70,
            _ => 115,
        }
    }
}

/// Into how many completions a root complex cuts what a device reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completions {
    /// One for each read completion boundary: what older and many present hosts do, and the most
    /// headers that there can be.
    #[default]
    Boundary,
    /// Each as large as the maximum payload: the fewest headers.
    Payload,
}

/// What software sets of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum payload size, in bytes.
    pub mps: u32,
    /// Maximum read request size, in bytes.
    pub mrrs: u32,
    /// Read completion boundary, in bytes.
    pub rcb: u32,
    /// How completions are cut.
    pub completions: Completions,
}

impl Default for Settings {
    /// 256, 512 and 64 B: what most hosts set, and what pcie-bench is computed with.
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

/// What packets add to their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Packets.
    pub packets: u64,
    /// Bytes of headers, framing, and padding to whole double words.
    pub bytes: u64,
}

/// What a read adds each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// From the reader.
    pub requests: Overhead,
    /// To the reader, beside the data.
    pub completions: Overhead,
}

impl Link {
    /// A link from its text, such as `gen3x8`, and its settings.
    ///
    /// # Errors
    /// The text names no link that can be, or a setting is none of the specification's.
    pub fn new(text: &str, settings: Settings) -> Result<Self, PcieError> {
        let (generation, lanes) = parse(text)?;
        let sizes = "128, 256, 512, 1024, 2048 and 4096";
        for (name, value) in [("MPS", settings.mps), ("MRRS", settings.mrrs)] {
            if !(value.is_power_of_two() && (128..=4096).contains(&value)) {
                return Err(PcieError::Setting { name, value, allowed: sizes });
            }
        }
        // 64 or 128 B, by the root complex. Source: PCI_EXP_LNKCTL_RCB of Linux' pci_regs.h, a bit.
        if ![64, 128].contains(&settings.rcb) {
            let allowed = "64 and 128";
            return Err(PcieError::Setting { name: "RCB", value: settings.rcb, allowed });
        }
        Ok(Self { generation, lanes, settings })
    }

    /// The same link with settings of another that was checked.
    pub(super) fn with(&self, settings: Settings) -> Self {
        Self { settings, ..*self }
    }

    /// Another link with the same settings.
    pub(super) fn of(&self, generation: Generation, lanes: u32) -> Self {
        Self { generation, lanes, ..*self }
    }

    /// Its generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How many lanes it has.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// What is set.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Bytes a second each way after the encoding, before anything else is taken off.
    #[must_use]
    pub fn raw_bytes_per_s(&self) -> f64 {
        self.generation.transfers_per_s() * self.generation.encoding() * f64::from(self.lanes) / 8.0
    }

    /// Bytes a second each way that packets and their headers can have: the raw rate less
    /// acknowledgements and flow-control updates at the specification's recommended intervals, and
    /// the ordered sets that compensate clocks. An upper bound: bit errors and a host's own pace
    /// take more.
    #[must_use]
    pub fn usable_bytes_per_s(&self) -> f64 {
        let interval = self.interval_symbols() as f64;
        self.usable_with(interval, interval)
    }

    /// The same with given intervals between acknowledgements and flow-control updates.
    pub(super) fn usable_with(&self, ack_symbols: f64, update_symbols: f64) -> f64 {
        let taken =
            DLLP_BYTES / ack_symbols + DLLP_BYTES / update_symbols + SKIP_SYMBOLS / SKIP_INTERVAL;
        self.raw_bytes_per_s() * (1.0 - taken)
    }

    /// Symbol times between acknowledgements, and between flow-control updates. Source:
    /// `Ack_Limits` and `FC_Guide`, which by their comments are PCIe 5.0's tables 3-7 to 3-9 and
    /// 2-46 to 2-48: this formula gives each of their 108 entries, but for the two that `bench`
    /// names.
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

    /// What a write of `bytes` adds, starting `offset` bytes into a page of 4 KiB.
    #[must_use]
    pub fn write(&self, offset: u32, bytes: u32) -> Overhead {
        cut(offset, bytes, u64::from(self.settings.mps), WRITE_HEADER_BYTES)
    }

    /// What a read of `bytes` adds each way, starting `offset` bytes into a page of 4 KiB. The
    /// first completion ends at a read completion boundary, so that an offset from one costs more.
    #[must_use]
    pub fn read(&self, offset: u32, bytes: u32) -> Read {
        let mut requests = cut(offset, bytes, u64::from(self.settings.mrrs), REQUEST_HEADER_BYTES);
        // A request carries no data that could be padded.
        requests.bytes = requests.packets * REQUEST_HEADER_BYTES;
        let (mps, rcb) = (u64::from(self.settings.mps), u64::from(self.settings.rcb));
        let (chunk, from) = match self.settings.completions {
            Completions::Boundary => (mps.min(rcb), u64::from(offset) % mps.min(rcb)),
            Completions::Payload => (mps, u64::from(offset) % rcb),
        };
        // Each request is completed by itself, so that there are as many at least.
        let packets = match bytes {
            0 => 0,
            bytes => (from + u64::from(bytes)).div_ceil(chunk).max(requests.packets),
        };
        let padding = padding(offset, bytes);
        let completions = Overhead { packets, bytes: packets * COMPLETION_HEADER_BYTES + padding };
        Read { requests, completions }
    }
}

/// Packets of at most `chunk` bytes, none of which crosses a page.
fn cut(offset: u32, bytes: u32, chunk: u64, header_bytes: u64) -> Overhead {
    let (mut at, end) =
        (u64::from(offset) % PAGE_BYTES, u64::from(offset) % PAGE_BYTES + u64::from(bytes));
    let mut packets = 0;
    while at < end {
        let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        let piece = page_end.min(end) - at;
        // All whole pages at once, so that any size takes two steps at most.
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

/// Bytes that are sent with their enables off, at both ends.
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

    /// Entries of the specification's tables, one of each factor and delay.
    #[test]
    fn intervals_are_those_of_the_specification() {
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
    fn packets_are_counted_aligned_and_not() {
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
    fn impossible_links_are_refused_by_what_is_wrong() {
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
        fn links_are_written_as_they_are_read(generation in 1_u32..=5, width in 0_usize..6) {
            let text = format!("gen{generation}x{}", WIDTHS[width]);
            let link: Link = text.parse().unwrap();
            prop_assert_eq!(link.to_string(), text);
            prop_assert!(link.usable_bytes_per_s() > 0.0);
            prop_assert!(link.usable_bytes_per_s() < link.raw_bytes_per_s());
        }

        #[test]
        fn more_bytes_never_take_fewer_packets(offset: u32, bytes in 0_u32..u32::MAX) {
            let link = link("gen3x8", 256);
            prop_assert!(link.write(offset, bytes).packets <= link.write(offset, bytes + 1).packets);
            let (less, more) = (link.read(offset, bytes), link.read(offset, bytes + 1));
            prop_assert!(less.requests.bytes <= more.requests.bytes);
            prop_assert!(less.completions.packets <= more.completions.packets);
        }

        #[test]
        fn any_text_is_a_link_or_refused(text in ".{0,20}") {
            let _ = text.parse::<Link>();
        }
    }
}
