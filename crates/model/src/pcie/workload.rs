//! The workload of a program: rate, packet sizes and batches.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::error::PcieError;
use super::number::{Rate, whole};

/// The largest number of packets in one call, which counts them in 16 bits.
const BATCH_MAX: u64 = 65_535;
/// The largest accepted number of polls per batch size. Ten years of polls are fewer, and sums of
/// such numbers are exact.
const POLLS_MAX: u64 = 1 << 48;
/// The largest packet in bytes: descriptors store its length in 16 bits.
pub(super) const SIZE_BYTES_MAX: u64 = 65_535;
/// The largest accepted number of entries. A tester's mix or a driver's bursts have fewer, and
/// every sum stays short.
const ENTRIES_MAX: usize = 1024;
/// The largest accepted number of segments per packet. Drivers allow 8 to 40.
const SEGMENTS_MAX: u64 = 255;

/// The size in bytes of a frame's check sequence (FCS), which NICs remove. Source: IEEE 802.3.
pub(super) const FCS_BYTES: u32 = 4;

/// The simple Internet mix: IP packets of 40, 576 and 1500 B at 7:4:1, with 18 B of Ethernet each
/// and padded to the shortest frame, 64 B. Source: RFC 6985 describes the practice of mixes;
/// testers customarily use these weights.
const IMIX: [(u32, u64); 3] = [(64, 7), (594, 4), (1518, 1)];

/// The number of polls for each number of returned packets: `0:5,4:10`.
///
/// ```
/// use haul_model::pcie::Histogram;
/// let polls: Histogram = "0:5,4:10,12:10".parse().unwrap();
/// assert_eq!(polls.mean_of_polls(), 8.0);
/// assert_eq!(polls.mean_of_packets(), 10.0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    empty: u64,
    /// Pairs of batch and polls, ascending by batch. There is at least one.
    batches: Vec<(u32, u64)>,
}

/// Packet sizes with their weights, in bytes: `64`, `64:7,594:4,1518:1` or `imix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Pairs of size and weight, ascending by size. There is at least one.
    sizes: Vec<(u32, u64)>,
}

/// The directions in which packets cross the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// Packets are received and sent at the same rate: forwarding.
    #[default]
    Both,
    /// Packets are only received.
    Rx,
    /// Packets are only sent.
    Tx,
}

/// A workload on one port.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Packets a second, in each direction.
    pub rate: Rate,
    /// The sizes of packets in memory.
    pub packets: Packets,
    /// Whether packets are received, sent, or both.
    pub traffic: Traffic,
    /// The polls for received packets.
    pub rx: Histogram,
    /// The calls that send packets.
    pub tx: Histogram,
    /// The number of buffers of a packet, 1 to 255.
    pub segments: u32,
    /// Whether a context descriptor precedes each sent packet, as for offloads.
    pub context: bool,
    /// The offset of each packet's start in a cache line, in bytes: 0 to 63.
    pub offset: u32,
}

impl Workload {
    /// Forwarding of packets in these batches, with one aligned buffer for each packet and without
    /// offloads.
    #[must_use]
    pub fn forwarding(rate: Rate, packets: Packets, batches: Histogram) -> Self {
        Self {
            rate,
            packets,
            traffic: Traffic::Both,
            tx: batches.clone(),
            rx: batches,
            segments: 1,
            context: false,
            offset: 0,
        }
    }

    /// Checks the numbers for values that the types allow and a workload must not have.
    ///
    /// # Errors
    /// [`PcieError::Range`] names the first invalid number.
    pub fn check(&self) -> Result<(), PcieError> {
        in_range("segments", u64::from(self.segments), 1, SEGMENTS_MAX)?;
        in_range("offset", u64::from(self.offset), 0, 63)
    }
}

pub(super) fn in_range(
    name: &'static str,
    value: u64,
    first: u64,
    last: u64,
) -> Result<(), PcieError> {
    match (first..=last).contains(&value) {
        true => Ok(()),
        false => Err(PcieError::Range { name, value, first, last }),
    }
}

impl Traffic {
    /// Whether packets are received.
    #[must_use]
    pub fn receives(self) -> bool {
        self != Self::Tx
    }

    /// Whether packets are sent.
    #[must_use]
    pub fn sends(self) -> bool {
        self != Self::Rx
    }

    /// `both`, `rx` or `tx`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Rx => "rx",
            Self::Tx => "tx",
        }
    }
}

impl Histogram {
    /// A histogram in which every poll returns `batch` packets, at least one.
    #[must_use]
    pub fn of_one(batch: u32) -> Self {
        Self { empty: 0, batches: vec![(batch.clamp(1, BATCH_MAX as u32), 1)] }
    }

    /// A histogram from the number of polls for each number of packets, from 0 on.
    ///
    /// # Errors
    /// [`PcieError::Histogram`] if no poll returned a packet.
    pub fn of_counts(polls: &[u64]) -> Result<Self, PcieError> {
        let pairs = polls.iter().enumerate().filter(|(batch, polls)| *batch == 0 || **polls > 0);
        let text: Vec<String> = pairs.map(|(batch, polls)| format!("{batch}:{polls}")).collect();
        text.join(",").parse()
    }

    /// Pairs of batch and polls, without empty polls, ascending by batch.
    #[must_use]
    pub fn batches(&self) -> &[(u32, u64)] {
        &self.batches
    }

    /// The number of empty polls.
    #[must_use]
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The largest batch.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.batches.last().map_or(0, |(batch, _)| *batch)
    }

    /// The number of packets over the number of non-empty polls. It is the divisor for costs per
    /// burst.
    #[must_use]
    pub fn mean_of_polls(&self) -> f64 {
        self.mean(f64::from)
    }

    /// The mean batch weighted by packets. It is larger than the mean over polls if batches differ.
    #[must_use]
    pub fn mean_of_packets(&self) -> f64 {
        self.mean(|batch| f64::from(batch) * f64::from(batch)) / self.mean_of_polls()
    }

    /// The mean of `of` over non-empty polls.
    pub(super) fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        let polls: f64 = self.batches.iter().map(|(_, polls)| *polls as f64).sum();
        self.batches.iter().map(|(batch, count)| of(*batch) * (*count as f64 / polls)).sum()
    }
}

impl Packets {
    /// Packets from the number of packets of each size. There must be at least one size, and all
    /// must be 1 to 65,535 B.
    pub(super) fn of_counts(sizes: BTreeMap<u32, u64>) -> Self {
        debug_assert!(!sizes.is_empty());
        Self { sizes: sizes.into_iter().collect() }
    }

    /// Packets of one size.
    ///
    /// # Errors
    /// [`PcieError::Range`] if no packet can have that size.
    pub fn of_one(size: u32) -> Result<Self, PcieError> {
        in_range("packet size", u64::from(size), 1, SIZE_BYTES_MAX)?;
        Ok(Self { sizes: vec![(size, 1)] })
    }

    /// The same number of packets of `first` and of every `step`-th size after it, up to `last`.
    ///
    /// # Errors
    /// [`PcieError::Range`] if no packet can have one of the sizes, or if the step is 0.
    pub fn of_each(first: u32, last: u32, step: u32) -> Result<Self, PcieError> {
        in_range("packet size", u64::from(first), 1, SIZE_BYTES_MAX)?;
        in_range("packet size", u64::from(last), u64::from(first), SIZE_BYTES_MAX)?;
        in_range("step of packet sizes", u64::from(step), 1, SIZE_BYTES_MAX)?;
        Ok(Self::of_counts((first..=last).step_by(step as usize).map(|size| (size, 1)).collect()))
    }

    /// The packets in frames of one size, without the check sequence of 4 B, which NICs remove.
    ///
    /// # Errors
    /// [`PcieError::Range`] if no frame can have that size.
    pub fn of_frames(size: u64) -> Result<Self, PcieError> {
        in_range("frame size", size, u64::from(FCS_BYTES) + 1, SIZE_BYTES_MAX)?;
        Self::of_one(size as u32 - FCS_BYTES)
    }

    /// The mean of `of` over packets.
    pub(super) fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        let weights: f64 = self.sizes.iter().map(|(_, weight)| *weight as f64).sum();
        self.sizes.iter().map(|(size, weight)| of(*size) * (*weight as f64 / weights)).sum()
    }

    /// Pairs of size and weight, ascending by size.
    #[must_use]
    pub fn sizes(&self) -> &[(u32, u64)] {
        &self.sizes
    }

    /// The mean size, in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.mean(f64::from)
    }

    /// Converts sizes of frames on the wire to sizes of packets: each is 4 B smaller.
    ///
    /// # Errors
    /// [`PcieError::Range`] if a size is not above 4 B.
    pub fn without_fcs(mut self) -> Result<Self, PcieError> {
        for (size, _) in &mut self.sizes {
            in_range("frame size", u64::from(*size), u64::from(FCS_BYTES) + 1, SIZE_BYTES_MAX)?;
            *size -= FCS_BYTES;
        }
        Ok(self)
    }
}

impl FromStr for Histogram {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        let refused = |reason| PcieError::Histogram { text: text.to_owned(), reason };
        let mut batches = Vec::new();
        for pair in text.split(',') {
            let (batch, polls) =
                pair.split_once(':').ok_or_else(|| refused("a pair has no colon"))?;
            let batch = whole(batch.trim()).ok_or_else(|| refused("a batch is not a number"))?;
            let polls = whole(polls.trim()).ok_or_else(|| refused("a count is not a number"))?;
            if batch > BATCH_MAX {
                return Err(refused("a batch is above 65535 packets"));
            }
            if polls > POLLS_MAX {
                return Err(refused("a count is above 2^48"));
            }
            batches.push((batch as u32, polls));
        }
        let batches = distinct(batches).map_err(refused)?;
        let empty = batches.iter().find(|(batch, _)| *batch == 0).map_or(0, |(_, polls)| *polls);
        let batches: Vec<(u32, u64)> =
            batches.into_iter().filter(|(batch, polls)| *batch > 0 && *polls > 0).collect();
        if batches.is_empty() {
            return Err(refused("no poll returns a packet"));
        }
        Ok(Self { empty, batches })
    }
}

impl FromStr for Packets {
    type Err = PcieError;

    fn from_str(text: &str) -> Result<Self, PcieError> {
        if text.trim() == "imix" {
            return Ok(Self { sizes: IMIX.to_vec() });
        }
        let refused = |reason| PcieError::Sizes { text: text.to_owned(), reason };
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size = whole(size.trim()).ok_or_else(|| refused("a size is not a number"))?;
            let weight = whole(weight.trim()).ok_or_else(|| refused("a weight is not a number"))?;
            if !(1..=SIZE_BYTES_MAX).contains(&size) {
                return Err(refused("a packet must have 1 to 65535 B"));
            }
            if !(1..=POLLS_MAX).contains(&weight) {
                return Err(refused("a weight must be 1 to 2^48"));
            }
            sizes.push((size as u32, weight));
        }
        Ok(Self { sizes: distinct(sizes).map_err(refused)? })
    }
}

/// Sorts the entries. It is an error if one occurs twice, or if there are too many.
fn distinct(mut entries: Vec<(u32, u64)>) -> Result<Vec<(u32, u64)>, &'static str> {
    if entries.len() > ENTRIES_MAX {
        return Err("it has more than 1024 entries");
    }
    entries.sort_unstable();
    match entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        true => Err("an entry is there twice"),
        false => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn histograms_parse_in_any_order() {
        let histogram: Histogram = "4:10, 0:5,8:0".parse().unwrap();
        assert_eq!((histogram.empty(), histogram.batches()), (5, &[(4, 10)][..]));
        let example: Histogram = "8:1,10:1,12:2".parse().unwrap();
        assert_eq!((example.mean_of_polls(), example.largest()), (10.5, 12));
    }

    #[test]
    fn packets_parse_one_size_or_imix() {
        assert_eq!("64".parse::<Packets>().unwrap().sizes(), [(64, 1)]);
        let imix = "imix".parse::<Packets>().unwrap();
        assert!((imix.mean_bytes() - (64.0 * 7.0 + 594.0 * 4.0 + 1518.0) / 12.0).abs() < 1e-9);
        assert_eq!(imix.without_fcs().unwrap().sizes()[0], (60, 7));
        assert!("4".parse::<Packets>().unwrap().without_fcs().is_err());
    }

    #[test]
    fn invalid_histograms_and_sizes_are_rejected() {
        for (text, part) in [
            ("", "colon"),
            ("4", "colon"),
            ("0:5", "no poll"),
            ("4:0", "no poll"),
            ("4:1,4:2", "twice"),
            ("-4:1", "not a number"),
            ("70000:1", "above 65535"),
            ("4:999999999999999", "2^48"),
            ("4:x", "not a number"),
            ("4:1,,8:1", "colon"),
        ] {
            let message = text.parse::<Histogram>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("0:5,4:10"), "{message}");
        }
        for (text, part) in [
            ("", "not a number"),
            ("0", "1 to 65535"),
            ("65536", "1 to 65535"),
            ("64:0", "weight"),
            ("64,64", "twice"),
            ("IMIX", "not a number"),
            ("-1", "not a number"),
        ] {
            let message = text.parse::<Packets>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("imix"), "{message}");
        }
        let many: Vec<String> = (1..=1025).map(|batch| format!("{batch}:1")).collect();
        assert!(many.join(",").parse::<Histogram>().is_err());
    }

    proptest! {
        #[test]
        fn mean_of_packets_is_at_least_mean_of_polls(
            pairs in prop::collection::btree_map(1_u32..65_536, 1_u64..1 << 48, 1..40)
        ) {
            let text: Vec<String> = pairs.iter().map(|(b, n)| format!("{b}:{n}")).collect();
            let histogram: Histogram = text.join(",").parse().unwrap();
            let (polls, packets) = (histogram.mean_of_polls(), histogram.mean_of_packets());
            prop_assert!(polls.is_finite() && polls >= 1.0);
            prop_assert!(packets >= polls * (1.0 - 1e-12), "{} {}", packets, polls);
        }

        #[test]
        fn histogram_and_packets_accept_or_reject_any_text(text in "[0-9:,a-z -]{0,30}") {
            let _ = (text.parse::<Histogram>(), text.parse::<Packets>());
        }
    }
}
