//! The table behind a plot: every record, every number.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::{Record, Verdict};

use crate::limit;
use crate::note::note;
use crate::rerun;
use crate::select::{is_remark, parameter_names};
use crate::stats::quantile;
use crate::text::{self, escape, number};

/// Parameters that have a column of their own; haul's own records have at most some twenty in one
/// experiment. With a column for each of any number of names, 3,000 records of a stranger with a
/// name each were a page of 173 MB.
const COLUMNS_MAX: usize = 48;

/// Records as an HTML table that scrolls inside its own box. Only columns that hold something
/// appear. Each number's exact value is its cell's `data-v`, which sorting reads. Of more than
/// [`COLUMNS_MAX`] parameters those that most records have get a column; the others stand together
/// in one more.
///
/// Where records have a size and a time, their throughput, and its share of the memory limit that
/// `limits` tell: the records of [`name::MEMORY_BANDWIDTH`] on the same
/// machine.
pub(crate) fn table(caption: &str, records: &[&Record], limits: &[&Record]) -> String {
    let columns = Columns::of(records, limits);
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
        escape(caption)
    );
    for (name, class) in columns.header() {
        let _ = write!(html, "<th scope=\"col\" class=\"{class}\">{}</th>", escape(&name));
    }
    html.push_str("</tr></thead><tbody>");
    for record in records {
        html.push_str(&columns.row(record));
    }
    html.push_str("</tbody></table></div>");
    html
}

struct Columns<'a> {
    limits: &'a [&'a Record],
    /// What memory allowed filling or copying, by threads and run: thousands of rows ask for the
    /// same few.
    allowed: RefCell<BTreeMap<(bool, String, String), Option<f64>>>,
    has_throughput: bool,
    parameters: BTreeSet<&'a str>,
    /// How many more parameters there are.
    others: usize,
    has_comparison: bool,
    has_note: bool,
}

impl<'a> Columns<'a> {
    fn of(records: &[&'a Record], limits: &'a [&'a Record]) -> Self {
        let names = parameter_names(records.iter().copied(), |name| !is_remark(name));
        Self {
            limits,
            allowed: RefCell::default(),
            has_throughput: records.iter().any(|record| limit::throughput(record).is_some()),
            others: names.len().saturating_sub(COLUMNS_MAX),
            parameters: names.into_iter().take(COLUMNS_MAX).collect(),
            has_comparison: records.iter().any(|record| record.comparison.is_some()),
            has_note: records.iter().any(|record| note(record).is_some()),
        }
    }

    fn header(&self) -> Vec<(String, &'static str)> {
        let mut header = vec![("subject".to_string(), "t")];
        header.extend(self.parameters.iter().map(|name| (name.replace('_', " "), "t")));
        if self.others > 0 {
            header.push((format!("{} more parameters", text::grouped(self.others)), "t"));
        }
        header.push(("metric".into(), "t"));
        header.extend(
            ["median", "lower quartile", "upper quartile"].map(|name| (name.to_string(), "n")),
        );
        header.push(("unit".into(), "t"));
        header.push(("samples".into(), "n"));
        if self.has_throughput {
            header.extend(["GB/s", "of memory limit"].map(|name| (name.to_string(), "n")));
        }
        if self.has_comparison {
            header.push(("baseline".into(), "t"));
            header.extend(
                ["ratio", "ratio low", "ratio high", "floor"].map(|name| (name.to_string(), "n")),
            );
            header.push(("verdict".into(), "t"));
        }
        if self.has_note {
            header.push(("note".into(), "t"));
        }
        header.extend(["kind", "time", "run", "rerun"].map(|name| (name.to_string(), "t")));
        header
    }

    fn row(&self, record: &Record) -> String {
        let mut row = format!("<tr><th scope=\"row\">{}</th>", escape(&record.subject));
        for name in &self.parameters {
            row.push_str(&record.parameters.get(*name).map_or_else(|| cell(""), parameter));
        }
        if self.others > 0 {
            row.push_str(&cell(&self.others_of(record)));
        }
        row.push_str(&cell(&record.metric));
        row.push_str(&numeric(record.median()));
        row.push_str(&numeric(quantile(&record.samples, 0.25)));
        row.push_str(&numeric(quantile(&record.samples, 0.75)));
        row.push_str(&cell(&record.unit));
        let _ = write!(row, "<td class=\"n\">{}</td>", record.samples_count());
        if self.has_throughput {
            let rate = limit::throughput(record);
            let allowed = self.allowed(record);
            row.push_str(&numeric(rate));
            row.push_str(&numeric(rate.zip(allowed).map(|(rate, allowed)| rate / allowed)));
        }
        if self.has_comparison {
            self.comparison(record, &mut row);
        }
        if self.has_note {
            row.push_str(&cell(&note(record).unwrap_or_default()));
        }
        row.push_str(&cell(text::kind(record.kind)));
        row.push_str(&cell(&record.time));
        row.push_str(&cell(&record.run));
        let _ = write!(
            row,
            "<td class=\"t\"><code>{}</code></td></tr>",
            escape(&rerun::command(record))
        );
        row
    }

    /// The parameters without a column: `name=value`.
    fn others_of(&self, record: &Record) -> String {
        let is_other = |name: &str| !is_remark(name) && !self.parameters.contains(name);
        let own = record.parameters.iter().filter(|(name, _)| is_other(name));
        let own: Vec<String> =
            own.map(|(name, value)| format!("{name}={}", text::value(value))).collect();
        own.join(", ")
    }

    fn allowed(&self, record: &Record) -> Option<f64> {
        let said = |name: &str| record.parameters.get(name).map(text::value).unwrap_or_default();
        let key = (said(key::FUNCTION) == "memset", said(key::THREADS), record.run.clone());
        let find = || limit::memory_limit(self.limits.iter().copied(), record);
        *self.allowed.borrow_mut().entry(key).or_insert_with(find)
    }

    fn comparison(&self, record: &Record, row: &mut String) {
        let Some(c) = &record.comparison else {
            row.push_str(&cell("").repeat(6));
            return;
        };
        row.push_str(&cell(&c.baseline));
        for value in [c.ratio, c.ratio_low, c.ratio_high, c.floor] {
            row.push_str(&numeric(Some(value)));
        }
        row.push_str(&cell(match c.verdict() {
            Verdict::Less => "less",
            Verdict::More => "more",
            Verdict::NoDifference => "no difference",
        }));
    }
}

fn cell(text: &str) -> String {
    format!("<td class=\"t\">{}</td>", escape(text))
}

fn parameter(value: &serde_json::Value) -> String {
    match value.as_f64() {
        Some(exact) => format!("<td class=\"n\" data-v=\"{exact}\">{value}</td>"),
        None => cell(&text::value(value)),
    }
}

fn numeric(value: Option<f64>) -> String {
    match value {
        Some(value) => format!("<td class=\"n\" data-v=\"{value}\">{}</td>", number(value)),
        None => "<td class=\"n\"></td>".into(),
    }
}
