//! Shows a comparison: its table in the requested order, this table as Markdown, and for each
//! measurement a sentence that says which subject is how much faster.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use haul_model::{Comparison, Verdict};

use crate::error::Error;
use crate::terminal::{self, Mark, Table};

/// The options of every command that compares.
#[derive(Clone, Debug, Args)]
pub(crate) struct Printing {
    /// Order within a measurement: fastest first, by name, or as measured, with the baseline first
    #[arg(long, value_name = "ORDER", default_value = "fastest")]
    pub(crate) sort: Order,
    /// File for the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) export_markdown: Option<PathBuf>,
}

/// The order of a measurement's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Least time or cost first.
    Fastest,
    /// Alphabetically.
    Name,
    /// In the order of measurement.
    Measured,
}

/// A comparison, row by row.
pub(crate) struct Comparisons {
    headings: Vec<&'static str>,
    rows: Vec<Row>,
    /// Whether a blank line separates the measurements.
    is_parted: bool,
}

struct Row {
    /// Name of the measurement: `memcpy, 4 KiB, l1`. The rows of a measurement are adjacent.
    of: String,
    subject: String,
    measured: Measured,
    cells: Vec<String>,
}

/// The values by which a row is sorted and described.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Time or cost, in the measurement's own unit: less is better. `None` if the value is
    /// neither a time nor a cost.
    pub(crate) cost: Option<f64>,
    /// The comparison in time or cost with the baseline of its run.
    pub(crate) comparison: Option<Comparison>,
    /// Whether the value is a time, so that a sentence can say which subject is faster.
    pub(crate) is_time: bool,
}

impl Mark {
    /// The judgement of a comparison in time or cost.
    pub(crate) fn of(cost: &Comparison) -> Self {
        match cost.verdict() {
            Verdict::Less => Self::Better,
            Verdict::More => Self::Worse,
            Verdict::NoDifference | Verdict::CannotTell => Self::Plain,
        }
    }
}

/// The rule for a difference, printed below every table of comparisons.
pub(crate) const RULE: &str = "There is a difference if its whole interval lies on one side of 1 and beyond the floor. \
     There is none if both ends of the interval and the floor are within 5% of 1. Otherwise the run cannot \
     tell: a larger --budget narrows the interval, a quieter machine the floor.";

/// The largest number of measurements that get a sentence. For more measurements, the table alone
/// is clearer.
const SENTENCES_MAX: usize = 12;

impl Comparisons {
    pub(crate) fn new(headings: &[&'static str], is_parted: bool) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new(), is_parted }
    }

    /// Adds a row; the rows of one measurement must be adjacent.
    pub(crate) fn add(
        &mut self,
        of: String,
        subject: &str,
        measured: Measured,
        cells: Vec<String>,
    ) {
        self.rows.push(Row { of, subject: subject.to_owned(), measured, cells });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn measurements(&self) -> Vec<Vec<&Row>> {
        let mut all: Vec<Vec<&Row>> = Vec::new();
        for row in &self.rows {
            match all.last_mut() {
                Some(last) if last[0].of == row.of => last.push(row),
                _ => all.push(vec![row]),
            }
        }
        all
    }

    pub(crate) fn table(&self, order: Order) -> Table {
        let mut table = Table::new(&self.headings);
        for (index, mut rows) in self.measurements().into_iter().enumerate() {
            if index > 0 && self.is_parted {
                table.add(Vec::new());
            }
            let cost = |row: &Row| row.measured.cost.unwrap_or(f64::INFINITY);
            match order {
                Order::Measured => {}
                Order::Name => rows.sort_by(|a, b| a.subject.cmp(&b.subject)),
                Order::Fastest => rows.sort_by(|a, b| cost(a).total_cmp(&cost(b))),
            }
            for row in rows {
                let mark = row.measured.comparison.as_ref().map_or(Mark::Plain, Mark::of);
                table.add_marked(mark, row.cells.clone());
            }
        }
        table
    }

    /// `At 1 MiB: haul:auto is 2.1 times as fast as mpi, 8.7 as pipe.` One line per measurement.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let all: Vec<String> = self
            .measurements()
            .iter()
            .filter_map(|rows| Some(format!("{}: {}.", rows[0].of, sentence(rows)?)))
            .collect();
        let more = all.len().saturating_sub(SENTENCES_MAX);
        let mut shown: Vec<String> = all.into_iter().take(SENTENCES_MAX).collect();
        if more > 0 {
            shown.push(format!("{more} more are in the table."));
        }
        shown
    }

    /// The table and the sentences as Markdown.
    pub(crate) fn markdown(&self, order: Order) -> String {
        let lines: String = self.sentences().iter().map(|line| format!("- {line}\n")).collect();
        format!("{}\n\n{lines}", self.table(order).markdown())
    }

    /// Prints the table, the note below it and the sentences, and writes the Markdown.
    ///
    /// # Errors
    /// Something cannot be written.
    pub(crate) fn print(&self, printing: &Printing, note: &str) -> Result<(), Error> {
        let table = self.table(printing.sort);
        let sentences = self.sentences().join("\n");
        let note = format!("{} {RULE}", note.trim());
        let paragraphs = note.split("\n\n");
        let note = paragraphs.map(|text| terminal::wrap(text, terminal::width(), 0));
        let note = note.collect::<Vec<_>>().join("\n\n");
        if let Some(path) = &printing.export_markdown {
            haul_machine::file::write_atomically(path, self.markdown(printing.sort).as_bytes())?;
        }
        terminal::print(&table.text())?;
        terminal::print(&format!("\n{note}"))?;
        if sentences.is_empty() { Ok(()) } else { terminal::print(&format!("\n{sentences}")) }
    }
}

/// The names of haul; the first that was measured counts.
const OWN: [&str; 3] = ["haul", "haul:auto", "haul-c"];

/// Compares haul with all others; the fastest subject if haul was not measured.
fn sentence(rows: &[&Row]) -> Option<String> {
    let timed: Vec<(&Row, f64)> = rows
        .iter()
        .filter(|row| row.measured.is_time)
        .filter_map(|row| Some((*row, row.measured.cost?)))
        .filter(|(_, cost)| cost.is_finite() && *cost > 0.0)
        .collect();
    let named = OWN.iter().find_map(|own| timed.iter().find(|(row, _)| row.subject == *own));
    let fastest = || timed.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (own, _) = named.or_else(fastest)?;
    let mut others: Vec<(Verdict, &str, f64)> = timed
        .iter()
        .filter(|(row, _)| row.subject != own.subject)
        .filter_map(|(row, _)| {
            let beside = beside(own, row)?;
            Some((beside.verdict(), row.subject.as_str(), 1.0 / beside.ratio))
        })
        .collect();
    others.sort_by(|a, b| b.2.total_cmp(&a.2));
    let of = |wanted: Verdict| -> Vec<(&str, f64)> {
        let of = others.iter().filter(|(verdict, ..)| *verdict == wanted);
        of.map(|(_, name, ratio)| (*name, *ratio)).collect()
    };
    let names =
        |of: &[(&str, f64)]| of.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if let [(first, ratio), more @ ..] = &of(Verdict::Less)[..] {
        let more: String =
            more.iter().map(|(name, ratio)| format!(", {} as {name}", times(*ratio))).collect();
        parts.push(format!("is {} times as fast as {first}{more}", times(*ratio)));
    }
    let same = of(Verdict::NoDifference);
    if !same.is_empty() {
        let verb = if parts.is_empty() { "is " } else { "" };
        parts.push(format!("{verb}as fast as {}", names(&same)));
    }
    if let [(first, ratio), more @ ..] = &of(Verdict::More)[..] {
        let more: String = more
            .iter()
            .map(|(name, ratio)| format!(", {} that of {name}", times(1.0 / ratio)))
            .collect();
        parts.push(format!("takes {} times the time of {first}{more}", times(1.0 / ratio)));
    }
    let unknown = of(Verdict::CannotTell);
    if !unknown.is_empty() {
        parts.push(format!("may be faster or slower than {} (cannot tell)", names(&unknown)));
    }
    (!parts.is_empty()).then(|| format!("{} {}", own.subject, parts.join(", ")))
}

/// The ratio of one row to another of its measurement. Both rows were compared with one baseline.
/// The errors of the two ratios are independent, so half-widths add by their squares.
fn beside(own: &Row, other: &Row) -> Option<Comparison> {
    let is_baseline = |row: &Row, of: &Comparison| of.baseline == row.subject;
    let (mine, theirs) = (own.measured.comparison.as_ref()?, other.measured.comparison.as_ref()?);
    if is_baseline(other, mine) {
        return Some(mine.clone());
    }
    let half = |of: &Comparison| (of.ratio_high / of.ratio_low).ln() / 2.0;
    let half = if is_baseline(own, theirs) { half(theirs) } else { half(mine).hypot(half(theirs)) };
    let own_ratio = if is_baseline(own, mine) { 1.0 } else { mine.ratio };
    let ratio = own_ratio / theirs.ratio;
    Some(Comparison {
        baseline: other.subject.clone(),
        ratio,
        ratio_low: ratio * (-half).exp(),
        ratio_high: ratio * half.exp(),
        floor: mine.floor.max(theirs.floor),
    })
}

/// Three digits near 1, where they matter, and fewer above.
fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio < 1.995 => format!("{ratio:.2}"),
        _ if ratio < 9.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with times; the last row of a measurement is the baseline.
    fn of(rows: &[(&str, &str, f64)]) -> Comparisons {
        wide(rows, 1.01)
    }

    /// The same rows with intervals that are wider by this factor on either side.
    fn wide(rows: &[(&str, &str, f64)], by: f64) -> Comparisons {
        let mut all = Comparisons::new(&["by", ">cost"], true);
        for (of, subject, cost) in rows {
            let cells = vec![(*subject).to_owned(), cost.to_string()];
            let (_, baseline, of_it) = rows.iter().rev().find(|row| row.0 == *of).unwrap();
            let ratio = cost / of_it;
            let comparison = Some(Comparison {
                baseline: (*baseline).to_owned(),
                ratio,
                ratio_low: ratio / by,
                ratio_high: ratio * by,
                floor: 0.02,
            });
            let measured = Measured { cost: Some(*cost), comparison, is_time: true };
            all.add((*of).to_owned(), subject, measured, cells);
        }
        all
    }

    #[test]
    fn sentence_claims_nothing_for_wide_interval() {
        let rows = [("a", "haul", 0.76), ("a", "pipe", 30.0), ("a", "libc", 1.0)];
        let expected =
            "a: haul is 39 times as fast as pipe, may be faster or slower than libc (cannot tell).";
        assert_eq!(wide(&rows, 4.0).sentences(), [expected]);
    }

    #[test]
    fn sentence_names_faster_subject_and_ratio() {
        let all = of(&[("1 MiB", "pipe", 8.7), ("1 MiB", "haul:auto", 1.0), ("1 MiB", "mpi", 2.1)]);
        let expected = "1 MiB: haul:auto is 8.7 times as fast as pipe, 2.1 as mpi.";
        assert_eq!(all.sentences(), [expected]);
        let all = of(&[("a", "libc", 1.0), ("a", "haul", 1.01), ("a", "x", 0.5), ("a", "y", 30.0)]);
        let expected =
            "a: haul is 30 times as fast as y, as fast as libc, takes 2.0 times the time of x.";
        assert_eq!(all.sentences(), [expected]);
        let slower = of(&[("a", "haul", 3.0), ("a", "tcmalloc", 1.0), ("a", "libc", 2.0)]);
        let expected = "a: haul takes 3.0 times the time of tcmalloc, 1.50 that of libc.";
        let or_reversed = "a: haul takes 1.50 times the time of libc, 3.0 that of tcmalloc.";
        assert!([expected, or_reversed].contains(&slower.sentences()[0].as_str()));
        // Without haul, the fastest subject is compared.
        let others = of(&[("a", "pipe", 2.0), ("a", "unix", 1.0)]);
        assert_eq!(others.sentences(), ["a: unix is 2.0 times as fast as pipe."]);
        assert!(of(&[("a", "haul", 1.0)]).sentences().is_empty());
    }

    #[test]
    fn table_sorts_rows_within_their_measurement() {
        let all = of(&[("a", "z", 2.0), ("a", "haul", 1.0), ("b", "m", 5.0), ("b", "k", 6.0)]);
        let names = |order| {
            let text = all.table(order).text();
            let rows = text.lines().skip(1).map(|line| line.split_whitespace().next());
            rows.map(|name| name.unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(Order::Fastest), "haul z - m k");
        assert_eq!(names(Order::Name), "haul z - k m");
        assert_eq!(names(Order::Measured), "z haul - m k");
    }
}
