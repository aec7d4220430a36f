//! What a program receives and sends: rate, sizes and batches.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::error::PcieError;
use super::number::{Rate, whole};

/// The most packets of one call, which counts them in 16 bits.
const BATCH_MAX: u64 = 65_535;
/// More polls of one batch size than a counter of ten years holds; sums of them stay exact.
const POLLS_MAX: u64 = 1 << 48;
/// The largest packet: descriptors give its length in 16 bits.
pub(super) const SIZE_BYTES_MAX: u64 = 65_535;
/// More entries than a tester's mix or a driver's bursts have; keeps every sum short.
const ENTRIES_MAX: usize = 1024;
/// The most segments of one packet that haul counts; drivers allow 8 to 40.
const SEGMENTS_MAX: u64 = 255;

/// Bytes of a frame's check sequence (FCS), which NICs take off. Source: IEEE 802.3.
pub(super) const FCS_BYTES: u32 = 4;

/// The simple Internet mix: IP packets of 40, 576 and 1500 B at 7:4:1, with 18 B of Ethernet each
/// and padded to the shortest frame, 64 B. Source: RFC 6985 names the practice
/// of mixes; these weights are the customary ones of testers.
const IMIX: [(u32, u64); 3] = [(64, 7), (594, 4), (1518, 1)];

/// Polls by the number of packets that each returned: `0:5,4:10`.
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
    /// Batch and polls, ascending; at least one.
    batches: Vec<(u32, u64)>,
}

/// Packet sizes with their weights, in bytes: `64`, `64:7,594:4,1518:1` or `imix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Size and weight, ascending; at least one.
    sizes: Vec<(u32, u64)>,
}

/// Which packets cross the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// As many are received as are sent: forwarding.
    #[default]
    Both,
    /// Received ones alone.
    Rx,
    /// Sent ones alone.
    Tx,
}

/// A workload on one port.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Packets a second, each way.
    pub rate: Rate,
    /// Their sizes in memory.
    pub packets: Packets,
    /// Whether they are received, sent, or both.
    pub traffic: Traffic,
    /// Polls for received packets.
    pub rx: Histogram,
    /// Calls that send.
    pub tx: Histogram,
    /// Buffers that a packet is spread over, 1 to 255.
    pub segments: u32,
    /// Whether each sent packet has a context descriptor before it, as for offloads.
    pub context: bool,
    /// How far into a cache line each packet begins, in bytes: 0 to 63.
    pub offset: u32,
}

impl Workload {
    /// Forwarding of packets in these batches: one buffer each, aligned, no offloads.
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

    /// Checks the numbers that the types allow and no workload has.
    ///
    /// # Errors
    /// [`PcieError::Range`] names the first.
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
    /// Every poll returns so many packets, at least one.
    #[must_use]
    pub fn of_one(batch: u32) -> Self {
        Self { empty: 0, batches: vec![(batch.clamp(1, BATCH_MAX as u32), 1)] }
    }

    /// From polls by their number of packets: empty ones first.
    ///
    /// # Errors
    /// [`PcieError::Histogram`] where no poll returned a packet.
    pub fn of_counts(polls: &[u64]) -> Result<Self, PcieError> {
        let pairs = polls.iter().enumerate().filter(|(batch, polls)| *batch == 0 || **polls > 0);
        let text: Vec<String> = pairs.map(|(batch, polls)| format!("{batch}:{polls}")).collect();
        text.join(",").parse()
    }

    /// Batch and polls, without the empty ones, ascending.
    #[must_use]
    pub fn batches(&self) -> &[(u32, u64)] {
        &self.batches
    }

    /// Polls that returned nothing.
    #[must_use]
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The largest batch.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.batches.last().map_or(0, |(batch, _)| *batch)
    }

    /// Packets over polls that were not empty: what a cost of each burst is divided by.
    #[must_use]
    pub fn mean_of_polls(&self) -> f64 {
        self.mean(f64::from)
    }

    /// The batch that a packet is in, on average: larger than the mean of polls wherever batches
    /// differ.
    #[must_use]
    pub fn mean_of_packets(&self) -> f64 {
        self.mean(|batch| f64::from(batch) * f64::from(batch)) / self.mean_of_polls()
    }

    /// The mean over polls that were not empty.
    pub(super) fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        let polls: f64 = self.batches.iter().map(|(_, polls)| *polls as f64).sum();
        self.batches.iter().map(|(batch, count)| of(*batch) * (*count as f64 / polls)).sum()
    }
}

impl Packets {
    /// Sizes with how many packets have each; at least one, all of 1 to 65,535 B.
    pub(super) fn of_counts(sizes: BTreeMap<u32, u64>) -> Self {
        debug_assert!(!sizes.is_empty());
        Self { sizes: sizes.into_iter().collect() }
    }

    /// Packets of one size.
    ///
    /// # Errors
    /// [`PcieError::Range`] where no packet has that size.
    pub fn of_one(size: u32) -> Result<Self, PcieError> {
        in_range("packet size", u64::from(size), 1, SIZE_BYTES_MAX)?;
        Ok(Self { sizes: vec![(size, 1)] })
    }

    /// As many packets of each size from one to another.
    ///
    /// # Errors
    /// [`PcieError::Range`] where no packet has one of them.
    pub fn of_each(first: u32, last: u32) -> Result<Self, PcieError> {
        in_range("packet size", u64::from(first), 1, SIZE_BYTES_MAX)?;
        in_range("packet size", u64::from(last), u64::from(first), SIZE_BYTES_MAX)?;
        Ok(Self::of_counts((first..=last).map(|size| (size, 1)).collect()))
    }

    /// Packets of frames of one size, without the check sequence of 4 B, which NICs take off.
    ///
    /// # Errors
    /// [`PcieError::Range`] where no frame has that size.
    pub fn of_frames(size: u64) -> Result<Self, PcieError> {
        in_range("frame size", size, u64::from(FCS_BYTES) + 1, SIZE_BYTES_MAX)?;
        Self::of_one(size as u32 - FCS_BYTES)
    }

    /// The mean over packets.
    pub(super) fn mean(&self, of: impl Fn(u32) -> f64) -> f64 {
        let weights: f64 = self.sizes.iter().map(|(_, weight)| *weight as f64).sum();
        self.sizes.iter().map(|(size, weight)| of(*size) * (*weight as f64 / weights)).sum()
    }

    /// Size and weight, ascending.
    #[must_use]
    pub fn sizes(&self) -> &[(u32, u64)] {
        &self.sizes
    }

    /// The mean size, in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.mean(f64::from)
    }

    /// The same packets where the sizes were those of frames on the wire: 4 B shorter each.
    ///
    /// # Errors
    /// [`PcieError::Range`] where a size is not above those 4 B.
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
            let batch = whole(batch.trim()).ok_or_else(|| refused("a batch is no number"))?;
            let polls = whole(polls.trim()).ok_or_else(|| refused("a count is no number"))?;
            if batch > BATCH_MAX {
                return Err(refused("no call takes that many packets"));
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
            return Err(refused("no poll in it returns a packet"));
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
            let size = whole(size.trim()).ok_or_else(|| refused("a size is no number"))?;
            let weight = whole(weight.trim()).ok_or_else(|| refused("a weight is no number"))?;
            if !(1..=SIZE_BYTES_MAX).contains(&size) {
                return Err(refused("a packet has 1 to 65535 B"));
            }
            if !(1..=POLLS_MAX).contains(&weight) {
                return Err(refused("a weight is 1 to 2^48"));
            }
            sizes.push((size as u32, weight));
        }
        Ok(Self { sizes: distinct(sizes).map_err(refused)? })
    }
}

/// Sorted, none twice, not too many.
fn distinct(mut entries: Vec<(u32, u64)>) -> Result<Vec<(u32, u64)>, &'static str> {
    if entries.len() > ENTRIES_MAX {
        return Err("it has more than 1024 entries");
    }
    entries.sort_unstable();
    match entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        true => Err("one stands there twice"),
        false => Ok(entries),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn histograms_are_read_in_any_order() {
        let histogram: Histogram = "4:10, 0:5,8:0".parse().unwrap();
        assert_eq!((histogram.empty(), histogram.batches()), (5, &[(4, 10)][..]));
        let example: Histogram = "8:1,10:1,12:2".parse().unwrap();
        assert_eq!((example.mean_of_polls(), example.largest()), (10.5, 12));
    }

    #[test]
    fn sizes_are_one_several_or_the_mix() {
        assert_eq!("64".parse::<Packets>().unwrap().sizes(), [(64, 1)]);
        let imix = "imix".parse::<Packets>().unwrap();
        assert!((imix.mean_bytes() - (64.0 * 7.0 + 594.0 * 4.0 + 1518.0) / 12.0).abs() < 1e-9);
        assert_eq!(imix.without_fcs().unwrap().sizes()[0], (60, 7));
        assert!("4".parse::<Packets>().unwrap().without_fcs().is_err());
    }

    #[test]
    fn impossible_histograms_and_sizes_are_refused() {
        for (text, part) in [
            ("", "colon"),
            ("4", "colon"),
            ("0:5", "no poll"),
            ("4:0", "no poll"),
            ("4:1,4:2", "twice"),
            ("-4:1", "no number"),
            ("70000:1", "that many"),
            ("4:999999999999999", "2^48"),
            ("4:x", "no number"),
            ("4:1,,8:1", "colon"),
        ] {
            let message = text.parse::<Histogram>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("0:5,4:10"), "{message}");
        }
        for (text, part) in [
            ("", "no number"),
            ("0", "1 to 65535"),
            ("65536", "1 to 65535"),
            ("64:0", "weight"),
            ("64,64", "twice"),
            ("IMIX", "no number"),
            ("-1", "no number"),
        ] {
            let message = text.parse::<Packets>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("imix"), "{message}");
        }
        let many: Vec<String> = (1..=1025).map(|batch| format!("{batch}:1")).collect();
        assert!(many.join(",").parse::<Histogram>().is_err());
    }

    proptest! {
        #[test]
        fn weighting_by_packets_never_gives_less(
            pairs in prop::collection::btree_map(1_u32..65_536, 1_u64..1 << 48, 1..40)
        ) {
            let text: Vec<String> = pairs.iter().map(|(b, n)| format!("{b}:{n}")).collect();
            let histogram: Histogram = text.join(",").parse().unwrap();
            let (polls, packets) = (histogram.mean_of_polls(), histogram.mean_of_packets());
            prop_assert!(polls.is_finite() && polls >= 1.0);
            prop_assert!(packets >= polls * (1.0 - 1e-12), "{} {}", packets, polls);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9:,a-z -]{0,30}") {
            let _ = (text.parse::<Histogram>(), text.parse::<Packets>());
        }
    }
}
