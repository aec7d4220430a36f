//! The terms according to the drivers' rules.

use super::doorbells::Doorbells;
use super::error::PcieError;
use super::link::{Link, WRITE_HEADER_BYTES};
use super::nic::{
    Completion, Inline, Mode, Nic, RxDoorbell, Thresholds, TxDescriptors, TxDoorbell, Version,
    WriteBack,
};
use super::transaction::{Direction, Transaction};
use super::workload::{Workload, in_range};

/// The largest ring of these drivers, and therefore the largest threshold.
const RING_MAX: u64 = 16_384;
/// `*_RX_MAX_BURST`, `*_TX_MAX_BURST`: with smaller thresholds, the drivers use another mode.
const BULK_MIN: u32 = 32;
/// The largest work entry: `MLX5_WQE_SIZE_MAX`.
pub(super) const ENTRY_BYTES_MAX: f64 = 960.0;
/// The size in bytes of a line: a processor combines writes to a device's memory into whole lines
/// before it sends them. Source: Intel's Software Developer's Manual, volume 3, on write combining.
pub(super) const COMBINED_BYTES: u32 = 64;

/// The inputs of an estimate.
#[derive(Clone, Debug)]
pub struct Estimate<'a> {
    /// The NIC with its options applied.
    pub nic: Nic,
    /// The driver's release.
    pub version: Version,
    /// The burst mode, which the driver must have.
    pub mode: Mode,
    /// The thresholds that the program sets.
    pub thresholds: Thresholds,
    /// The packets that it receives and sends.
    pub workload: &'a Workload,
    /// The link.
    pub link: &'a Link,
}

/// The terms according to the driver's rules for this release, mode and thresholds.
///
/// Batches are assumed to come in random order, and a device is assumed to read descriptors as soon
/// as they are announced.
///
/// ```
/// use haul_model::pcie::{Estimate, Link, Nic, Sums, Direction, Workload, estimate};
/// let nic: &Nic = "ice".parse().unwrap();
/// let link: Link = "gen3x8".parse().unwrap();
/// let batches = "0:5,4:10".parse().unwrap();
/// let workload =
///     Workload::forwarding("10M".parse().unwrap(), "64".parse().unwrap(), batches);
/// let terms = estimate(&Estimate {
///     nic: *nic,
///     version: "dpdk-22.11".parse().unwrap(),
///     mode: nic.usual_mode(),
///     thresholds: nic.thresholds,
///     workload: &workload,
///     link: &link,
/// })
/// .unwrap();
/// let sums = Sums::of(&terms);
/// // 64 B of data and descriptors of 32 and 16 B, 10 M times a second.
/// assert_eq!(sums.payload_bytes_per_s(Direction::InboundRead), 1.12e9);
/// // A doorbell for 64 received packets, and one for a burst of 4.
/// assert_eq!(sums.payload_bytes_per_s(Direction::OutboundWrite), 4e7 * (1.0 / 64.0 + 1.0 / 4.0));
/// ```
///
/// # Errors
/// It is an error if a number of the workload or a threshold is out of range.
pub fn estimate(inputs: &Estimate<'_>) -> Result<Vec<Transaction>, PcieError> {
    inputs.workload.check()?;
    check_thresholds(&inputs.nic, inputs.mode, inputs.thresholds)?;
    let mut terms = Vec::new();
    if inputs.workload.traffic.receives() {
        inputs.receive(&mut terms);
    }
    if inputs.workload.traffic.sends() {
        inputs.send(&mut terms);
    }
    terms.retain(|term| term.count_per_s > 0.0);
    Ok(terms)
}

/// Mean data and headers of one transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: f64,
    payload: f64,
    header: f64,
    request: f64,
}

impl Estimate<'_> {
    /// Whether the receive free threshold affects the estimate.
    #[must_use]
    pub fn uses_rx_free(&self) -> bool {
        use RxDoorbell::{Above, AtLeast, Threshold};
        matches!(self.nic.doorbells(self.mode).0, Above | AtLeast | Threshold)
    }

    /// Whether the report-status threshold affects the estimate.
    #[must_use]
    pub fn uses_tx_rs(&self) -> bool {
        self.nic.tx_completion.every == WriteBack::ReportStatus
            || self.nic.doorbells(self.mode).1 == TxDoorbell::ReportStatus
    }

    fn receive(&self, terms: &mut Vec<Transaction>) {
        let rate = self.workload.rate.packets_per_s();
        let descriptors = f64::from(self.workload.segments);
        let fetch = self.nic.rx_fetch.descriptors;
        let read = self.read(fetch * self.nic.rx_descriptor_bytes);
        let count = rate * descriptors / f64::from(fetch);
        terms.push(term("rx descriptor fetch", Direction::InboundRead, count, read));
        let packet = self.packets(|size| self.pieces(size, |bytes| self.write(bytes)));
        terms.push(per_packet("rx packet", Direction::InboundWrite, rate, packet));
        let completion = self.nic.rx_completion;
        terms.push(self.completion("rx write-back", completion, rate, descriptors));
        let (doorbells, batches) = (self.doorbells(), &self.workload.rx);
        terms.push(self.doorbell("rx doorbell", rate * doorbells.rx(batches)));
        let completions = rate * doorbells.rx_completions(batches);
        terms.push(self.doorbell("rx completion doorbell", completions));
    }

    fn send(&self, terms: &mut Vec<Transaction>) {
        let rate = self.workload.rate.packets_per_s();
        let descriptors = f64::from(self.tx_descriptors());
        match self.nic.tx_descriptors {
            TxDescriptors::Pushed { entry_bytes, each_bytes, before_header, .. } => {
                let room = entry_bytes - each_bytes * before_header;
                let entries = f64::from(self.nic.tx_descriptors.pushes(self.tx_descriptors()));
                let pushed = Mean {
                    count: 1.0,
                    payload: f64::from(entry_bytes),
                    header: f64::from(entry_bytes.div_ceil(COMBINED_BYTES))
                        * WRITE_HEADER_BYTES as f64,
                    request: 0.0,
                };
                let count = rate * entries;
                terms.push(term("tx push", Direction::OutboundWrite, count, pushed));
                self.send_packets(terms, |size| size.saturating_sub(room));
            }
            TxDescriptors::Ring { bytes } => {
                let each = u64::from(self.tx_descriptors() * bytes);
                let fetched =
                    self.announced(|packets| self.fetched(u64::from(packets) * each, bytes));
                let bursts = rate / self.workload.tx.mean_of_polls();
                terms.push(per_packet(
                    "tx descriptor fetch",
                    Direction::InboundRead,
                    bursts,
                    fetched,
                ));
                self.send_packets(terms, |size| size);
            }
            TxDescriptors::Entries { .. } => self.send_entries(terms),
        }
        let completion = self.nic.tx_completion;
        terms.push(self.completion("tx write-back", completion, rate, descriptors));
        let (doorbells, bursts) = (self.doorbells(), &self.workload.tx);
        terms.push(self.doorbell("tx doorbell", rate * doorbells.tx(bursts)));
        let completions = rate * doorbells.tx_completions(bursts);
        terms.push(self.doorbell("tx completion doorbell", completions));
    }

    /// Adds the reads of work entries with several packets each. An entry may contain a packet's
    /// data.
    fn send_entries(&self, terms: &mut Vec<Transaction>) {
        let workload = self.workload;
        let TxDescriptors::Entries { head_bytes, each_bytes, block_bytes, packets } =
            self.nic.tx_descriptors
        else {
            return;
        };
        let inlined = |size: u32| match self.nic.inline {
            Some(Inline { bytes_max, .. }) => size <= bytes_max && workload.segments == 1,
            None => false,
        };
        let each = workload.packets.mean(|size| match self.nic.inline {
            Some(inline) if inlined(size) => {
                f64::from((size + inline.extra_bytes).next_multiple_of(inline.align_bytes))
            }
            _ => f64::from(each_bytes * workload.segments),
        });
        let head = f64::from(head_bytes);
        let fit = ((ENTRY_BYTES_MAX - head) / each).floor().max(1.0);
        let most = f64::from(packets).min(fit);
        let padded = |packets: f64| {
            ((head + packets * each) / f64::from(block_bytes)).ceil() * f64::from(block_bytes)
        };
        let fetched = self.bursts(|burst| {
            let full = (f64::from(burst) / most).floor();
            let rest = f64::from(burst) - full * most;
            let bytes = full * padded(most) + if rest > 0.0 { padded(rest) } else { 0.0 };
            self.fetched(bytes as u64, 16)
        });
        let bursts = workload.rate.packets_per_s() / workload.tx.mean_of_polls();
        terms.push(per_packet("tx descriptor fetch", Direction::InboundRead, bursts, fetched));
        self.send_packets(terms, |size| if inlined(size) { 0 } else { size });
    }

    /// Adds the device's reads of packets. `left` returns the bytes of a packet that the device
    /// does not have yet.
    fn send_packets(&self, terms: &mut Vec<Transaction>, left: impl Fn(u32) -> u32) {
        let rate = self.workload.rate.packets_per_s();
        let packet = self.packets(|size| self.pieces(left(size), |bytes| self.read_at(bytes)));
        terms.push(per_packet("tx packet", Direction::InboundRead, rate, packet));
    }

    /// The smallest number of reads that fetch this many bytes of descriptors.
    fn fetched(&self, bytes: u64, descriptor_bytes: u32) -> Mean {
        let most = u64::from(self.nic.tx_fetch.descriptors * descriptor_bytes);
        let full = self.read(most as u32).times((bytes / most) as f64);
        let rest = self.read((bytes % most) as u32);
        full.plus(rest)
    }

    /// One transaction for each of a packet's buffers.
    fn pieces(&self, size: u32, of: impl Fn(u32) -> Mean) -> Mean {
        let segments = self.workload.segments;
        let (each, longer) = (size / segments, size % segments);
        of(each + 1).times(f64::from(longer)).plus(of(each).times(f64::from(segments - longer)))
    }

    fn read(&self, bytes: u32) -> Mean {
        self.read_from(0, bytes)
    }

    fn read_at(&self, bytes: u32) -> Mean {
        self.read_from(self.workload.offset, bytes)
    }

    fn read_from(&self, offset: u32, bytes: u32) -> Mean {
        let read = self.link.read(offset, bytes);
        Mean {
            count: f64::from(u8::from(bytes > 0)),
            payload: f64::from(bytes),
            header: (read.requests.bytes + read.completions.bytes) as f64,
            request: read.requests.bytes as f64,
        }
    }

    fn write(&self, bytes: u32) -> Mean {
        self.write_from(self.workload.offset, bytes)
    }

    fn write_from(&self, offset: u32, bytes: u32) -> Mean {
        Mean {
            count: f64::from(u8::from(bytes > 0)),
            payload: f64::from(bytes),
            header: self.link.write(offset, bytes).bytes as f64,
            request: 0.0,
        }
    }

    /// The mean of `of` over packets.
    fn packets(&self, of: impl Fn(u32) -> Mean) -> Mean {
        mean_of(|part| self.workload.packets.mean(|size| part(of(size))))
    }

    /// The mean over sent bursts of the cost of each doorbell's packets.
    fn announced(&self, of: impl Fn(u32) -> Mean) -> Mean {
        let rule = self.nic.doorbells(self.mode).1;
        self.bursts(|burst| {
            let (whole, chunk, rest) = rule.pieces(burst, self.thresholds);
            of(chunk).times(f64::from(whole)).plus(of(rest))
        })
    }

    /// The mean of `of` over sent bursts.
    fn bursts(&self, of: impl Fn(u32) -> Mean) -> Mean {
        mean_of(|part| self.workload.tx.mean(|burst| part(of(burst))))
    }

    fn completion(
        &self,
        what: &'static str,
        completion: Completion,
        rate: f64,
        descriptors: f64,
    ) -> Transaction {
        let written = match completion.every {
            WriteBack::Each => rate * descriptors,
            WriteBack::Packet => rate,
            // The driver requests it in a packet's last descriptor, so it is for whole packets.
            WriteBack::ReportStatus => {
                rate / (f64::from(self.thresholds.tx_rs) / descriptors).ceil()
            }
            WriteBack::Packets(packets) => rate / f64::from(packets),
            WriteBack::Doorbell => rate * self.doorbells().tx(&self.workload.tx),
        };
        let together = completion.together;
        let write = self.write_from(0, completion.bytes * together);
        term(what, Direction::InboundWrite, written / f64::from(together), write)
    }

    fn doorbell(&self, what: &'static str, count_per_s: f64) -> Transaction {
        let write = Mean {
            count: 1.0,
            payload: f64::from(self.nic.doorbell_bytes),
            header: WRITE_HEADER_BYTES as f64,
            request: 0.0,
        };
        term(what, Direction::OutboundWrite, count_per_s, write)
    }

    fn doorbells(&self) -> Doorbells<'_> {
        let (rx, tx) = self.nic.doorbells(self.mode);
        Doorbells {
            nic: &self.nic,
            rx,
            tx,
            version: self.version,
            thresholds: self.thresholds,
            rx_descriptors: self.workload.segments,
            tx_descriptors: self.tx_descriptors(),
        }
    }

    /// The number of descriptors of a sent packet.
    fn tx_descriptors(&self) -> u32 {
        self.workload.segments + u32::from(self.workload.context)
    }
}

/// # Errors
/// It is an error if a threshold is above the largest ring, or if the driver would use another mode
/// with it.
pub(super) fn check_thresholds(
    nic: &Nic,
    mode: Mode,
    thresholds: Thresholds,
) -> Result<(), PcieError> {
    let Thresholds { rx_free, tx_rs } = thresholds;
    in_range("rx free threshold", u64::from(rx_free), 0, RING_MAX)?;
    in_range("report-status threshold", u64::from(tx_rs), 1, RING_MAX)?;
    let (rx, tx) = nic.doorbells(mode);
    let refused = |name, value| PcieError::Threshold {
        nic: nic.name,
        mode: mode.name(),
        name,
        value,
        limit: "below 32 the driver uses scalar; name that mode, or 32 and more",
    };
    if rx == RxDoorbell::Threshold && rx_free < BULK_MIN {
        return Err(refused("rx free threshold", rx_free));
    }
    if tx == TxDoorbell::ReportStatus && tx_rs < BULK_MIN {
        return Err(refused("report-status threshold", tx_rs));
    }
    Ok(())
}

impl Mean {
    fn times(self, factor: f64) -> Self {
        Self {
            count: self.count * factor,
            payload: self.payload * factor,
            header: self.header * factor,
            request: self.request * factor,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            payload: self.payload + other.payload,
            header: self.header + other.header,
            request: self.request + other.request,
        }
    }
}

/// The mean of each part.
fn mean_of(mean: impl Fn(fn(Mean) -> f64) -> f64) -> Mean {
    Mean {
        count: mean(|mean| mean.count),
        payload: mean(|mean| mean.payload),
        header: mean(|mean| mean.header),
        request: mean(|mean| mean.request),
    }
}

/// A term whose transactions all equal `one`.
fn term(what: &'static str, direction: Direction, count_per_s: f64, one: Mean) -> Transaction {
    Transaction {
        what,
        direction,
        count_per_s,
        payload_bytes: one.payload,
        header_bytes: one.header,
        request_bytes: one.request,
    }
}

/// A term for one or more transactions per packet or burst.
fn per_packet(what: &'static str, direction: Direction, rate: f64, all: Mean) -> Transaction {
    let count = if all.count > 0.0 { all.count } else { 1.0 };
    let count_per_s = if all.count > 0.0 { rate * all.count } else { 0.0 };
    term(what, direction, count_per_s, all.times(1.0 / count))
}
