//! Changes that let the link carry more packets.
//!
//! Every advice repeats the estimate with one change and gives the rate at which the link is then
//! full. A change that does not raise that rate is not advised.

use super::error::PcieError;
use super::estimate::{Estimate, estimate};
use super::link::{Completions, Generation, Link, Settings, WIDTHS_USUAL};
use super::nic::{RxDoorbell, Thresholds, Version};
use super::transaction::{Direction, Sums, Transaction, Way, rate_max};
use super::workload::{Histogram, Workload};

/// The batches that advice tries, smallest first.
const BATCHES: [u32; 3] = [16, 32, 64];
/// The largest threshold that is advised. Above it, receive rings of usual sizes run out of
/// buffers.
const RX_FREE_MOST: u32 = 128;
/// The smallest relative gain that is advised. Rates are shown with three digits, so a smaller
/// gain would not be visible.
const GAIN_LEAST: f64 = 1e-3;
/// The payload sizes that servers set at root ports, in bytes.
const PAYLOADS: [u32; 2] = [256, 512];
/// The read request sizes that advice tries, up to the specification's largest, in bytes.
const REQUESTS: [u32; 4] = [512, 1024, 2048, 4096];

/// The rate at which a link is full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Packets a second, if batches and sizes stay the same.
    pub packets_per_s: f64,
    /// The direction that is full first.
    pub way: Way,
}

/// A change, and the rate that the link allows after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The change, with the old and the new value: `batch 4 -> 16`.
    pub change: String,
    /// How to make the change.
    pub how: String,
    /// The rate at which the link is full after the change, which is above the present rate.
    pub limit: Limit,
    /// That rate over the present one; above 1.
    pub ratio: f64,
    /// The writes to the device that the change saves, a second.
    pub saved_writes_per_s: f64,
    /// The term that loses most bytes in the direction that is full at present; `None` if the link
    /// itself is changed.
    pub term: Option<&'static str>,
}

/// The rate at which the link of an estimate is full; `None` if there is no traffic.
///
/// # Errors
/// It is an error if the inputs of the estimate are invalid.
pub fn limit(inputs: &Estimate<'_>) -> Result<Option<Limit>, PcieError> {
    Ok(limit_of(inputs, &estimate(inputs)?))
}

fn limit_of(inputs: &Estimate<'_>, terms: &[Transaction]) -> Option<Limit> {
    let rate = inputs.workload.rate.packets_per_s();
    let full = rate_max(&Sums::of(terms), rate, inputs.link.usable_bytes_per_s());
    full.map(|(packets_per_s, way)| Limit { packets_per_s, way })
}

/// The changes that raise the rate at which the link is full, the largest gain first. Each change
/// is tried by itself. Of several values of one setting, only the one with the largest gain is
/// advised; if gains are equal, the nearest value.
///
/// # Errors
/// It is an error if the inputs of the estimate are invalid.
pub fn advise(inputs: &Estimate<'_>) -> Result<Vec<Advice>, PcieError> {
    let now = estimate(inputs)?;
    let mut found: Vec<(Kind, Advice)> = Vec::new();
    let mut tried = |kind: Kind, change: String, how: &str, then: &Estimate<'_>| {
        // A change that the driver rejects is not advised.
        let Ok(terms) = estimate(then) else { return };
        let Some(advice) = gain(change, how, (inputs, &now), (then, &terms)) else { return };
        match found.iter_mut().find(|(other, _)| *other == kind && kind != Kind::Other) {
            None => found.push((kind, advice)),
            Some((_, best)) if advice.ratio > best.ratio * (1.0 + GAIN_LEAST) => *best = advice,
            Some(_) => {}
        }
    };
    options(inputs, &mut tried);
    modes(inputs, &mut tried);
    thresholds(inputs, &mut tried);
    batches(inputs, &mut tried);
    packets(inputs, &mut tried);
    settings(inputs, &mut tried);
    links(inputs, &mut tried);
    let mut advice: Vec<Advice> = found.into_iter().map(|(_, advice)| advice).collect();
    advice.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    Ok(advice)
}

/// Kinds of changes. At most one change of a kind is advised, except for `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Maximum payload size.
    Payload,
    /// Maximum read request size.
    Request,
    /// Any other change. Each is advised by itself.
    Other,
}

/// The advice for a change; `None` if it does not raise the rate.
fn gain(
    change: String,
    how: &str,
    (before, now): (&Estimate<'_>, &[Transaction]),
    (after, then): (&Estimate<'_>, &[Transaction]),
) -> Option<Advice> {
    let writes = |terms: &[Transaction]| {
        let out = terms.iter().filter(|term| term.direction == Direction::OutboundWrite);
        out.map(|term| term.count_per_s).sum::<f64>()
    };
    let (full_now, limit) = (limit_of(before, now)?, limit_of(after, then)?);
    let ratio = limit.packets_per_s / full_now.packets_per_s;
    if ratio <= 1.0 + GAIN_LEAST {
        return None;
    }
    let on = |terms: &[Transaction], name: &str| {
        let of = terms.iter().filter(|term| term.what == name);
        of.map(|term| term.bytes_per_s_on(full_now.way)).sum::<f64>()
    };
    let saved = |term: &Transaction| on(now, term.what) - on(then, term.what);
    let term = now.iter().max_by(|a, b| saved(a).total_cmp(&saved(b)));
    Some(Advice {
        change,
        how: how.to_owned(),
        limit,
        ratio,
        saved_writes_per_s: writes(now) - writes(then),
        term: term.filter(|term| saved(term) > 0.0).map(|term| term.what),
    })
}

/// A function that tries a change. Its arguments are the kind of change, a description, how to
/// make the change, and the inputs with it.
type Try<'a> = dyn FnMut(Kind, String, &str, &Estimate<'_>) + 'a;

fn options(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    for choice in inputs.nic.choices.iter().filter(|choice| !choice.is_device) {
        if let Ok(nic) = inputs.nic.with(choice.name) {
            let then = Estimate { nic, ..inputs.clone() };
            tried(Kind::Other, format!("option {}", choice.name), choice.about, &then);
        }
    }
}

fn modes(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    for (mode, _, _) in inputs.nic.modes.iter().filter(|(mode, _, _)| *mode != inputs.mode) {
        let then = Estimate { mode: *mode, ..inputs.clone() };
        let change = format!("mode {} -> {}", inputs.mode.name(), mode.name());
        let how = "the driver chooses it if offloads, ring sizes and thresholds allow";
        tried(Kind::Other, change, how, &then);
    }
    let is_by_release = matches!(inputs.nic.doorbells(inputs.mode).0, RxDoorbell::Batch(_));
    if is_by_release && inputs.version.nearest() < Version::LAST {
        let then = Estimate { version: Version::LAST, ..inputs.clone() };
        let change = format!("driver {} -> {}", inputs.version, Version::LAST);
        tried(Kind::Other, change, "its vector functions return more buffers at once", &then);
    }
}

fn thresholds(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    let Thresholds { rx_free, tx_rs } = inputs.thresholds;
    if inputs.uses_rx_free() && rx_free < RX_FREE_MOST {
        let thresholds = Thresholds { rx_free: RX_FREE_MOST, tx_rs };
        let then = Estimate { thresholds, ..inputs.clone() };
        let how = "rx_free_thresh of the queue's setup (testpmd: --rxfreet); the ring must hold \
                   several times as many descriptors";
        tried(Kind::Other, format!("rx free threshold {rx_free} -> {RX_FREE_MOST}"), how, &then);
    }
    if inputs.uses_tx_rs() && tx_rs < 32 {
        let thresholds = Thresholds { rx_free, tx_rs: 32 };
        let then = Estimate { thresholds, ..inputs.clone() };
        let how = "tx_rs_thresh of the queue's setup (testpmd: --txrst), in a ring that it divides";
        tried(Kind::Other, format!("report-status threshold {tx_rs} -> 32"), how, &then);
    }
}

fn batches(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    let now = inputs.workload.rx.mean_of_polls().min(inputs.workload.tx.mean_of_polls());
    let Some(target) = BATCHES.into_iter().find(|batch| f64::from(*batch) >= now * 2.0) else {
        return;
    };
    let batch = Histogram::of_one(target);
    let workload = Workload { rx: batch.clone(), tx: batch, ..inputs.workload.clone() };
    let then = Estimate { workload: &workload, ..inputs.clone() };
    let shown = (now * 10.0).round() / 10.0;
    let how = "let packets accumulate: fewer cores or queues for this rate, or fewer polls, at the \
               cost of latency";
    tried(Kind::Other, format!("batch {shown} -> {target}"), how, &then);
}

fn packets(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    let Workload { segments, context, offset, .. } = *inputs.workload;
    if segments > 1 {
        let workload = Workload { segments: 1, ..inputs.workload.clone() };
        let then = Estimate { workload: &workload, ..inputs.clone() };
        let how = "buffers that hold a whole packet (a larger data room of the mempool)";
        tried(Kind::Other, format!("segments {segments} -> 1"), how, &then);
    }
    if context {
        let workload = Workload { context: false, ..inputs.workload.clone() };
        let then = Estimate { workload: &workload, ..inputs.clone() };
        let how = "leave transmit offloads out";
        tried(Kind::Other, "no context descriptors".to_owned(), how, &then);
    }
    if offset > 0 {
        let workload = Workload { offset: 0, ..inputs.workload.clone() };
        let then = Estimate { workload: &workload, ..inputs.clone() };
        let how = "a headroom that is a multiple of 64 B (RTE_PKTMBUF_HEADROOM)";
        tried(Kind::Other, format!("buffers {offset} B into a cache line -> aligned"), how, &then);
    }
}

/// Tries settings of the link that software or the host controls.
fn settings(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    let now = inputs.link.settings();
    for mps in PAYLOADS.into_iter().filter(|mps| *mps > now.mps) {
        let link = inputs.link.with(Settings { mps, ..now });
        let how = "the kernel's pci=pcie_bus_perf, if card, bridges and root port support it";
        let change = format!("MPS {} -> {mps} B", now.mps);
        tried(Kind::Payload, change, how, &Estimate { link: &link, ..inputs.clone() });
    }
    for mrrs in REQUESTS.into_iter().filter(|mrrs| *mrrs > now.mrrs) {
        let link = inputs.link.with(Settings { mrrs, ..now });
        let how = "setpci, or the driver's own option";
        let change = format!("MRRS {} -> {mrrs} B", now.mrrs);
        tried(Kind::Request, change, how, &Estimate { link: &link, ..inputs.clone() });
    }
    // If the host splits reads by MPS, the boundary affects only the first completion.
    if now.rcb == 64 && now.completions == Completions::Boundary {
        let link = inputs.link.with(Settings { rcb: 128, ..now });
        let how = "where the root port has 128 bytes (lspci -vv), setpci or the firmware sets the \
                   card's bit; else another host";
        let change = "RCB 64 -> 128 B".to_owned();
        tried(Kind::Other, change, how, &Estimate { link: &link, ..inputs.clone() });
    }
}

/// Tries other links: twice the lanes, the next generation, and, if neither carries the requested
/// rate, the smallest link that does.
fn links(inputs: &Estimate<'_>, tried: &mut Try<'_>) {
    let now = inputs.link;
    let wider = WIDTHS_USUAL.into_iter().filter(|lanes| *lanes > now.lanes());
    let faster = Generation::ALL.into_iter().filter(|one| *one > now.generation());
    let (mut wider, mut faster) = (wider.peekable(), faster.peekable());
    let carries = |link: &Link| {
        let full = limit(&Estimate { link, ..inputs.clone() }).ok().flatten();
        full.is_some_and(|full| full.packets_per_s >= inputs.workload.rate.packets_per_s())
    };
    let (by_width, by_speed) = (
        wider.peek().map(|lanes| now.of(now.generation(), *lanes)),
        faster.peek().map(|generation| now.of(*generation, now.lanes())),
    );
    let mut one_step = |link: &Option<Link>, how: &str| {
        let Some(link) = link else { return false };
        let change = format!("link {now} -> {link}");
        tried(Kind::Other, change, how, &Estimate { link, ..inputs.clone() });
        carries(link)
    };
    let fits = carries(now)
        | one_step(&by_width, "a card and a slot with that many lanes, all of them wired")
        | one_step(&by_speed, "a card and a slot of that generation");
    if fits {
        return;
    }
    let all = Generation::ALL.into_iter().flat_map(|generation| {
        WIDTHS_USUAL.into_iter().map(move |lanes| now.of(generation, lanes))
    });
    let larger = |link: &Link| link.generation() >= now.generation() && link.lanes() >= now.lanes();
    let enough = all.filter(|link| larger(link) && carries(link));
    let by_bytes = |a: &Link, b: &Link| a.raw_bytes_per_s().total_cmp(&b.raw_bytes_per_s());
    if let Some(link) = enough.min_by(by_bytes) {
        let change = format!("link {now} -> {link}");
        let how = "the smallest link that carries the requested rate: a card and a slot for it";
        tried(Kind::Other, change, how, &Estimate { link: &link, ..inputs.clone() });
    }
}

#[cfg(test)]
mod tests;
