//! What a workload's bytes go to, and what would save some of them.
//!
//! Every advice is an estimate made again with one thing changed; what gains nothing is not shown.

use super::error::PcieError;
use super::estimate::{Estimate, estimate};
use super::link::{Link, Settings};
use super::nic::{RxDoorbell, Thresholds, Version};
use super::transaction::{Direction, Sums, Transaction, Way, rate_max};
use super::workload::{Histogram, Workload};

/// Batches that advice tries, smallest first.
const BATCHES: [u32; 3] = [16, 32, 64];
/// A threshold above which receive rings of usual sizes run dry.
const RX_FREE_MOST: u32 = 128;
/// What is less than a thousandth of the traffic is no gain.
const GAIN_LEAST: f64 = 1e-3;

/// Something that can be changed, and what it was found to gain.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What is changed, from what to what: `batch 4 -> 16`.
    pub change: String,
    /// How that is done.
    pub how: String,
    /// Data and headers that are saved, both ways of the link, in bytes a second.
    pub saved_bytes_per_s: f64,
    /// Writes to the device that are saved, a second.
    pub saved_writes_per_s: f64,
    /// The rate at which the link is full then, over the rate at which it is full now.
    pub rate_max_ratio: f64,
    /// The term that loses most bytes.
    pub term: &'static str,
}

/// A term by its name, as a saved record has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Which.
    pub what: String,
    /// Its direction.
    pub direction: Direction,
    /// How many a second.
    pub count_per_s: f64,
    /// Data of one, in bytes.
    pub payload_bytes: f64,
    /// Headers of one, in bytes.
    pub header_bytes: f64,
}

/// A term that two lists of terms differ in.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which.
    pub what: String,
    /// Its direction.
    pub direction: Direction,
    /// How many a second in the first, and in the second; 0 where a list lacks it.
    pub count_per_s: (f64, f64),
    /// Data and headers of one in bytes, likewise.
    pub bytes_each: (f64, f64),
}

/// Why a term differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first list lacks it.
    Added,
    /// The second list lacks it.
    Removed,
    /// There are more or fewer of them.
    Count,
    /// Each is larger or smaller.
    Size,
    /// Both.
    Both,
}

impl From<&Transaction> for Term {
    fn from(term: &Transaction) -> Self {
        Self {
            what: term.what.to_owned(),
            direction: term.direction,
            count_per_s: term.count_per_s,
            payload_bytes: term.payload_bytes,
            header_bytes: term.header_bytes,
        }
    }
}

impl Difference {
    /// Data and headers in bytes a second, in the first and in the second.
    #[must_use]
    pub fn bytes_per_s(&self) -> (f64, f64) {
        let (count, each) = (self.count_per_s, self.bytes_each);
        (count.0 * each.0, count.1 * each.1)
    }

    /// How many bytes a second the second has more.
    #[must_use]
    pub fn more_bytes_per_s(&self) -> f64 {
        self.bytes_per_s().1 - self.bytes_per_s().0
    }

    /// Why.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let differs = |(a, b): (f64, f64)| (a - b).abs() > a.abs().max(b.abs()) * 1e-9;
        match (self.count_per_s, differs(self.count_per_s), differs(self.bytes_each)) {
            ((0.0, _), ..) => Cause::Added,
            ((_, 0.0), ..) => Cause::Removed,
            (_, true, false) => Cause::Count,
            (_, false, _) => Cause::Size,
            _ => Cause::Both,
        }
    }
}

/// Terms that two lists differ in, the largest difference first. Each list has a term of one name
/// and direction once.
#[must_use]
pub fn differences(first: &[Term], second: &[Term]) -> Vec<Difference> {
    let find = |terms: &[Term], like: &Term| {
        let same = |term: &&Term| term.what == like.what && term.direction == like.direction;
        terms.iter().find(same).cloned()
    };
    let none = |like: &Term| Term {
        count_per_s: 0.0,
        payload_bytes: 0.0,
        header_bytes: 0.0,
        ..like.clone()
    };
    let each = |term: &Term| term.payload_bytes + term.header_bytes;
    let of_first = first.iter().map(|a| (a.clone(), find(second, a).unwrap_or(none(a))));
    let only_second = second.iter().filter(|b| find(first, b).is_none());
    let pairs = of_first.chain(only_second.map(|b| (none(b), b.clone())));
    let mut all: Vec<Difference> = pairs
        .map(|(a, b)| Difference {
            count_per_s: (a.count_per_s, b.count_per_s),
            bytes_each: (each(&a), each(&b)),
            what: a.what,
            direction: a.direction,
        })
        .collect();
    all.retain(|difference| {
        let (a, b) = difference.bytes_per_s();
        (b - a).abs() > a.max(b) * 1e-9
    });
    all.sort_by(|a, b| b.more_bytes_per_s().abs().total_cmp(&a.more_bytes_per_s().abs()));
    all
}

/// What would save bytes of an estimate, the most first.
///
/// # Errors
/// The estimate itself is of what cannot be.
pub fn advise(what: &Estimate<'_>) -> Result<Vec<Advice>, PcieError> {
    let now = estimate(what)?;
    let mut advice = Vec::new();
    let mut tried = |change: String, how: &str, then: &Estimate<'_>| {
        // What the driver refuses is no advice.
        let Ok(terms) = estimate(then) else { return };
        advice.extend(gain(change, how, (what, &now), (then, &terms)));
    };
    options(what, &mut tried);
    modes(what, &mut tried);
    thresholds(what, &mut tried);
    batches(what, &mut tried);
    packets(what, &mut tried);
    links(what, &mut tried);
    advice.sort_by(|a: &Advice, b: &Advice| b.saved_bytes_per_s.total_cmp(&a.saved_bytes_per_s));
    Ok(advice)
}

/// What a change gains; `None` where it is nothing, or costs.
fn gain(
    change: String,
    how: &str,
    (before, now): (&Estimate<'_>, &[Transaction]),
    (after, then): (&Estimate<'_>, &[Transaction]),
) -> Option<Advice> {
    let bytes = |terms: &[Transaction]| terms.iter().map(Transaction::bytes_per_s).sum::<f64>();
    let writes = |terms: &[Transaction]| {
        let out = terms.iter().filter(|term| term.direction == Direction::OutboundWrite);
        out.map(|term| term.count_per_s).sum::<f64>()
    };
    let full = |terms: &[Transaction], link: &Link| {
        let rate = after.workload.rate.packets_per_s();
        rate_max(&Sums::of(terms), rate, link.usable_bytes_per_s()).map_or(0.0, |(rate, _)| rate)
    };
    let saved = bytes(now) - bytes(then);
    let saved_writes = writes(now) - writes(then);
    if saved <= bytes(now) * GAIN_LEAST && saved_writes <= writes(now) * GAIN_LEAST || saved < 0.0 {
        return None;
    }
    let named = |terms: &[Transaction]| terms.iter().map(Term::from).collect::<Vec<_>>();
    let differences = differences(&named(now), &named(then));
    let term = differences.iter().find(|difference| difference.more_bytes_per_s() < 0.0)?;
    let term = now.iter().find(|known| known.what == term.what)?.what;
    Some(Advice {
        change,
        how: how.to_owned(),
        saved_bytes_per_s: saved,
        saved_writes_per_s: saved_writes,
        rate_max_ratio: full(then, after.link) / full(now, before.link),
        term,
    })
}

/// What takes a change to try: what it is, how it is done, and the estimate with it.
type Try<'a> = dyn FnMut(String, &str, &Estimate<'_>) + 'a;

fn options(what: &Estimate<'_>, tried: &mut Try<'_>) {
    for choice in what.nic.choices.iter().filter(|choice| !choice.is_device) {
        if let Ok(nic) = what.nic.with(choice.name) {
            let then = Estimate { nic, ..what.clone() };
            tried(format!("option {}", choice.name), choice.about, &then);
        }
    }
}

fn modes(what: &Estimate<'_>, tried: &mut Try<'_>) {
    for (mode, _, _) in what.nic.modes.iter().filter(|(mode, _, _)| *mode != what.mode) {
        let then = Estimate { mode: *mode, ..what.clone() };
        let change = format!("mode {} -> {}", what.mode.name(), mode.name());
        let how = "the driver takes it where offloads, ring sizes and thresholds allow";
        tried(change, how, &then);
    }
    let is_by_release = matches!(what.nic.doorbells(what.mode).0, RxDoorbell::Batch(_));
    if is_by_release && what.version.nearest() < Version::LAST {
        let then = Estimate { version: Version::LAST, ..what.clone() };
        let change = format!("driver {} -> {}", what.version, Version::LAST);
        tried(change, "its vector functions give back more buffers at once", &then);
    }
}

fn thresholds(what: &Estimate<'_>, tried: &mut Try<'_>) {
    let Thresholds { rx_free, tx_rs } = what.thresholds;
    if what.uses_rx_free() && rx_free < RX_FREE_MOST {
        let thresholds = Thresholds { rx_free: RX_FREE_MOST, tx_rs };
        let then = Estimate { thresholds, ..what.clone() };
        let how = "rx_free_thresh of the queue's setup (testpmd: --rxfreet); the ring must hold \
                   several times as many descriptors";
        tried(format!("rx free threshold {rx_free} -> {RX_FREE_MOST}"), how, &then);
    }
    if what.uses_tx_rs() && tx_rs < 32 {
        let thresholds = Thresholds { rx_free, tx_rs: 32 };
        let then = Estimate { thresholds, ..what.clone() };
        let how = "tx_rs_thresh of the queue's setup (testpmd: --txrst), in a ring that it divides";
        tried(format!("report-status threshold {tx_rs} -> 32"), how, &then);
    }
}

fn batches(what: &Estimate<'_>, tried: &mut Try<'_>) {
    let now = what.workload.rx.mean_of_polls().min(what.workload.tx.mean_of_polls());
    let Some(target) = BATCHES.into_iter().find(|batch| f64::from(*batch) >= now * 2.0) else {
        return;
    };
    let batch = Histogram::of_one(target);
    let workload = Workload { rx: batch.clone(), tx: batch, ..what.workload.clone() };
    let then = Estimate { workload: &workload, ..what.clone() };
    let shown = (now * 10.0).round() / 10.0;
    let how = "let packets gather: fewer cores or queues for this rate, or a poll less often, at \
               the price of latency";
    tried(format!("batch {shown} -> {target}"), how, &then);
}

fn packets(what: &Estimate<'_>, tried: &mut Try<'_>) {
    let Workload { segments, context, offset, .. } = *what.workload;
    if segments > 1 {
        let workload = Workload { segments: 1, ..what.workload.clone() };
        let then = Estimate { workload: &workload, ..what.clone() };
        let how = "buffers that hold a whole packet (a larger data room of the mempool)";
        tried(format!("segments {segments} -> 1"), how, &then);
    }
    if context {
        let workload = Workload { context: false, ..what.workload.clone() };
        let then = Estimate { workload: &workload, ..what.clone() };
        tried("no context descriptors".to_owned(), "leave transmit offloads out", &then);
    }
    if offset > 0 {
        let workload = Workload { offset: 0, ..what.workload.clone() };
        let then = Estimate { workload: &workload, ..what.clone() };
        let how = "a headroom that is a multiple of 64 B (RTE_PKTMBUF_HEADROOM)";
        tried(format!("buffers {offset} B into a cache line -> aligned"), how, &then);
    }
}

fn links(what: &Estimate<'_>, tried: &mut Try<'_>) {
    let settings = what.link.settings();
    if settings.mps < 512 {
        let link = what.link.with(Settings { mps: 512, ..settings });
        let how = "the kernel's pci=pcie_bus_perf, where card, bridges and root port all can";
        let change = format!("MPS {} -> 512 B", settings.mps);
        tried(change, how, &Estimate { link: &link, ..what.clone() });
    }
    if settings.mrrs < 4096 {
        let link = what.link.with(Settings { mrrs: 4096, ..settings });
        let how = "setpci, or the driver's own option";
        let change = format!("MRRS {} -> 4096 B", settings.mrrs);
        tried(change, how, &Estimate { link: &link, ..what.clone() });
    }
}

/// The way that carries more, and the terms in order of the bytes that they have on it.
#[must_use]
pub fn busiest(terms: &[Transaction]) -> (Way, Vec<&Transaction>) {
    let (way, _) = Sums::of(terms).busier();
    let mut order: Vec<&Transaction> = terms.iter().collect();
    order.sort_by(|a, b| b.bytes_per_s_on(way).total_cmp(&a.bytes_per_s_on(way)));
    (way, order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::{Mode, NICS, Nic};

    fn with<T>(nic: &str, mode: &str, batches: &str, of: impl Fn(&Estimate<'_>) -> T) -> T {
        let nic: &Nic = nic.parse().unwrap();
        let link = "gen3x8".parse().unwrap();
        let workload = Workload::forwarding(
            "10M".parse().unwrap(),
            "64".parse().unwrap(),
            batches.parse().unwrap(),
        );
        of(&Estimate {
            nic: *nic,
            version: "dpdk-22.11".parse().unwrap(),
            mode: nic.mode(mode).unwrap(),
            thresholds: nic.thresholds,
            workload: &workload,
            link: &link,
        })
    }

    /// The two examples of the issue, in closed form.
    #[test]
    fn descriptors_and_batches_are_what_they_cost() {
        let advice = with("ice", "vector", "0:5,4:10", |what| advise(what).unwrap());
        let of = |change: &str| advice.iter().find(|a| a.change == change).unwrap();
        // 16 B fewer read and 16 B fewer written, 10 M times a second, and fewer, larger reads:
        // four descriptors in a line instead of two, 24 + 20 B of headers for each.
        let descriptors = of("option rx-16-byte").saved_bytes_per_s;
        assert!((descriptors - 1e7 * (32.0 + 44.0 / 4.0)).abs() < 1.0, "{descriptors}");
        let batch = of("batch 4 -> 16");
        assert!((batch.saved_writes_per_s - 1e7 * (1.0 / 4.0 - 1.0 / 16.0)).abs() < 1.0);
        assert_eq!(batch.term, "tx doorbell");
        assert!(advice.windows(2).all(|p| p[0].saved_bytes_per_s >= p[1].saved_bytes_per_s));
        assert!(advice.iter().all(|a| a.rate_max_ratio >= 1.0 - 1e-12), "{advice:#?}");
    }

    #[test]
    fn what_gains_nothing_is_not_shown() {
        let advice = with("ice", "vector", "64:1", |what| advise(what).unwrap());
        let changes: Vec<&str> = advice.iter().map(|a| a.change.as_str()).collect();
        // No larger batch, no threshold that vector functions look at, one release's rule for all.
        for absent in ["batch", "rx free", "driver", "MRRS", "MPS", "segments", "buffers"] {
            assert!(!changes.iter().any(|c| c.starts_with(absent)), "{absent}: {changes:?}");
        }
        let advice = with("ixgbe", "vector", "4:1", |what| advise(what).unwrap());
        assert!(advice.iter().any(|a| a.change == "driver dpdk-22.11 -> dpdk-26.07"));
        assert!(!advice.iter().any(|a| a.change.starts_with("mode vector -> bulk")));
    }

    /// Whatever the NIC and mode: each advice is one that was tried and gains.
    #[test]
    fn every_advice_gains() {
        for nic in &NICS {
            for (mode, _, _) in nic.modes {
                for batches in ["1:1", "4:3,8:1", "32:1"] {
                    let advice = with(nic.name, mode.name(), batches, |what| advise(what).unwrap());
                    for a in advice {
                        let gains = a.saved_bytes_per_s > 0.0 || a.saved_writes_per_s > 0.0;
                        assert!(gains && !a.how.is_empty(), "{}: {a:?}", nic.name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_difference_names_its_term_and_cause() {
        let named = |terms: Vec<Transaction>| terms.iter().map(Term::from).collect::<Vec<_>>();
        let terms =
            |mode, batches| with("ice", mode, batches, |what| named(estimate(what).unwrap()));
        let (four, eight) = (terms("vector", "4:1"), terms("vector", "8:1"));
        assert!(differences(&four, &four).is_empty());
        let found = differences(&four, &eight);
        assert_eq!(found[0].what, "tx doorbell");
        assert_eq!(found[0].cause(), Cause::Count);
        assert!(found[0].more_bytes_per_s() < 0.0);
        let without: Vec<Term> =
            four.iter().filter(|term| term.what != "tx packet").cloned().collect();
        assert_eq!(differences(&four, &without)[0].cause(), Cause::Removed);
        assert_eq!(differences(&without, &four)[0].cause(), Cause::Added);
        let short = with("ice", "vector", "4:1", |what| {
            let nic = what.nic.with("rx-16-byte").unwrap();
            named(estimate(&Estimate { nic, ..what.clone() }).unwrap())
        });
        let found = differences(&four, &short);
        let written = found.iter().find(|d| d.what == "rx write-back").unwrap();
        assert_eq!(written.cause(), Cause::Size);
        assert_eq!(Mode::Vector.name(), "vector");
    }
}
