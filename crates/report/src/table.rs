//! The table behind a plot: every record, every number.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use haul_model::experiment::key;
use haul_model::{Better, Record, Verdict};

use crate::limit;
use crate::note::note;
use crate::rerun;
use crate::select::{is_condition, is_remark, parameter_names};
use crate::stats::quantile;
use crate::text::{self, escape, number};

/// Limit of parameters with a column of their own; haul's own records have some twenty in one
/// experiment. Without a limit, 3,000 records with a different parameter each made a page of 173
/// MB.
const COLUMNS_MAX: usize = 48;

/// Headings that are used below.
const METRIC: &str = "metric";
const MEDIAN: &str = "median";
const UNIT: &str = "unit";
const RATE: &str = "GB/s";
const RATIO: &str = "ratio";
const VERDICT: &str = "verdict";
const NOTE: &str = "note";

/// Parameters that distinguish rows, in the order of importance to a reader.
const WANTED: [&str; 11] = [
    key::WHAT,
    key::DIRECTION,
    key::FUNCTION,
    key::SIZE_BYTES,
    key::SIZE_CLASS,
    key::DISTRIBUTION,
    key::LEVEL,
    key::THREADS,
    key::ROUND,
    key::TARGET,
    key::BUSY_CORE,
];

/// The largest number of columns that are shown initially; a click shows the others.
const COLUMNS_FIRST: usize = 10;

/// Formats records as an HTML table that scrolls inside its own box. Only columns with content
/// appear; those beyond the ten most important have the class `x`, and the page's script hides them
/// until a reader asks for them. The exact value of each number is its cell's `data-v`, which
/// sorting uses. Of more than [`COLUMNS_MAX`] parameters the most frequent get a column; one more
/// column holds all others.
///
/// Records with a size and a time also get their throughput and its share of the memory limit,
/// computed from `limits`: the records of [`name::MEMORY_BANDWIDTH`] on the same machine.
pub(crate) fn table(caption: &str, records: &[&Record], limits: &[&Record]) -> String {
    let columns = Columns::of(records, limits);
    let mut html = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
        escape(caption)
    );
    let header = columns.header();
    let extra = columns.extra(records, &header);
    for ((name, class), extra) in header.iter().zip(&extra) {
        let class = if *extra { format!("{class} x") } else { (*class).to_owned() };
        let _ = write!(html, "<th scope=\"col\" class=\"{class}\">{}</th>", escape(name));
    }
    html.push_str("</tr></thead><tbody>");
    for record in records {
        html.push_str("<tr>");
        for (place, (cell, extra)) in columns.row(record).iter().zip(&extra).enumerate() {
            cell.write(&mut html, place == 0, *extra);
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// The content of a cell.
enum Cell {
    Text(String),
    Command(String),
    /// The text, and the number that sorting uses.
    Number(String, Option<f64>),
}

impl Cell {
    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn number(value: Option<f64>) -> Self {
        Self::Number(value.map(number).unwrap_or_default(), value)
    }

    fn parameter(value: &serde_json::Value) -> Self {
        match value.as_f64() {
            // Counts and sizes are exact; a fraction is rounded like a figure.
            Some(exact) if value.is_f64() => Self::Number(number(exact), Some(exact)),
            Some(exact) => Self::Number(value.to_string(), Some(exact)),
            None => Self::Text(text::value(value)),
        }
    }

    /// Writes a `<td>`, or the row's `<th>`.
    fn write(&self, html: &mut String, names_row: bool, is_extra: bool) {
        let extra = if is_extra { " x" } else { "" };
        let _ = match self {
            Self::Text(text) if names_row => {
                write!(html, "<th scope=\"row\">{}</th>", escape(text))
            }
            Self::Text(text) => write!(html, "<td class=\"t{extra}\">{}</td>", escape(text)),
            Self::Command(text) => {
                write!(html, "<td class=\"t{extra}\"><code>{}</code></td>", escape(text))
            }
            Self::Number(text, Some(exact)) => {
                write!(html, "<td class=\"n{extra}\" data-v=\"{exact}\">{text}</td>")
            }
            Self::Number(text, None) => write!(html, "<td class=\"n{extra}\">{text}</td>"),
        };
    }
}

struct Columns<'a> {
    limits: &'a [&'a Record],
    /// The memory limit of filling or copying, by threads and run, because thousands of rows need
    /// the same few values.
    allowed: RefCell<BTreeMap<(bool, String, String), Option<f64>>>,
    has_throughput: bool,
    parameters: BTreeSet<&'a str>,
    /// The number of further parameters.
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
        header.push((METRIC.into(), "t"));
        header.extend([MEDIAN, "lower quartile", "upper quartile"].map(|name| (name.into(), "n")));
        header.push((UNIT.into(), "t"));
        header.push(("samples".into(), "n"));
        if self.has_throughput {
            header.extend([RATE, "of memory limit"].map(|name| (name.to_string(), "n")));
        }
        if self.has_comparison {
            header.push(("baseline".into(), "t"));
            header.extend(
                [RATIO, "ratio low", "ratio high", "floor"].map(|name| (name.to_string(), "n")),
            );
            header.push((VERDICT.into(), "t"));
        }
        if self.has_note {
            header.push((NOTE.into(), "t"));
        }
        header.extend(["kind", "time", "run", "rerun"].map(|name| (name.to_string(), "t")));
        header
    }

    /// The columns that a reader does not need initially: all except the figure with its unit,
    /// rate, ratio and verdict, and the parameters that distinguish its row from others.
    fn extra(&self, records: &[&Record], header: &[(String, &'static str)]) -> Vec<bool> {
        let mut by_subject: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records {
            by_subject.entry(&record.subject).or_default().push(record);
        }
        let differs = |own: &[&Record], name: &str| {
            own.iter().any(|record| record.parameters.get(name) != own[0].parameters.get(name))
        };
        // A parameter with one value per subject, such as its version, says no more than the
        // subject. Without a figure, the parameters are the only content.
        let has_several_rows = by_subject.values().any(|own| own.len() > 1);
        let has_figures = records.iter().any(|record| !record.samples.is_empty());
        let varies = |name: &&str| match (has_figures, has_several_rows) {
            (false, _) => true,
            (true, true) => by_subject.values().any(|own| differs(own, name)),
            (true, false) => differs(records, name),
        };
        let is_new = |metric: &Record| metric.metric != records[0].metric;
        let mut first: Vec<String> = vec![header[0].0.clone(), MEDIAN.into(), UNIT.into()];
        first.extend([RATE, RATIO, VERDICT].map(str::to_owned));
        if records.iter().any(|record| is_new(record)) {
            first.push(METRIC.into());
        }
        let mut parameters: Vec<&str> = self.parameters.iter().copied().collect();
        parameters.retain(|name| is_condition(name) && varies(name));
        parameters
            .sort_by_key(|name| WANTED.iter().position(|w| w == name).unwrap_or(WANTED.len()));
        first.extend(parameters.iter().map(|name| name.replace('_', " ")));
        first.push(NOTE.into());
        first.retain(|name| header.iter().any(|(has, _)| has == name));
        first.truncate(COLUMNS_FIRST);
        header.iter().map(|(name, _)| !first.contains(name)).collect()
    }

    fn row(&self, record: &Record) -> Vec<Cell> {
        let mut row = vec![Cell::text(&record.subject)];
        for name in &self.parameters {
            let value = record.parameters.get(*name);
            row.push(value.map_or_else(|| Cell::text(""), Cell::parameter));
        }
        if self.others > 0 {
            row.push(Cell::Text(self.others_of(record)));
        }
        row.push(Cell::text(&record.metric));
        row.push(Cell::number(record.median()));
        row.push(Cell::number(quantile(&record.samples, 0.25)));
        row.push(Cell::number(quantile(&record.samples, 0.75)));
        row.push(Cell::text(&record.unit));
        row.push(Cell::Number(record.samples_count().to_string(), None));
        if self.has_throughput {
            let rate = limit::throughput(record);
            let allowed = self.allowed(record);
            row.push(Cell::number(rate));
            row.push(Cell::number(rate.zip(allowed).map(|(rate, allowed)| rate / allowed)));
        }
        if self.has_comparison {
            row.extend(comparison(record));
        }
        if self.has_note {
            row.push(Cell::Text(note(record).unwrap_or_default()));
        }
        row.extend([text::kind(record.kind), &record.time, &record.run].map(Cell::text));
        row.push(Cell::Command(rerun::command(record)));
        row
    }

    /// The parameters without a column, as `name=value`.
    fn others_of(&self, record: &Record) -> String {
        let is_other = |name: &str| !is_remark(name) && !self.parameters.contains(name);
        let own = record.parameters.iter().filter(|(name, _)| is_other(name));
        let own: Vec<String> =
            own.map(|(name, value)| format!("{name}={}", text::value(value))).collect();
        own.join(", ")
    }

    fn allowed(&self, record: &Record) -> Option<f64> {
        let said = |name: &str| record.shown(name).unwrap_or_default();
        let key = (said(key::FUNCTION) == "memset", said(key::THREADS), record.run.clone());
        let find = || limit::memory_limit(self.limits.iter().copied(), record);
        *self.allowed.borrow_mut().entry(key).or_insert_with(find)
    }
}

/// The six columns of a comparison. Its ratio is of time or cost, so that below 1 is better.
fn comparison(record: &Record) -> Vec<Cell> {
    let Some(c) = record.cost() else {
        return (0..6).map(|_| Cell::text("")).collect();
    };
    let mut cells = vec![Cell::text(&c.baseline)];
    let numbers = [c.ratio, c.ratio_low, c.ratio_high, c.floor];
    cells.extend(numbers.map(|number| Cell::number(Some(number))));
    cells.push(Cell::text(match (c.verdict(), Better::of(record)) {
        (verdict @ (Verdict::NoDifference | Verdict::CannotTell), _) => verdict.name(),
        (Verdict::Less, Some(_)) => "better",
        (Verdict::More, Some(_)) => "worse",
        (Verdict::Less, None) => "less",
        (Verdict::More, None) => "more",
    }));
    cells
}
