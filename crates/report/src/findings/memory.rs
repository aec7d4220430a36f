//! The limits of the machine: memory bandwidth and page faults.

use std::collections::BTreeMap;

use haul_model::{Bytes, Nanos, Record};

use super::{Finding, Tone, finding};
use crate::select::{bytes, field, threads as threads_of};
use crate::stats::{largest, smallest};
use crate::text;

const BANDWIDTH: &str = "memory.bandwidth";
const FAULT: &str = "memory.fault";

/// More threads that add less than this share add nothing that a reader should buy.
const SATURATED: f64 = 0.05;

/// Median GB/s by operation and threads.
fn rates(records: &[&Record]) -> BTreeMap<String, BTreeMap<u64, f64>> {
    let mut rates: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.experiment == BANDWIDTH && r.unit == "GB/s") {
        let (Some(operation), Some(rate)) = (field(record, "operation"), record.median()) else {
            continue;
        };
        let best = rates.entry(operation).or_default().entry(threads_of(record)).or_insert(rate);
        *best = best.max(rate);
    }
    rates
}

/// How near haul's largest copy comes to what memory allows.
pub(super) fn limit(records: &[&Record]) -> Option<Finding> {
    let limit = *rates(records).get("copy")?.get(&1)?;
    let largest_copy = records
        .iter()
        .filter(|r| {
            r.experiment == "copy.size"
                && r.subject == "haul"
                && r.metric == "time"
                && r.unit == "ns"
        })
        .filter(|r| {
            threads_of(r) == 1 && field(r, "function").is_none_or(|function| function == "memcpy")
        })
        .filter_map(|r| Some((bytes(r, "size_bytes")?, r.median()?)))
        .filter(|(_, time)| *time > 0.0)
        .max_by_key(|(size, _)| *size);
    let memory =
        format!("One thread copies at most {} from memory to memory", text::gigabytes(limit));
    let sentence = match largest_copy {
        Some((size, time)) => {
            #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
            let rate = size as f64 / time;
            let share = text::percent(rate / limit);
            format!(
                "{memory}; haul’s copy of {} reaches {} ({share}).",
                Bytes(size),
                text::gigabytes(rate)
            )
        }
        None => memory + ".",
    };
    Some(finding(BANDWIDTH, Tone::Fact, sentence))
}

/// How much more several threads move.
pub(super) fn threads(records: &[&Record]) -> Option<Finding> {
    let rates = rates(records);
    let mut parts = Vec::new();
    for operation in ["read", "write", "copy"] {
        let Some(by_threads) = rates.get(operation) else { continue };
        let most = largest(by_threads.values().copied())?;
        let enough = by_threads
            .iter()
            .find(|(_, rate)| **rate >= most * (1.0 - SATURATED))
            .map(|(n, _)| *n)?;
        let enough = text::count(usize::try_from(enough).unwrap_or(usize::MAX), "thread");
        parts.push(format!("{operation} {} with {enough}", text::gigabytes(most)));
    }
    let several = rates.values().any(|by_threads| by_threads.len() > 1);
    if parts.is_empty() || !several {
        return None;
    }
    let sentence =
        format!("Memory gives at most: {}; more threads add less than 5%.", text::list(&parts));
    Some(finding(BANDWIDTH, Tone::Fact, sentence))
}

/// What the first touch of memory costs, and whether larger pages make it cheaper.
pub(super) fn faults(records: &[&Record]) -> Option<Finding> {
    // Nanoseconds a page, the page's size, and how it was touched; writes before reads.
    let mut costs: Vec<(u64, String, f64)> = records
        .iter()
        .filter(|r| r.experiment == FAULT && r.metric == "time" && r.unit == "ns")
        .filter_map(|r| {
            Some((bytes(r, "pages")?, field(r, "mode").unwrap_or_default(), r.median()?))
        })
        .filter(|(page, _, cost)| *page > 0 && *cost > 0.0)
        .collect();
    if costs.iter().any(|(_, mode, _)| mode.contains("write")) {
        costs.retain(|(_, mode, _)| mode.contains("write"));
    }
    let small = costs.iter().map(|cost| cost.0).min()?;
    let cost_of =
        |page: u64| smallest(costs.iter().filter(|cost| cost.0 == page).map(|cost| cost.2));
    let cost = cost_of(small)?;
    let mut sentence = format!("The first touch of a {} page costs {}", Bytes(small), Nanos(cost));
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let by_byte = |page: u64| Some(cost_of(page)? / page as f64);
    let large = costs.iter().map(|cost| cost.0).max()?;
    let gain = by_byte(small)? / by_byte(large)?;
    if large == small {
        let found = finding(
            FAULT,
            Tone::Fact,
            sentence + "; a copy into fresh memory pays it for every page.",
        );
        return Some(found.action(
            "Reuse buffers, or touch them ahead of time; `haul doctor` says how to get huge pages.",
        ));
    }
    sentence.push_str(&format!("; by the byte, {} pages cost {gain:.1} times less.", Bytes(large)));
    if gain < 1.1 {
        sentence = sentence.replace(&format!("{gain:.1} times less"), "no less");
        return Some(finding(FAULT, Tone::Fact, sentence));
    }
    Some(
        finding(FAULT, Tone::Fact, sentence)
            .action("Reuse buffers or use huge pages; `haul doctor` says how to get them."),
    )
}
