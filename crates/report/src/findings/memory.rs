//! The limits of the machine: memory bandwidth and page faults.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Nanos, Record};

use super::{Finding, Tone, finding};
use crate::select::{bytes, field, threads as threads_of};
use crate::stats::{largest, smallest};
use crate::text;

/// Threads that add less than this share to the rate are not worth recommending.
const SATURATED: f64 = 0.05;

/// Above this share of the memory limit, a copy did not go to memory. The two are measured with
/// different buffers and differ by some percent.
const HELD_BY_CACHES: f64 = 1.1;

/// Median GB/s by operation and threads.
fn rates(records: &[&Record]) -> BTreeMap<String, BTreeMap<u64, f64>> {
    let mut rates: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for record in
        records.iter().filter(|r| r.experiment == name::MEMORY_BANDWIDTH && r.unit == "GB/s")
    {
        let (Some(operation), Some(rate)) = (field(record, key::OPERATION), record.median()) else {
            continue;
        };
        let best = rates.entry(operation).or_default().entry(threads_of(record)).or_insert(rate);
        *best = best.max(rate);
    }
    rates
}

/// The memory limit of one thread and of all threads, and how close haul's largest copy comes to
/// it.
pub(super) fn limit(records: &[&Record]) -> Option<Finding> {
    let rates = rates(records);
    let one = rates.get("copy").and_then(|by_threads| by_threads.get(&1)).map(|limit| {
        let reach = haul_rate(records).map_or_else(String::new, |(size, rate)| {
            let (share, size) = (rate / limit, Bytes(size));
            if share > HELD_BY_CACHES {
                format!(
                    "; haul's copies of {size} reach {}, so caches hold much of them",
                    text::gigabytes(rate)
                )
            } else {
                format!(", and haul reaches {} of that with copies of {size}", text::percent(share))
            }
        });
        format!("Memory lets one thread copy {}{reach}", text::gigabytes(*limit))
    });
    let several = rates.values().any(|by_threads| by_threads.len() > 1).then(|| {
        let most: Vec<String> = ["read", "write", "copy"]
            .iter()
            .filter_map(|name| most(name, rates.get(*name)?))
            .collect();
        format!("all threads at most {}", text::list(&most))
    });
    let parts: Vec<String> = one.into_iter().chain(several).collect();
    (!parts.is_empty()).then(|| finding(name::MEMORY_BANDWIDTH, Tone::Fact, parts.join("; ") + "."))
}

/// `read 71.9 GB/s (5 threads)`: the highest rate, and the fewest threads that come within 5% of
/// it.
fn most(operation: &str, by_threads: &BTreeMap<u64, f64>) -> Option<String> {
    let most = largest(by_threads.values().copied())?;
    let (enough, _) = by_threads.iter().find(|(_, rate)| **rate >= most * (1.0 - SATURATED))?;
    let enough = text::count(usize::try_from(*enough).ok()?, "thread");
    Some(format!("{operation} {} ({enough})", text::gigabytes(most)))
}

/// The largest size that haul copied with one thread, with its rate in GB/s.
fn haul_rate(records: &[&Record]) -> Option<(u64, f64)> {
    let (size, time) = records
        .iter()
        .filter(|r| {
            r.experiment == name::COPY_SIZE
                && r.subject == "haul"
                && r.metric == "time"
                && r.unit == "ns"
        })
        .filter(|r| {
            threads_of(r) == 1
                && field(r, key::FUNCTION).is_none_or(|function| function == "memcpy")
        })
        .filter_map(|r| Some((bytes(r, key::SIZE_BYTES)?, r.median()?)))
        .filter(|(_, time)| *time > 0.0)
        .max_by_key(|(size, _)| *size)?;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let size_bytes = size as f64;
    Some((size, size_bytes / time))
}

/// The cost of the first touch of memory, and whether larger pages reduce it.
pub(super) fn faults(records: &[&Record]) -> Option<Finding> {
    // The page's size, the kind of touch and the nanoseconds per page; writes before reads.
    let mut costs: Vec<(u64, String, f64)> = records
        .iter()
        .filter(|r| r.experiment == name::MEMORY_FAULT && r.metric == "time" && r.unit == "ns")
        .filter_map(|r| {
            Some((bytes(r, key::PAGES)?, field(r, key::MODE).unwrap_or_default(), r.median()?))
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
    let touch = format!("The first touch of a {} page costs {}", Bytes(small), Nanos(cost));
    let large = costs.iter().map(|cost| cost.0).max()?;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let gain = (cost / small as f64) / (cost_of(large)? / large as f64);
    let (comparison, action) = if large == small {
        ("a copy into fresh memory pays it for every page".into(), REUSE)
    } else if gain < WORTHWHILE {
        (
            format!(
                "{} pages cost no less by the byte, so the kernel may have given none",
                Bytes(large)
            ),
            REUSE,
        )
    } else {
        (format!("by the byte, {} pages cost {gain:.1} times less", Bytes(large)), ENLARGE)
    };
    Some(finding(name::MEMORY_FAULT, Tone::Fact, format!("{touch}; {comparison}.")).action(action))
}

/// A gain of larger pages below this factor is not worth recommending: the cost of a page fault
/// varies by this factor too.
const WORTHWHILE: f64 = 1.1;
const REUSE: &str =
    "Reuse buffers, or touch them ahead of time; `haul doctor` says how to get huge pages.";
const ENLARGE: &str = "Reuse buffers or use huge pages; `haul doctor` says how to get them.";
