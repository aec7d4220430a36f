//! The subject of an estimate, from the command line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use haul_model::experiment::key;
use haul_model::pcie::{
    self, Capture, Histogram, Link, Mode, Nic, Offered, Packets, PcieError, Rate, Settings,
    Thresholds, Version, Workload, check_rate, line_rate,
};
use haul_model::units::three_digits;
use haul_model::{Bytes, Record};

use super::{count, link_of};
use crate::arguments::pcie::{NicArguments, Subject as Arguments, Traffic};
use crate::error::Error;

/// Number of bytes of a capture per read.
const PIECE_BYTES: usize = 1 << 16;

/// Default batches of polls: full bursts.
const FULL: &str = "32:1";

/// Packet numbers that differ by at least this ratio get a note: a hundredth more.
const NOTABLE: f64 = 1.01;

/// Only the sums are shown for a range of sizes.
const ONE_WORKLOAD: &str = "one size or mix, such as --sizes 64 or --mix imix, not a range";

/// A NIC with its driver, a workload and a link, checked.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) nic: Nic,
    pub(super) asked: Version,
    pub(super) mode: Mode,
    pub(super) thresholds: Thresholds,
    pub(super) workload: Workload,
    pub(super) link: Link,
    /// The offered load. The workload's rate is this load, converted for its sizes.
    offered: Offered,
    is_free_set: bool,
    is_rs_set: bool,
    /// Notes on the capture.
    notes: Vec<String>,
}

/// A NIC with its driver and its link, checked.
pub(super) struct Built {
    pub(super) nic: Nic,
    pub(super) asked: Version,
    pub(super) mode: Mode,
    pub(super) thresholds: Thresholds,
    pub(super) link: Link,
    is_free_set: bool,
    is_rs_set: bool,
}

impl Built {
    /// # Errors
    ///
    /// No NIC is named, or a link, a mode or an option cannot exist.
    pub(super) fn check(arguments: NicArguments) -> Result<Self, Error> {
        let link = link_of(
            &arguments.link,
            Settings {
                rcb: arguments.rcb,
                completions: arguments.completions.into(),
                ..Settings::default()
            },
        )?;
        let nic = arguments.nic.ok_or(PcieError::Missing { option: "--nic" })?;
        let mode = arguments.mode.map_or(Ok(nic.usual_mode()), |mode| nic.mode(&mode))?;
        let mut built = *nic;
        for option in &arguments.option {
            built = built.with(option)?;
        }
        Ok(Self {
            nic: built,
            asked: arguments.driver.unwrap_or(Version::LAST),
            mode,
            thresholds: Thresholds {
                rx_free: arguments.rx_free.unwrap_or(nic.thresholds.rx_free),
                tx_rs: arguments.tx_rs.unwrap_or(nic.thresholds.tx_rs),
            },
            link,
            is_free_set: arguments.rx_free.is_some(),
            is_rs_set: arguments.tx_rs.is_some(),
        })
    }
}

impl Subject {
    /// Checks a subject; `sizes`, if there are any, replace the sizes of the command line.
    ///
    /// # Errors
    /// A value is missing, or a link, a size, a mode or a threshold cannot exist.
    pub(super) fn check(arguments: Arguments, sizes: Option<Packets>) -> Result<Self, Error> {
        fits(&arguments)?;
        let built = Built::check(arguments.nic)?;
        let missing = |option| PcieError::Missing { option };
        let offered = arguments.rate.ok_or(missing("--rate"))?;
        let named = match arguments.sizes.as_ref().map(|sizes| &sizes.0[..]) {
            _ if sizes.is_some() => sizes,
            None => arguments.mix,
            Some([one]) => Some(Packets::of_one(size(one))?),
            Some(_) => return Err(missing(ONE_WORKLOAD).into()),
        };
        let (mut packets, mut notes) = match (named, arguments.capture) {
            (Some(packets), _) => (packets, Vec::new()),
            (None, Some(path)) => captured(&path)?,
            (None, None) => return Err(missing("--sizes, --mix or --capture").into()),
        };
        if arguments.with_fcs {
            packets = packets.without_fcs()?;
        }
        notes.dedup();
        let rate = offered.rate(&packets)?;
        let received = arguments.histogram.map_or_else(|| FULL.parse(), Ok)?;
        let workload = Workload {
            traffic: arguments.traffic.into(),
            tx: arguments.tx_histogram.unwrap_or_else(|| received.clone()),
            segments: arguments.segments,
            context: arguments.context,
            offset: arguments.offset,
            ..Workload::forwarding(rate, packets, received)
        };
        let Built { nic, asked, mode, thresholds, link, is_free_set, is_rs_set } = built;
        let subject = Self {
            nic,
            asked,
            mode,
            thresholds,
            workload,
            link,
            offered,
            is_free_set,
            is_rs_set,
            notes,
        };
        let packets = subject.workload.packets.clone();
        subject.with_packets(packets)
    }

    /// The same subject with other packets, at the rate that is offered for these packets.
    ///
    /// # Errors
    /// No line carries that many packets.
    pub(super) fn with_packets(mut self, packets: Packets) -> Result<Self, Error> {
        let rate = self.offered.rate(&packets)?;
        check_rate(rate, &packets, &self.nic)?;
        (self.workload.rate, self.workload.packets) = (rate, packets);
        Ok(self)
    }

    pub(super) fn estimate(&self) -> pcie::Estimate<'_> {
        pcie::Estimate {
            nic: self.nic,
            version: self.asked,
            mode: self.mode,
            thresholds: self.thresholds,
            workload: &self.workload,
            link: &self.link,
        }
    }

    /// Notes on the packets, which hold under all rules.
    pub(super) fn packet_notes(&self) -> Vec<String> {
        let Workload { rate, packets, .. } = &self.workload;
        let of_line = note_of_line(&self.nic, *rate, packets);
        self.notes.iter().cloned().chain(of_line).collect()
    }

    /// Notes that explain an estimate by the driver's rules.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.packet_notes();
        let what = self.estimate();
        notes.extend(note_of_release(self.asked));
        if self.is_free_set && !what.uses_rx_free() {
            notes.push(format!(
                "--rx-free changes nothing: {} in mode {} has a fixed batch, or no doorbell",
                self.nic.name,
                self.mode.name()
            ));
        }
        if self.is_rs_set && !what.uses_tx_rs() {
            notes.push(format!("--tx-rs changes nothing for {}", self.nic.name));
        }
        notes.extend(self.note_of_completions());
        if !self.nic.remarks.is_empty() {
            notes.push(self.nic.remarks.to_owned());
        }
        let fetch = self.nic.rx_fetch;
        if fetch.source.starts_with("assumed") {
            notes.push(format!(
                "the number of descriptors that the device reads at once ({}) is {}; another number changes \
                 counts and headers, but no sum of data",
                fetch.descriptors, fetch.source
            ));
        }
        notes
    }

    /// How much it matters where the host splits completions, if it matters much.
    fn note_of_completions(&self) -> Option<String> {
        let now = self.link.settings();
        let whole = Settings { completions: pcie::Completions::Payload, ..now };
        let link = Link::new(&self.link.to_string(), whole).ok()?;
        let what = self.estimate();
        let full = |link: &Link| {
            let limit = pcie::limit(&pcie::Estimate { link, ..what.clone() }).ok().flatten();
            limit.map(|limit| limit.packets_per_s)
        };
        let (by_boundary, by_payload) = (full(&self.link)?, full(&link)?);
        (by_payload > by_boundary * NOTABLE).then(|| {
            format!(
                "the host is assumed to split completions at each {} B (RCB); if it splits them by \
                 MPS, {} B, the link carries {} packets/s, {}% more: --completions mps",
                now.rcb,
                now.mps,
                count(by_payload),
                three_digits((by_payload / by_boundary - 1.0) * 100.0)
            )
        })
    }

    /// The record with the parameters of this subject.
    pub(super) fn describe(&self, record: Record) -> Record {
        let settings = self.link.settings();
        let batches = |histogram: &Histogram| {
            let empty = (histogram.empty() > 0).then_some((0, histogram.empty()));
            let all = empty.into_iter().chain(histogram.batches().iter().copied());
            let pairs = all.map(|(batch, polls)| format!("{batch}:{polls}"));
            pairs.collect::<Vec<_>>().join(",")
        };
        record
            .with(key::NIC, self.nic.name)
            .with(key::DRIVER, self.asked.to_string())
            .with(key::DRIVER_RULES, self.asked.nearest().to_string())
            .with(key::MODE, self.mode.name())
            .with(key::RATE_PACKETS_PER_S, self.workload.rate.packets_per_s())
            .with(key::SIZES_BYTES, sizes(&self.workload.packets))
            .with(key::RX_BATCHES, batches(&self.workload.rx))
            .with(key::TX_BATCHES, batches(&self.workload.tx))
            .with(key::TRAFFIC, self.workload.traffic.name())
            .with(key::LINK, self.link.to_string())
            .with(key::MPS_BYTES, settings.mps)
            .with(key::MRRS_BYTES, settings.mrrs)
            .with(key::RCB_BYTES, settings.rcb)
    }
}

/// The size of a packet. No packet has more than 32 bits of size; a larger size is refused like
/// the largest.
pub(super) fn size(size: &Bytes) -> u32 {
    u32::try_from(size.0).unwrap_or(u32::MAX)
}

/// Checks that options of packets fit the packets that exist.
///
/// # Errors
/// An option is for packets that `--traffic` excludes.
fn fits(arguments: &Arguments) -> Result<(), Error> {
    let remedy = "name one of these";
    let unused = |option, belongs| Err(Error::Unused { option, belongs, remedy });
    let sent = "--traffic both and --traffic tx";
    match arguments.traffic {
        Traffic::Rx if arguments.tx_histogram.is_some() => unused("--tx-histogram", sent),
        Traffic::Rx if arguments.context => unused("--context", sent),
        Traffic::Rx if arguments.nic.tx_rs.is_some() => unused("--tx-rs", sent),
        Traffic::Tx if arguments.nic.rx_free.is_some() => {
            unused("--rx-free", "--traffic both and --traffic rx")
        }
        // Without `--tx-histogram`, `--histogram` also applies to calls that send.
        Traffic::Tx if arguments.histogram.is_some() && arguments.tx_histogram.is_some() => {
            unused("--histogram beside --tx-histogram", "--traffic both and --traffic rx")
        }
        _ => Ok(()),
    }
}

/// The note on a release that has the rules of another release.
pub(super) fn note_of_release(asked: Version) -> Option<String> {
    let rules = asked.nearest();
    (rules != asked).then(|| {
        format!(
            "the sources of {asked} were not read: haul uses the rules of the nearest release, \
             {rules}"
        )
    })
}

/// The note on more packets than the NIC's line carries.
pub(super) fn note_of_line(nic: &Nic, rate: Rate, packets: &Packets) -> Option<String> {
    let line = line_rate(nic, packets)?;
    (!line.carries(rate)).then(|| {
        format!(
            "{} packets/s are above the line rate of {}: its fastest port has {} Gb/s, which is {} \
             packets/s of these sizes",
            count(rate.packets_per_s()),
            nic.name,
            line.gigabits_per_s,
            count(line.packets_per_s)
        )
    })
}

/// Sizes with their weights; for a capture with more sizes than a record has room for, their number
/// and mean.
fn sizes(packets: &Packets) -> String {
    let sizes = packets.sizes();
    if sizes.len() > 64 {
        return format!("{} sizes, mean {:.1}", sizes.len(), packets.mean_bytes());
    }
    let pairs: Vec<String> =
        sizes.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
    pairs.join(",")
}

/// The sizes of a capture, with notes on what was left out.
fn captured(path: &Path) -> Result<(Packets, Vec<String>), Error> {
    let unread = |reason| Error::Capture { path: path.to_owned(), reason };
    let wrong = |reason| Error::NoCapture { path: path.to_owned(), reason };
    let mut file = File::open(path).map_err(unread)?;
    let mut capture = Capture::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return capture.finish().map_err(wrong),
            Ok(some) => capture.push(&piece[..some]).map_err(wrong)?,
            Err(reason) if reason.kind() == std::io::ErrorKind::Interrupted => {}
            Err(reason) => return Err(unread(reason)),
        }
    }
}
