//! The cost of an allocation as a heap grows, and of a block and its free.

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Comparison, Nanos, Record, Verdict};

use super::{Finding, Tone, finding, open, tone, tone_of_all, verb};
use crate::map;
use crate::select::{bytes, field, threads};
use crate::text;

/// A heap is flat if the time of its last round is at most this factor times that of its first:
/// the project's own target.
pub(super) const FLAT: f64 = 1.05;

/// A heap counts as near the fastest other heap up to this factor: the project's own target for a
/// block and its free.
const NEAR_THE_FASTEST: f64 = 1.2;

/// haul's time of an allocation as the heap grows, and that of the peer whose time grows most,
/// for blocks of one shape.
pub(super) fn growth(records: &[&Record]) -> Option<Finding> {
    let of = |subject: &str| {
        records.iter().copied().find(|record| {
            record.experiment == name::HEAP_GROWTH
                && record.metric == "growth"
                && record.subject == subject
        })
    };
    let haul = of("haul")?;
    let own = growth_of_rounds(records, haul)?;
    let shape =
        |record: &Record| [key::SIZE_BYTES, key::ALIGN_BYTES].map(|name| bytes(record, name));
    let [size, align] = shape(haul);
    let worst = || {
        records
            .iter()
            .copied()
            .filter(|record| record.experiment == name::HEAP_GROWTH && record.metric == "growth")
            .filter(|record| record.subject != "haul" && shape(record) == shape(haul))
            .max_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))
    };
    let beside = worst()
        .and_then(|record| {
            Some(format!("; {} {}", record.subject, growth_of_rounds(records, record)?))
        })
        .unwrap_or_default();
    let flat = if haul.median()? <= FLAT { Tone::Better } else { Tone::Worse };
    let last = |record: &Record| last_round(records, record);
    let beside_it = last(haul)
        .zip(worst().and_then(last))
        .and_then(|(own, other)| Some(beside_another(&Comparison::between(own, other)?)));
    let text = format!(
        "Allocating blocks of {} aligned to {}, haul’s heap {own}{beside}.{}",
        Bytes(size?),
        Bytes(align?),
        filling(haul)
    );
    let tone = match (flat, beside_it) {
        (Tone::Better, Some(beside_it)) => beside_it,
        _ => flat,
    };
    Some(finding(name::HEAP_GROWTH, tone, text))
}

/// The tone of a time compared with another heap's time. A time slightly above the fastest is not
/// a loss.
fn beside_another(comparison: &Comparison) -> Tone {
    match comparison.verdict() {
        Verdict::More if comparison.ratio <= NEAR_THE_FASTEST => Tone::Same,
        _ => tone(comparison),
    }
}

/// When the kernel cleared the memory of the blocks, which takes longer than everything else. Empty
/// if the record does not say what its memory consists of.
fn filling(haul: &Record) -> &'static str {
    let is_pool = field(haul, key::PAGES).map(|pages| pages.starts_with("huge pages"));
    match is_pool {
        _ if haul.parameters.contains_key(key::READY_BYTES) => {
            " haul’s memory was cleared before that time began."
        }
        Some(true) => " The clearing of haul’s memory is in that time.",
        Some(false) => {
            " haul’s memory is cleared when a block is first written to, which is not in that time."
        }
        None => "",
    }
}

/// `takes 31 ns a block in round 5, 1.01 times round 1`.
fn growth_of_rounds(records: &[&Record], growth: &Record) -> Option<String> {
    let last = last_round(records, growth)?;
    Some(format!(
        "takes {} a block in round {}, {:.2} times round 1",
        Nanos(last.median()?),
        round(last)?,
        growth.median()?
    ))
}

fn round(record: &Record) -> Option<u64> {
    record.count(key::ROUND)
}

/// The time of a block in the last round of a heap's growth.
pub(super) fn last_round<'a>(records: &[&'a Record], growth: &Record) -> Option<&'a Record> {
    let is_same = |record: &&Record| {
        record.experiment == name::HEAP_GROWTH
            && record.metric == "alloc_time"
            && record.subject == growth.subject
            && record.run == growth.run
            && [key::SIZE_BYTES, key::ALIGN_BYTES, key::COUNT, key::THREADS, key::SHARED]
                .iter()
                .all(|name| field(record, name) == field(growth, name))
    };
    records.iter().copied().filter(is_same).max_by_key(|record| round(record))
}

/// haul compared with the fastest general allocator, with one thread and the smallest size.
pub(super) fn pairs(records: &[&Record]) -> Option<Finding> {
    let timed = || {
        records.iter().copied().filter(|record| {
            record.experiment == name::HEAP_PAIRS && record.metric == "time" && threads(record) == 1
        })
    };
    let size = |record: &Record| bytes(record, key::SIZE_BYTES);
    let haul =
        timed().filter(|record| record.subject == "haul").min_by_key(|record| size(record))?;
    let fastest = timed()
        .filter(|record| record.subject != "haul" && size(record) == size(haul))
        .min_by(|a, b| a.median().unwrap_or(0.0).total_cmp(&b.median().unwrap_or(0.0)))?;
    let ratio = haul.median()? / fastest.median()?;
    let beside = Comparison::between(haul, fastest)?;
    let unknown = match open(&beside) {
        open if open.is_empty() => String::new(),
        open => format!(" ({open})"),
    };
    let text = format!(
        "A block of {} and its free take haul’s heap {}, {} of what the fastest other, {}, takes{unknown}.",
        Bytes(size(haul)?),
        Nanos(haul.median()?),
        text::percent(ratio),
        fastest.subject
    );
    Some(finding(name::HEAP_PAIRS, beside_another(&beside), text))
}

/// haul on a recorded program, in time and in memory: each of the newest records is compared with
/// the measurements of its own run.
pub(super) fn replays(records: &[&Record], by_run: &[&Record]) -> Vec<Finding> {
    fn whole<'a>(records: &[&'a Record], metric: &'static str) -> impl Iterator<Item = &'a Record> {
        records.iter().copied().filter(move |record| {
            record.experiment == name::HEAP_REPLAY
                && record.metric == metric
                && !record.parameters.contains_key(key::OPERATIONS_DONE)
        })
    }
    let time = whole(records, "time").filter(|record| record.subject == "haul");
    time.filter_map(|time| {
        let is_same = |record: &&Record| {
            record.run == time.run
                && [key::TRACE, key::THREADS]
                    .iter()
                    .all(|name| field(record, name) == field(time, name))
        };
        let peaks: Vec<&Record> = whole(by_run, "footprint_peak").filter(is_same).collect();
        let peak = peaks.iter().find(|record| record.subject == "haul")?;
        let own = peak.median()?;
        let comparison = time.comparison.as_ref()?;
        let of_baseline = peaks
            .iter()
            .find(|record| record.subject == comparison.baseline)
            .and_then(|record| record.median());
        let beside = of_baseline.map_or(String::new(), |mib| {
            format!(", {}’s at {}", comparison.baseline, mebibytes(mib))
        });
        let memory = match (&peak.comparison, of_baseline) {
            (Some(comparison), _) => tone(comparison),
            (None, Some(mib)) if own > mib => Tone::Worse,
            _ => Tone::Same,
        };
        let operations = time.count(key::OPERATIONS)?;
        let operations = usize::try_from(operations).ok()?;
        let text = format!(
            "On what {} allocated ({}), haul’s heap {}; its memory peaks at {}{beside}.",
            field(time, key::PROGRAM)?,
            text::count(operations, "operation"),
            verb(comparison),
            mebibytes(own)
        );
        Some(finding(name::HEAP_REPLAY, tone_of_all([tone(comparison), memory]), text))
    })
    .collect()
}

/// The use of the memory of each heap with a map.
pub(super) fn maps(records: &[&Record]) -> Vec<Finding> {
    let whole = || {
        let is_whole = |record: &&Record| {
            record.experiment == name::HEAP_MAP && field(record, key::BY).as_deref() == Some("heap")
        };
        records.iter().copied().filter(is_whole)
    };
    let ready = whole().filter(|record| record.metric == "ready");
    ready
        .filter_map(|ready| {
            let of = |metric: &str| {
                let is_it =
                    |record: &&Record| record.metric == metric && map::key(record) == map::key(ready);
                whole().find(is_it)?.median()
            };
            let bytes = ready.median().filter(|bytes| *bytes > 0.0)?;
            let rounding = of("rounding").map_or(String::new(), |rounding| {
                format!(", {} of it by rounding up to classes", text::percent(rounding / bytes))
            });
            let text = format!(
                "Of {}: live blocks take {} of the {} with memory{rounding}; {} lies free in spans.",
                map::source(ready),
                text::percent(of("live")? / bytes),
                mebibytes(bytes / 1_048_576.0),
                text::percent(of("free_in_spans").unwrap_or(0.0) / bytes),
            );
            Some(finding(name::HEAP_MAP, Tone::Fact, text))
        })
        .collect()
}

fn mebibytes(mib: f64) -> String {
    format!("{} MiB", haul_model::units::three_digits(mib))
}
