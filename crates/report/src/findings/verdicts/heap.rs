//! Allocation.

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Bytes, Comparison, Nanos, Record};

use super::{Tone, Verdict, row, settle, speed, speed_of};
use crate::findings::heap::{FLAT, last_round};
use crate::findings::tone;
use crate::select::{bytes, field, threads};

/// Blocks of one shape while nothing is freed: the last round, compared with the fastest other.
pub(super) fn growth(records: &[&Record]) -> Option<Verdict> {
    let grown =
        |record: &&&Record| record.experiment == name::HEAP_GROWTH && record.metric == "growth";
    let haul = records.iter().filter(grown).find(|record| record.subject == "haul")?;
    let shape = |record: &Record| {
        [key::SIZE_BYTES, key::ALIGN_BYTES, key::COUNT, key::THREADS]
            .map(|name| field(record, name))
    };
    let others: Vec<(&Record, f64)> = records
        .iter()
        .filter(grown)
        .filter(|record| record.subject != "haul" && shape(record) == shape(haul))
        .filter_map(|record| last_round(records, record))
        .filter_map(|record| Some((record, record.median()?)))
        .collect();
    let last = last_round(records, haul)?;
    let own = last.median()?;
    let (fastest, theirs) = others.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (slowest, most) = others.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let beside = Comparison::between(last, fastest)?;
    let tone = if haul.median()? > FLAT { Tone::Worse } else { tone(&beside) };
    let mut text = format!("{} a block: {}", Nanos(own), speed_of(&beside));
    if slowest.subject != fastest.subject {
        text.push_str(&format!(", {}", speed(own / most, &slowest.subject)));
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
        Tone::Worse => format!("stay with {} for these", fastest.subject),
        Tone::Same => format!("nothing, unless {} grows where you are", slowest.subject),
        Tone::Unknown => settle(Some(&beside), "haul heap bench --test growth --budget 1m"),
        _ => "`haul::heap::Heap`; under DPDK `LD_PRELOAD=libhaul_rte_malloc.so`".into(),
    };
    let course = rounds(records, haul).into_iter().map(|time| time / theirs);
    Some(row(name::HEAP_GROWTH, &question, text, tone).act(&action).course(course))
}

/// haul's time per block, round by round.
fn rounds(records: &[&Record], growth: &Record) -> Vec<f64> {
    let round = |record: &Record| record.count(key::ROUND);
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

/// A small block and its free with one thread, compared with the fastest other.
pub(super) fn pairs(records: &[&Record]) -> Option<Verdict> {
    let timed = || {
        records.iter().copied().filter(|record| {
            record.experiment == name::HEAP_PAIRS && record.metric == "time" && threads(record) == 1
        })
    };
    let size = |record: &Record| bytes(record, key::SIZE_BYTES);
    let fastest_at = |bytes: Option<u64>| {
        let others = timed().filter(|r| r.subject != "haul" && size(r) == bytes);
        let others = others.filter_map(|record| Some((record, record.median()?)));
        others.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut own: Vec<&Record> = timed().filter(|record| record.subject == "haul").collect();
    own.sort_by_key(|record| size(record));
    let haul = own.first()?;
    let (other, _) = fastest_at(size(haul))?;
    let beside = Comparison::between(haul, other)?;
    let tone = tone(&beside);
    let text = format!("{}: {}", Nanos(haul.median()?), speed_of(&beside));
    let question = format!("a block of {} and its free", Bytes(size(haul)?));
    let action = match tone {
        Tone::Worse => format!("stay with {} where this is what you do", other.subject),
        Tone::Same => "nothing".into(),
        Tone::Unknown => settle(Some(&beside), "haul heap bench --test pairs --budget 1m"),
        _ => "`haul::heap::Heap`".into(),
    };
    let course = own.iter().filter_map(|r| Some(r.median()? / fastest_at(size(r))?.1));
    Some(row(name::HEAP_PAIRS, &question, text, tone).act(&action).course(course))
}
