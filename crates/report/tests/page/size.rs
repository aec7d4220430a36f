//! The size of a page and the time to make it.

use std::time::Instant;

use haul_model::{Line, Record};
use haul_report::html;

use crate::{data, page_of, records, samples};

#[test]
fn page_without_records_is_small() {
    let empty = html(&[]).len();
    assert!(empty < 150_000, "{empty} bytes before any data");
}

#[test]
fn page_of_long_runs_is_small() {
    let mut lines = samples::survey("m1", "Sample CPU");
    for line in &mut lines {
        if let Line::Record(record) = line {
            let own = record.samples.clone();
            record.samples = own.iter().cycle().take(1000).copied().collect();
        }
    }
    let page = html(&lines).len();
    let records = lines.len();
    assert!(page < 150_000 + records * 3_000, "{page} bytes for {records} records");
}

/// Whether two values are equal; numbers are compared to eleven digits.
fn are_near(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("finite"), b.as_f64().expect("finite"));
            (a - b).abs() <= 1e-11 * a.abs()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| are_near(a, b)))
        }
        _ => a == b,
    }
}

/// A page of compact records differs from that of full ones only in its embedded records.
#[test]
fn compact_records_give_the_same_page() {
    let mut lines = samples::survey("m1", "Sample CPU");
    for line in &mut lines {
        if let Line::Record(record) = line {
            let own = record.samples.clone();
            // The step is not a short decimal, so that no value lies halfway between two rounded
            // ones.
            let step = std::f64::consts::E * 1e-5;
            let drift = |(round, sample): (u32, f64)| sample * (1.0 + step * f64::from(round));
            record.samples = (0..101).zip(own.into_iter().cycle()).map(drift).collect();
        }
    }
    let compact = haul_report::compact(lines.clone());
    assert!(records(&compact).all(|record| record.samples.len() == 5));
    let (page, of_compact) = (html(&lines), html(&compact));
    assert!(are_near(&data(&page, "plots"), &data(&of_compact, "plots")), "the plots differ");
    // Only the visible text; a cell's `data-v` is its sort key.
    let text = |page: &str| {
        let shown = page.split("<script type=\"application/json\"").next().expect("one part");
        let cells =
            shown.split(" data-v=\"").map(|cell| cell.split_once('"').map_or(cell, |c| c.1));
        cells.collect::<String>()
    };
    assert!(text(&page) == text(&of_compact), "the pages differ");
    assert_eq!(haul_report::findings(&lines), haul_report::findings(&compact));
}

/// Changes the record of this number so that it differs from the others.
type Change = fn(&mut Record, u64);

/// `count` records of copies of 4 KiB, each changed by its number.
fn many(count: u64, change: Change) -> Vec<Line> {
    let record = |number: u64| {
        let mut record = samples::record("m", "copy.size", "haul").with("size_bytes", 4096);
        record.samples = vec![number as f64 + 1.0];
        change(&mut record, number);
        Line::from(record)
    };
    (0..count).map(record).collect()
}

fn a_parameter_each(record: &mut Record, number: u64) {
    record.parameters.insert(format!("own{number}"), number.into());
}

/// With a column for each name, these records made a page of 173 MB.
#[test]
fn columns_are_limited_for_many_parameter_names() {
    let page = page_of("names", &many(3000, a_parameter_each));
    assert!(page.len() < 16 << 20, "{} B", page.len());
    assert!(page.contains("more parameters</th>"), "nothing says what has no column");
    for number in [0, 1500, 2999] {
        let (column, together) = (format!(">own{number}</th>"), format!("own{number}={number}"));
        assert!(page.contains(&column) || page.contains(&together), "{number} is not in the table");
    }
}

/// Eight times the records may take some eight times as long. If they took sixty-four times as
/// long, a page of many hosts' surveys would never be finished.
#[test]
fn page_time_grows_less_than_quadratically_with_records() {
    let changes: [(&str, Change); 4] = [
        ("the same again", |_, _| {}),
        ("a parameter each", a_parameter_each),
        ("another experiment each", |record, number| record.experiment = format!("e{number}")),
        ("memory's limit again and again", |record, number| {
            if number % 2 == 0 {
                record.experiment = "memory.bandwidth".into();
                (record.metric, record.unit) = ("throughput".into(), "GB/s".into());
                record.parameters.insert("operation".into(), "copy".into());
            }
        }),
    ];
    for (what, change) in changes {
        let seconds = |count| {
            let lines = many(count, change);
            let start = Instant::now();
            assert!(html(&lines).ends_with("</html>\n"));
            start.elapsed().as_secs_f64()
        };
        // Other work on the machine may disturb one of the two measurements.
        let is_fair = |_| seconds(4000) / seconds(500) < 24.0;
        assert!((0..5).any(is_fair), "{what}: eight times the records took 24 times as long");
    }
}
