//! Allocation.

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Nanos, Record};

use super::{Tone, Verdict, row, speed, tone_of_ratio};
use crate::findings::heap::{FLAT, last_round};
use crate::select::{bytes, field, threads};

/// Blocks of one shape while nothing is freed: the last round, beside the fastest other.
pub(super) fn growth(records: &[&Record]) -> Option<Verdict> {
    let grown =
        |record: &&&Record| record.experiment == name::HEAP_GROWTH && record.metric == "growth";
    let haul = records.iter().filter(grown).find(|record| record.subject == "haul")?;
    let shape = |record: &Record| {
        [key::SIZE_BYTES, key::ALIGN_BYTES, key::COUNT, key::THREADS]
            .map(|name| field(record, name))
    };
    let others: Vec<(&str, f64)> = records
        .iter()
        .filter(grown)
        .filter(|record| record.subject != "haul" && shape(record) == shape(haul))
        .filter_map(|record| {
            Some((record.subject.as_str(), last_round(records, record)?.median()?))
        })
        .collect();
    let own = last_round(records, haul)?.median()?;
    let fastest = others.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let slowest = others.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ratio = own / fastest.1;
    let tone = if haul.median()? > FLAT { Tone::Worse } else { tone_of_ratio(ratio) };
    let mut text = format!("{} a block: {}", Nanos(own), speed_or_equal(ratio, fastest.0, tone));
    if slowest.0 != fastest.0 {
        text.push_str(&format!(", {}", speed(own / slowest.1, slowest.0)));
    }
    let growth = haul.median()?;
    if growth > FLAT {
        let grows = three_digits(growth);
        text.push_str(&format!("; {grows} times as long in the last round as in the first"));
    }
    let question = format!(
        "blocks of {} aligned to {}",
        Bytes(bytes(haul, key::SIZE_BYTES)?),
        Bytes(bytes(haul, key::ALIGN_BYTES)?)
    );
    let action = match tone {
        Tone::Worse => format!("stay with {} for these", fastest.0),
        Tone::Same => format!("nothing, unless {} grows where you are", slowest.0),
        _ => "`haul::heap::Heap`; under DPDK `LD_PRELOAD=libhaul_rte_malloc.so`".into(),
    };
    let course = rounds(records, haul).into_iter().map(|time| time / fastest.1);
    Some(row(name::HEAP_GROWTH, &question, text, tone).act(&action).course(course))
}

/// haul's time of a block, round by round.
fn rounds(records: &[&Record], growth: &Record) -> Vec<f64> {
    let round = |record: &Record| record.parameters.get(key::ROUND)?.as_u64();
    let mut rounds: Vec<(u64, f64)> = records
        .iter()
        .filter(|record| {
            record.experiment == name::HEAP_GROWTH
                && record.metric == "alloc_time"
                && record.subject == growth.subject
                && record.run == growth.run
                && field(record, key::SIZE_BYTES) == field(growth, key::SIZE_BYTES)
        })
        .filter_map(|record| Some((round(record)?, record.median()?)))
        .collect();
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, time)| time).collect()
}

/// A small block and its free, one thread, beside the fastest other.
pub(super) fn pairs(records: &[&Record]) -> Option<Verdict> {
    let timed = || {
        records.iter().copied().filter(|record| {
            record.experiment == name::HEAP_PAIRS && record.metric == "time" && threads(record) == 1
        })
    };
    let size = |record: &Record| bytes(record, key::SIZE_BYTES);
    let fastest_at = |bytes: Option<u64>| {
        let others = timed().filter(|r| r.subject != "haul" && size(r) == bytes);
        let others = others.filter_map(|record| Some((record.subject.as_str(), record.median()?)));
        others.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut own: Vec<&Record> = timed().filter(|record| record.subject == "haul").collect();
    own.sort_by_key(|record| size(record));
    let haul = own.first()?;
    let (other, theirs) = fastest_at(size(haul))?;
    let ratio = haul.median()? / theirs;
    let tone = tone_of_ratio(ratio);
    let text = format!("{}: {}", Nanos(haul.median()?), speed_or_equal(ratio, other, tone));
    let question = format!("a block of {} and its free", Bytes(size(haul)?));
    let action = match tone {
        Tone::Worse => format!("stay with {other} where this is what you do"),
        Tone::Same => "nothing".into(),
        _ => "`haul::heap::Heap`".into(),
    };
    let course = own.iter().filter_map(|r| Some(r.median()? / fastest_at(size(r))?.1));
    Some(row(name::HEAP_PAIRS, &question, text, tone).act(&action).course(course))
}

fn speed_or_equal(ratio: f64, other: &str, tone: Tone) -> String {
    if tone == Tone::Same { format!("as fast as {other}") } else { speed(ratio, other) }
}
