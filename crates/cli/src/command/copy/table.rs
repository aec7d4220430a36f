//! The table of `haul copy bench`.

use haul_experiments::copy::ThenRead;
use haul_experiments::copy::stream::subjects::EMPTY;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Nanos, Record};
use haul_report::limit;

use crate::journal::Journal;
use crate::summary::{Comparisons, Measured};

/// Every comparison as a row; a blank line separates the sizes.
pub(super) fn comparisons<'a>(records: impl Iterator<Item = &'a Record>) -> Comparisons {
    let records: Vec<&Record> = records.collect();
    let mut headings = vec!["function", "sizes", "level", ">threads"];
    let has_readers = records.iter().any(|record| reader(record) != ThenRead::Nothing.name());
    if has_readers {
        headings.push("then read");
    }
    headings.extend(["subject", ">time"]);
    let has_rates = records.iter().any(|record| limit::throughput(record).is_some());
    if has_rates {
        headings.extend([">GB/s", ">of limit"]);
    }
    headings.extend([">ratio", ">interval", ">floor", "verdict"]);
    let mut table = Comparisons::new(&headings, has_rates);
    // The bandwidth of memory is a rate, where more is better: it is a column here, not a row.
    for record in records.iter().filter(|record| record.experiment != name::MEMORY_BANDWIDTH) {
        let Some(comparison) = record.cost() else { continue };
        let mut row = what(record);
        let mut of = row[..SUBJECT_COLUMN - 1].join(", ");
        if threads(record) > 1 {
            of.push_str(&format!(", {} threads", threads(record)));
        }
        if has_readers {
            row.insert(READER_COLUMN, reader(record).to_owned());
            of.push_str(&format!(", then read {}", reader(record)));
        }
        if has_rates {
            let rate = limit::throughput(record);
            let allowed = limit::memory_limit(records.iter().copied(), record);
            row.push(rate.map_or(String::new(), |rate| format!("{rate:.1}")));
            let share = rate.zip(allowed).map(|(rate, allowed)| rate / allowed);
            row.push(share.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share)));
        }
        row.extend([
            format!("{:.3}", comparison.ratio),
            format!("{:.3}-{:.3}", comparison.ratio_low, comparison.ratio_high),
            format!("{:.3}", comparison.floor),
            comparison.verdict().name().to_owned(),
        ]);
        let cost = Some(comparison.ratio);
        let mut measured = Measured { cost, comparison: Some(comparison), is_time: true };
        if record.subject == EMPTY {
            // It copies nothing, so that it is neither faster nor slower.
            (measured.comparison, measured.is_time) = (None, false);
            row.pop();
        }
        table.add(of, &record.subject, measured, row);
    }
    table
}

/// Index of the subject's column: after the function, the sizes, the level and the threads.
const SUBJECT_COLUMN: usize = 4;

/// Index of the readers' column, if there is one.
const READER_COLUMN: usize = SUBJECT_COLUMN;

fn threads(record: &Record) -> u64 {
    record.count(key::THREADS).unwrap_or(1)
}

/// The bytes of each target that are read right after its call.
fn reader(record: &Record) -> &str {
    let reads = record.text(key::THEN_READ);
    reads.unwrap_or(ThenRead::Nothing.name())
}

/// The program of a stream, with its description.
fn stream(record: &Record) -> String {
    let program = record.shown(key::STREAM).unwrap_or_default();
    match record.text(key::ABOUT) {
        Some(about) => format!("{program}: {about}"),
        None => program,
    }
}

/// Explains the columns of rates, with the bandwidth of memory; `None` without such columns.
pub(super) fn limit_note(journal: &Journal) -> Option<String> {
    let sized = || journal.records().filter(|record| limit::throughput(record).is_some());
    sized().next()?;
    let mut allowed: Vec<String> = sized()
        .filter_map(|record| {
            let rate = limit::memory_limit(journal.records(), record)?;
            let what = if what(record)[0] == "memset" { "filling" } else { "copying" };
            Some(format!("{rate:.1} GB/s by {what}"))
        })
        .collect();
    allowed.sort();
    allowed.dedup();
    let allowed = match allowed.is_empty() {
        true => "the memory's bandwidth".to_owned(),
        false => format!("the memory's {}", allowed.join(" and ")),
    };
    Some(format!(
        "\nGB/s: 10^9 bytes per second, all threads; of limit: share of {allowed}, which a copy inside the \
         caches can exceed."
    ))
}

/// What was measured, its subject, and its time.
fn what(record: &Record) -> Vec<String> {
    let text = |name: &str| record.shown(name).unwrap_or_default();
    if record.experiment == name::COPY_STREAM {
        let time = record.median().map_or(String::new(), |ns| Nanos(ns).to_string());
        let [function, level] = ["as called", "arena"].map(str::to_owned);
        return vec![function, stream(record), level, "1".into(), record.subject.clone(), time];
    }
    let sizes = match record.count(key::SIZE_BYTES) {
        Some(size) => Bytes(size).to_string(),
        None => text(key::DISTRIBUTION) + &text(key::SIZE_CLASS),
    };
    vec![
        text(key::FUNCTION),
        sizes,
        text(key::LEVEL),
        text(key::THREADS),
        record.subject.clone(),
        record.median().map_or(String::new(), |ns| Nanos(ns).to_string()),
    ]
}
