//! The results of a field test, or of a comparison of two sets of runs, in formats that other
//! programs read.

use haul_model::Record;
use haul_model::experiment::{key, name};
use serde_json::{Map, Value, json};

use crate::compare::{change_name, change_of, words};
use crate::field;
use crate::text;

/// A format of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Bencher Metric Format: an object of benchmarks, each with its measures.
    Bencher,
    /// A `customSmallerIsBetter` list of github-action-benchmark.
    Github,
    /// A table in Markdown.
    Markdown,
    /// A list of objects in JSON.
    Json,
}

/// A ratio with its verdict.
struct Row {
    name: String,
    verdict: &'static str,
    ratio: f64,
    low: f64,
    high: f64,
    floor: f64,
    /// The figure with the change, or of the newer runs.
    now: Option<f64>,
    unit: String,
}

/// The results among these records in a format, with a line break at the end. A ratio is one of
/// cost: below 1 is better.
///
/// ```
/// use haul_model::{Comparison, Record};
/// use haul_report::{Format, export};
/// let mut record = Record::new("r", "field.verdict", "env:X=1", "wall", "s")
///     .with("program", "sort big").with("verdict", "faster");
/// record.samples = vec![2.0, 2.1, 1.9];
/// let (ratio, ratio_low, ratio_high, floor) = (0.97, 0.96, 0.98, 0.01);
/// let baseline = "without".into();
/// record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
/// let text = export([&record], Format::Bencher);
/// assert!(text.contains(r#""sort big with env:X=1""#) && text.contains(r#""lower_value": 0.96"#));
/// ```
#[must_use]
pub fn export<'a>(records: impl IntoIterator<Item = &'a Record>, format: Format) -> String {
    let records: Vec<&Record> = records.into_iter().collect();
    let rows: Vec<Row> = rows(&records);
    match format {
        Format::Bencher => pretty(&bencher(&rows)),
        Format::Github => pretty(&Value::Array(rows.iter().map(github).collect())),
        Format::Json => pretty(&Value::Array(rows.iter().map(plain).collect())),
        Format::Markdown => markdown(&rows),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("rows are plain data with string keys") + "\n"
}

fn rows(records: &[&Record]) -> Vec<Row> {
    let changes: Vec<&Record> =
        records.iter().copied().filter(|it| it.experiment == name::COMPARE).collect();
    let names = words(&changes);
    let changes = changes.iter().zip(names).filter_map(|(record, name)| of_change(record, &name));
    records.iter().filter_map(|record| of_test(record)).chain(changes).collect()
}

/// A row of a field test.
fn of_test(record: &Record) -> Option<Row> {
    let verdict = field::verdict(record)?.name();
    let it = record.cost()?;
    let program = record.text(key::PROGRAM).unwrap_or_default();
    Some(Row {
        name: format!("{program} with {}", record.subject),
        verdict,
        ratio: it.ratio,
        low: it.ratio_low,
        high: it.ratio_high,
        floor: it.floor,
        now: record.median(),
        unit: format!("{}, {}", record.metric, record.unit),
    })
}

/// A row of a comparison of two sets of runs.
fn of_change(record: &Record, name: &str) -> Option<Row> {
    let ratio = record.median()?;
    let number = |name: &str| record.number(name);
    Some(Row {
        name: format!("{name}, {}", record.subject),
        verdict: change_of(record).map_or("", change_name),
        ratio,
        low: number(key::RATIO_LOW).unwrap_or(ratio),
        high: number(key::RATIO_HIGH).unwrap_or(ratio),
        floor: number(key::NOISE).unwrap_or(0.0),
        now: number(key::NEW),
        unit: record.text(key::UNIT).unwrap_or_default().to_owned(),
    })
}

/// The measure `ratio` of each benchmark, and `value` with the figure itself.
fn bencher(rows: &[Row]) -> Value {
    let measures = |row: &Row| {
        let mut all = Map::new();
        let mut add = |measure: &str, values: Value| all.insert(measure.into(), values);
        let ratio = json!({ "value": row.ratio, "lower_value": row.low, "upper_value": row.high });
        add("ratio", ratio);
        if let Some(now) = row.now {
            add("value", json!({ "value": now }));
        }
        Value::Object(all)
    };
    Value::Object(rows.iter().map(|row| (row.name.clone(), measures(row))).collect())
}

fn github(row: &Row) -> Value {
    let half = (row.high - row.low) / 2.0;
    let range = if half < 1e6 { format!("± {half:.4}") } else { "± any".to_owned() };
    let floor = text::percent(row.floor.min(1e6));
    json!({
        "name": row.name,
        "unit": "ratio",
        "value": row.ratio,
        "range": range,
        "extra": format!("{}; noise floor {floor}", row.verdict),
    })
}

fn plain(row: &Row) -> Value {
    json!({
        "name": row.name,
        "verdict": row.verdict,
        "ratio": row.ratio,
        "ratio_low": row.low,
        "ratio_high": row.high,
        "floor": row.floor,
        "value": row.now,
        "unit": row.unit,
    })
}

fn markdown(rows: &[Row]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let end = |ratio: f64| if ratio < 1e6 { format!("{ratio:.3}") } else { "any".to_owned() };
    let mut lines =
        "| what | verdict | ratio | interval | floor |\n|---|---|--:|--:|--:|\n".to_owned();
    for row in rows {
        lines.push_str(&format!(
            "| {} | {} | {:.3} | {} to {} | {} |\n",
            cell(&row.name),
            row.verdict,
            row.ratio,
            end(row.low),
            end(row.high),
            text::percent(row.floor.min(1e6)),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use haul_model::Comparison;

    use super::*;

    fn test() -> Record {
        let mut record = Record::new("r", name::FIELD_VERDICT, "env:X=1|2", "wall", "s")
            .with(key::PROGRAM, "sort")
            .with(key::VERDICT, "slower");
        record.samples = vec![2.0, 3.0, 4.0];
        let (ratio, ratio_low, ratio_high, floor) = (1.03, 1.02, 1.05, 0.01);
        let baseline = "without".into();
        record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
        record
    }

    fn change() -> Record {
        let mut record = Record::new("r", name::COMPARE, "haul", "ratio", "ratio")
            .with(key::OF, "heap.pairs")
            .with(key::CHANGE, "faster")
            .with(key::RATIO_LOW, 0.8)
            .with(key::RATIO_HIGH, 0.9)
            .with(key::NOISE, 0.02)
            .with(key::NEW, 51.0)
            .with(key::UNIT, "ns");
        record.samples = vec![0.85];
        record
    }

    #[test]
    fn formats_have_the_fields_that_their_readers_need() {
        let (test, change) = (test(), change());
        let of = |format| export([&test, &change], format);
        let read = |format| serde_json::from_str::<Value>(&of(format)).unwrap();
        let bencher = read(Format::Bencher);
        let benchmark = &bencher["sort with env:X=1|2"];
        assert_eq!(benchmark["ratio"]["upper_value"], 1.05);
        assert_eq!(benchmark["value"]["value"], 3.0);
        assert_eq!(bencher.as_object().unwrap().len(), 2);
        let github = read(Format::Github);
        for row in github.as_array().unwrap() {
            assert!(row["name"].is_string() && row["unit"].is_string() && row["value"].is_number());
        }
        assert_eq!(github[0]["extra"], "slower; noise floor 1.0%");
        let json = read(Format::Json);
        assert_eq!((&json[1]["verdict"], &json[1]["value"]), (&json!("faster"), &json!(51.0)));
        let markdown = of(Format::Markdown);
        assert_eq!(markdown.lines().count(), 4);
        assert!(markdown.contains("| sort with env:X=1\\|2 | slower | 1.030 | 1.020 to 1.050 |"));
    }

    #[test]
    fn export_of_nothing_is_an_empty_list() {
        assert_eq!(export([], Format::Github), "[]\n");
        assert_eq!(export([], Format::Bencher), "{}\n");
    }
}
