//! The course of a replay for a terminal: figures as a table, and lines over the course.

use haul_model::experiment::{key, name};
use haul_model::{Nanos, Record};

use crate::summary::{Comparisons, Measured, Order, RULE};
use crate::terminal::{self, Table};

/// Bars for a value, from the smallest to the largest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole text for a person; empty if nothing was measured.
pub(super) fn text<'a>(records: impl Iterator<Item = &'a Record>, order: Order) -> String {
    let records: Vec<&Record> =
        records.filter(|record| record.experiment == name::HEAP_REPLAY).collect();
    let Some(first) = records.first() else { return String::new() };
    let mut text = format!("{}\n\n{}", heading(first), figures(&records).table(order).text());
    for (metric, unit, title) in [
        ("footprint", "MiB", "resident memory beyond what the process had before"),
        ("time", "ns", "time per operation, with the first write to its pages"),
    ] {
        text.push_str(&format!("\n\n{title}, from start to end:\n"));
        text.push_str(&lines(&records, metric, unit));
    }
    let width = terminal::width();
    if let Some(note) = haul_report::note(first) {
        text.push_str(&format!("\n\n{}", terminal::wrap(&format!("note: {note}"), width, 6)));
    }
    let note = "ratio: time or memory over the baseline's, below 1 is better; floor: how far the baseline \
         differed from itself in the same run.";
    let note = &format!("{note} {RULE}");
    text.push_str(&format!("\n\n{}", terminal::wrap(note, width, 0)));
    for sentence in figures(&records).sentences() {
        text.push_str(&format!("\n\n{sentence}"));
    }
    text
}

fn heading(record: &Record) -> String {
    let text = |name: &str| record.shown(name).unwrap_or_default();
    let (threads, recorded) = (text(key::THREADS), text(key::THREADS_RECORDED));
    let threads = match threads == recorded {
        true if threads == "1" => "1 thread".into(),
        true => format!("{threads} threads as recorded"),
        false => format!("{threads} of {recorded} recorded threads"),
    };
    format!(
        "{} ({}): {} operations, {threads}",
        text(key::TRACE),
        text(key::PROGRAM),
        text(key::OPERATIONS)
    )
}

/// The figures over the whole course, by heap.
pub(super) fn figures(records: &[&Record]) -> Comparisons {
    const HEADINGS: [&str; 6] = ["figure", "heap", ">value", ">ratio", ">interval", ">floor"];
    let mut table = Comparisons::new(&HEADINGS, true);
    let whole = |record: &&&Record| !record.parameters.contains_key(key::OPERATIONS_DONE);
    for record in records.iter().filter(whole) {
        let (name, value) = match record.metric.as_str() {
            "time" => ("time per operation", record.median().map(|ns| Nanos(ns).to_string())),
            _ => ("largest footprint", record.median().map(|mib| format!("{mib:.2} MiB"))),
        };
        let mut row = vec![name.into(), record.subject.clone(), value.unwrap_or_default()];
        let comparison = record.cost();
        let is_time = record.metric == "time";
        if let Some(comparison) = &comparison {
            row.extend([
                format!("{:.3}", comparison.ratio),
                format!("{:.3}-{:.3}", comparison.ratio_low, comparison.ratio_high),
                format!("{:.3}", comparison.floor),
            ]);
        }
        let measured = Measured { cost: record.median(), comparison, is_time };
        table.add(name.into(), &record.subject, measured, row);
    }
    table
}

/// A line of bars for each heap, all on one scale, with its last and its largest value.
fn lines(records: &[&Record], metric: &str, unit: &str) -> String {
    let mut courses: Vec<(&str, Vec<f64>)> = Vec::new();
    let is_point = |record: &&&Record| {
        record.metric == metric && record.parameters.contains_key(key::OPERATIONS_DONE)
    };
    for record in records.iter().filter(is_point) {
        let value = record.median().unwrap_or(0.0);
        match courses.iter_mut().find(|(subject, _)| *subject == record.subject) {
            Some((_, course)) => course.push(value),
            None => courses.push((&record.subject, vec![value])),
        }
    }
    let most = |course: &[f64]| course.iter().copied().fold(0.0, f64::max);
    let all: Vec<f64> = courses.iter().map(|(_, course)| most(course)).collect();
    let top = most(&all);
    let mut table = Table::new(&["heap", "", ">most", ">end"]);
    for (subject, course) in &courses {
        let number = |value: f64| match unit {
            "ns" => Nanos(value).to_string(),
            _ => format!("{} {unit}", haul_model::units::three_digits(value)),
        };
        let end = course.last().copied().unwrap_or(0.0);
        table.add(vec![
            (*subject).to_owned(),
            course.iter().map(|value| bar(*value, top)).collect(),
            number(most(course)),
            number(end),
        ]);
    }
    table.text()
}

fn bar(value: f64, top: f64) -> char {
    let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    BARS[((share * BARS.len() as f64) as usize).min(BARS.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_share_one_scale() {
        let point = |subject: &str, done: u64, value: f64| {
            let mut record = Record::new("r", "heap.replay", subject, "footprint", "MiB")
                .with("operations_done", done)
                .with("trace", "sort.trace")
                .with("note", "the trace has 3 frees missing");
            record.samples = vec![value];
            record
        };
        let records = [
            point("haul", 1, 0.0),
            point("haul", 2, 4.0),
            point("libc", 1, 8.0),
            point("libc", 2, 1.0),
        ];
        let text = text(records.iter(), Order::Fastest);
        assert!(text.contains("haul  ▁▅  4.00 MiB  4.00 MiB"), "{text}");
        assert!(text.contains("libc  █▂  8.00 MiB  1.00 MiB"), "{text}");
        assert!(text.contains("note: the trace has 3 frees missing"), "{text}");
        assert_eq!(super::text([].into_iter(), Order::Name), "");
    }
}
