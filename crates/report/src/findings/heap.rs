//! What allocation costs as a heap grows, and what a block and its free cost.

use haul_model::{Bytes, Nanos, Record};

use super::{Finding, Tone, finding};
use crate::select::{bytes, field, threads};
use crate::text;

const GROWTH: &str = "heap.growth";
const PAIRS: &str = "heap.pairs";

/// A heap whose last round takes no more than this over its first is flat: the project's own target.
const FLAT: f64 = 1.05;

/// What counts as no slower than the fastest of the others: the project's own target for pairs.
const NEAR_THE_FASTEST: f64 = 1.2;

/// How haul and the peers that grow fare with the largest number of blocks of one shape.
pub(super) fn growth(records: &[&Record]) -> Option<Finding> {
    let of = |subject: &str| {
        records.iter().copied().find(|record| {
            record.experiment == GROWTH && record.metric == "growth" && record.subject == subject
        })
    };
    let haul = of("haul")?;
    let own = said(records, haul)?;
    let shape = |record: &Record| ["size_bytes", "align_bytes"].map(|name| bytes(record, name));
    let [size, align] = shape(haul);
    let worst = records
        .iter()
        .copied()
        .filter(|record| record.experiment == GROWTH && record.metric == "growth")
        .filter(|record| record.subject != "haul" && shape(record) == shape(haul))
        .max_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))
        .and_then(|record| Some(format!("{} {}", record.subject, said(records, record)?)));
    let beside = worst.map_or(String::new(), |worst| format!("; {worst}"));
    let flat = haul.median()? <= FLAT;
    let text = format!(
        "Allocating blocks of {} aligned to {}, haul’s heap {own}{beside}.",
        Bytes(size?),
        Bytes(align?)
    );
    Some(finding(GROWTH, if flat { Tone::Better } else { Tone::Worse }, text))
}

/// `takes 31 ns a block in round 5, 1.01 times round 1`.
fn said(records: &[&Record], growth: &Record) -> Option<String> {
    let is_same = |record: &&Record| {
        record.experiment == GROWTH
            && record.metric == "alloc_time"
            && record.subject == growth.subject
            && record.run == growth.run
            && ["size_bytes", "align_bytes", "count", "threads", "shared"]
                .iter()
                .all(|name| field(record, name) == field(growth, name))
    };
    let round = |record: &Record| record.parameters.get("round").and_then(|round| round.as_u64());
    let last = records.iter().copied().filter(is_same).max_by_key(|record| round(record))?;
    Some(format!(
        "takes {} a block in round {}, {:.2} times round 1",
        Nanos(last.median()?),
        round(last)?,
        growth.median()?
    ))
}

/// haul beside the fastest general allocator, one thread, smallest size.
pub(super) fn pairs(records: &[&Record]) -> Option<Finding> {
    let timed = || {
        records.iter().copied().filter(|record| {
            record.experiment == PAIRS && record.metric == "time" && threads(record) == 1
        })
    };
    let size = |record: &Record| bytes(record, "size_bytes");
    let haul =
        timed().filter(|record| record.subject == "haul").min_by_key(|record| size(record))?;
    let fastest = timed()
        .filter(|record| record.subject != "haul" && size(record) == size(haul))
        .min_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))?;
    let ratio = haul.median()? / fastest.median()?;
    let text = format!(
        "A block of {} and its free take haul’s heap {}, {} of what the fastest other, {}, takes.",
        Bytes(size(haul)?),
        Nanos(haul.median()?),
        text::percent(ratio),
        fastest.subject
    );
    let tone = if ratio < 1.0 {
        Tone::Better
    } else if ratio <= NEAR_THE_FASTEST {
        Tone::Same
    } else {
        Tone::Worse
    };
    Some(finding(PAIRS, tone, text))
}
