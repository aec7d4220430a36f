//! `haul pcie explain`: the parts of a workload's bytes, what would let the link carry more, and
//! why two estimates differ.

use std::path::Path;

use haul_model::experiment::{key, name};
use haul_model::pcie::{
    self, Advice, Cause, Difference, Direction, Limit, Term, Transaction, Way, advise, busiest,
    differences, line_rate,
};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Kind, Line, Record};

use super::subject::Subject;
use super::{count, show_notes};
use crate::arguments::pcie::Explain as Arguments;
use crate::command::report::read_lines;
use crate::command::{Command, record};
use crate::error::{Error, InputError};
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) enum Explain {
    /// One estimate, and what would raise the rate at which its link is full.
    One(Box<One>),
    /// Two lists of terms with their names, whose differences are shown.
    Two { names: [String; 2], lists: [Vec<Term>; 2], json: bool },
}

pub(super) struct One {
    subject: Subject,
    terms: Vec<Transaction>,
    /// The rate at which the link is full; `None` if nothing crosses it.
    limit: Option<Limit>,
    advice: Vec<Advice>,
    json: bool,
}

impl Explain {
    /// # Errors
    ///
    /// The workload cannot exist, or a file has no terms, or contains the terms of several
    /// estimates.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { files, subject, baseline, json } = arguments;
        if let [first, second] = &files[..] {
            let names = [first, second].map(|path| path.display().to_string());
            let lists = [terms_of(first, None)?, terms_of(second, None)?];
            return Ok(Self::Two { names, lists: comparable(lists), json });
        }
        let subject = Subject::check(subject, None)?;
        let terms = pcie::estimate(&subject.estimate())?;
        if let Some(path) = baseline {
            let named = terms.iter().map(Term::from).collect();
            let rate = subject.workload.rate.packets_per_s();
            let lists = comparable([terms_of(&path, Some(rate))?, named]);
            let names = [path.display().to_string(), "this workload".to_owned()];
            return Ok(Self::Two { names, lists, json });
        }
        let (limit, advice) = (pcie::limit(&subject.estimate())?, advise(&subject.estimate())?);
        Ok(Self::One(Box::new(One { subject, terms, limit, advice, json })))
    }

    fn json(&self) -> bool {
        match self {
            Self::One(one) => one.json,
            Self::Two { json, .. } => *json,
        }
    }

    fn records(&self) -> Vec<Record> {
        match self {
            Self::One(one) => one.records(),
            Self::Two { names, lists: [first, second], .. } => differences(first, second)
                .iter()
                .map(|difference| {
                    let (before, after) = difference.bytes_per_s();
                    modelled("difference", "bytes/s", after - before)
                        .with(key::WHAT, difference.what.as_str())
                        .with(key::DIRECTION, difference.direction.name())
                        .with(key::FROM, names[0].as_str())
                        .with(key::TO, names[1].as_str())
                        .with(key::CAUSE, cause(difference))
                        .with(key::COUNT_PER_S, difference.count_per_s.1)
                        .with(key::COUNT_PER_S_BEFORE, difference.count_per_s.0)
                })
                .collect(),
        }
    }

    fn show_two(names: &[String; 2], lists: &[Vec<Term>; 2]) -> Result<(), Error> {
        let found = differences(&lists[0], &lists[1]);
        if found.is_empty() {
            return terminal::print(&format!("{} and {} do not differ", names[0], names[1]));
        }
        let headings = ["transaction", "direction", ">bytes/s", ">then", ">more", "because"];
        let mut table = Table::new(&headings);
        for difference in &found {
            let (before, after) = difference.bytes_per_s();
            table.add(vec![
                difference.what.clone(),
                difference.direction.name().replace('_', " "),
                BytesPerSecond(before).to_string(),
                BytesPerSecond(after).to_string(),
                signed(after - before),
                because(difference),
            ]);
        }
        terminal::print(&table.text())?;
        for direction in Direction::ALL {
            if let Some(text) = sentence(direction, &found) {
                terminal::print(&terminal::wrap(&text, terminal::width(), 0))?;
            }
        }
        Ok(())
    }
}

impl One {
    fn records(&self) -> Vec<Record> {
        let Self { subject, terms, limit, advice, .. } = self;
        let (way, order) = busiest(terms);
        let term = |(place, term): (usize, &&Transaction)| {
            subject
                .describe(modelled("transaction", "bytes/s", term.bytes_per_s()))
                .with(key::WHAT, term.what)
                .with(key::DIRECTION, term.direction.name())
                .with(key::COUNT_PER_S, term.count_per_s)
                .with(key::PAYLOAD_BYTES, term.payload_bytes)
                .with(key::HEADER_BYTES, term.header_bytes)
                .with(key::BINDS, way.name())
                .with(key::ORDER, place as u64 + 1)
        };
        let full = |metric: &str, limit: &Limit| {
            let record = modelled(metric, "packets/s", limit.packets_per_s);
            subject.describe(record).with(key::BINDS, limit.way.name())
        };
        let advice = advice.iter().map(|advice| {
            let record = full("advice", &advice.limit)
                .with(key::CHANGE, advice.change.as_str())
                .with(key::HOW, advice.how.as_str())
                .with(key::SAVED_WRITES_PER_S, advice.saved_writes_per_s)
                .with(key::RATE_MAX_RATIO, advice.ratio);
            match advice.term {
                Some(term) => record.with(key::WHAT, term),
                None => record,
            }
        });
        let terms = order.iter().enumerate().map(term);
        terms.chain(limit.iter().map(|limit| full("rate_max", limit))).chain(advice).collect()
    }

    /// Shows the terms, their notes, whether the workload fits, and what would make it fit.
    fn show(&self) -> Result<(), Error> {
        let (way, order) = busiest(&self.terms);
        let all: f64 = self.terms.iter().map(|term| term.bytes_per_s_on(way)).sum();
        let headings = [
            "transaction",
            "direction",
            ">per second",
            ">to the host",
            ">to the device",
            ">share %",
        ];
        let mut table = Table::new(&headings);
        for term in order {
            let on = |way| BytesPerSecond(term.bytes_per_s_on(way)).to_string();
            table.add(vec![
                term.what.to_owned(),
                term.direction.name().replace('_', " "),
                count(term.count_per_s),
                on(Way::ToHost),
                on(Way::ToDevice),
                three_digits(term.bytes_per_s_on(way) / all * 100.0),
            ]);
        }
        terminal::print(&table.text())?;
        let text = format!(
            "modelled, not measured: data and headers, including requests of reads. The link is busier {}; \
             order and share are those of that direction",
            side(way)
        );
        terminal::print(&format!("\n{}", terminal::wrap(&text, terminal::width(), 0)))?;
        show_notes(&self.subject.notes(), false)?;
        let Some(limit) = &self.limit else { return Ok(()) };
        let fit = self.fit(limit);
        terminal::print(&format!("\n{}", terminal::wrap(&fit, terminal::width(), 0)))?;
        for advice in &self.advice {
            let text = format!("{}: {}; {}", advice.change, self.allows(advice), advice.how);
            terminal::print(&terminal::wrap(&text, terminal::width(), 2))?;
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.subject.workload.rate.packets_per_s()
    }

    /// Whether the rate fits, the rate at which the link is full, and what would raise that rate.
    fn fit(&self, limit: &Limit) -> String {
        let Subject { nic, link, workload, .. } = &self.subject;
        let asked = count(self.rate());
        let fits = match self.rate() <= limit.packets_per_s {
            true => format!("The {asked} packets/s asked for fit"),
            false => format!("The {asked} packets/s asked for do not fit"),
        };
        let mut text = format!(
            "{fits}: {link} is full {} at {} packets/s of these sizes.",
            side(limit.way),
            count(limit.packets_per_s)
        );
        let line = line_rate(nic, &workload.packets);
        if let Some(line) = line.filter(|line| line.packets_per_s <= limit.packets_per_s) {
            text += &format!(
                " A port of {} has at most {} Gb/s, {} packets/s of these sizes: its line is full before this \
                 link, which is the limit only if several ports share it.",
                nic.name,
                line.gigabits_per_s,
                count(line.packets_per_s)
            );
        }
        text += match self.advice.is_empty() {
            true => " No change that haul knows would raise that rate.",
            false => " Changes that raise that rate, each estimated alone, the largest first:",
        };
        text
    }

    /// `full to the host at 24.2 M packets/s instead of 12.1 M, 100% more; ...`.
    fn allows(&self, advice: &Advice) -> String {
        let before = self.limit.map_or(0.0, |limit| limit.packets_per_s);
        let mut text = format!(
            "full {} at {} packets/s instead of {}, {}% more",
            side(advice.limit.way),
            count(advice.limit.packets_per_s),
            count(before),
            three_digits((advice.ratio - 1.0) * 100.0)
        );
        if before < self.rate() {
            let fits = advice.limit.packets_per_s >= self.rate();
            text += if fits { ", which carries the rate" } else { ", still too few" };
        }
        if let Some(term) = advice.term {
            text += &format!(", most of it in {term}");
        }
        if advice.saved_writes_per_s >= 1.0 {
            text += &format!(
                ", and {} fewer writes to the device per second",
                count(advice.saved_writes_per_s)
            );
        }
        text
    }
}

fn side(way: Way) -> &'static str {
    if way == Way::ToHost { "to the host" } else { "to the device" }
}

/// The term that explains most of a direction's difference.
fn sentence(direction: Direction, found: &[Difference]) -> Option<String> {
    let of: Vec<&Difference> = found.iter().filter(|d| d.direction == direction).collect();
    let sum: f64 = of.iter().map(|d| d.more_bytes_per_s()).sum();
    let first = of.first()?;
    let name = direction.name().replace('_', " ");
    if sum.abs() < first.more_bytes_per_s().abs() * 1e-3 {
        return Some(format!("{name}: the terms differ and cancel each other"));
    }
    let share = first.more_bytes_per_s() / sum * 100.0;
    Some(format!(
        "{name}: {} in total, {}% of it by {}, {}",
        signed(sum),
        three_digits(share),
        first.what,
        because(first)
    ))
}

fn because(difference: &Difference) -> String {
    let (before, after) = difference.count_per_s;
    let counts = format!("{} per second, {} before", count(after), count(before));
    let (small, large) = difference.bytes_each;
    let sizes = format!("{} B each, {} B before", three_digits(large), three_digits(small));
    match difference.cause() {
        Cause::Added => "new".to_owned(),
        Cause::Removed => "removed".to_owned(),
        Cause::Count => counts,
        Cause::Size => sizes,
        Cause::Both => format!("{counts}; {sizes}"),
    }
}

fn cause(difference: &Difference) -> &'static str {
    match difference.cause() {
        Cause::Added => "added",
        Cause::Removed => "removed",
        Cause::Count => "count",
        Cause::Size => "size",
        Cause::Both => "count and size",
    }
}

fn signed(bytes_per_s: f64) -> String {
    let sign = if bytes_per_s < 0.0 { "-" } else { "+" };
    format!("{sign}{}", BytesPerSecond(bytes_per_s.abs()))
}

fn modelled(metric: &str, unit: &str, sample: f64) -> Record {
    let mut record = Record::new("", name::PCIE_EXPLAIN, "haul", metric, unit);
    record.kind = Kind::Modelled;
    record.samples = vec![sample];
    record
}

/// The terms of the only estimate in a file, or of the estimate at this rate if there are
/// several. If a file has no terms, returns its sums, each with the name of its direction.
fn terms_of(path: &Path, rate: Option<f64>) -> Result<Vec<Term>, Error> {
    let file = path.display().to_string();
    let lines = read_lines(path)?;
    let records: Vec<&Record> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Record(record) => Some(record),
            _ => None,
        })
        .filter(|record| record.experiment.starts_with("pcie.") && !record.samples.is_empty())
        .collect();
    let at_rate = |record: &&&Record| {
        let of = record.number(key::RATE_PACKETS_PER_S);
        rate.is_none() || of == rate
    };
    let parts: Vec<Term> = records.iter().filter_map(|record| term(record)).collect();
    let mut chosen = match parts.is_empty() {
        true => records.iter().filter_map(|record| sum(record)).collect(),
        false => parts,
    };
    if has_twice(&chosen) {
        chosen = records.iter().filter(at_rate).filter_map(|record| term(record)).collect();
    }
    match chosen.is_empty() {
        _ if has_twice(&chosen) => Err(InputError::SeveralEstimates { name: file }.into()),
        true => Err(InputError::NoTraffic { name: file }.into()),
        false => Ok(chosen),
    }
}

fn has_twice(terms: &[Term]) -> bool {
    let same = |a: &Term, b: &Term| a.what == b.what && a.direction == b.direction;
    terms.iter().enumerate().any(|(index, a)| terms[..index].iter().any(|b| same(a, b)))
}

fn term(record: &Record) -> Option<Term> {
    if record.metric != "transaction" {
        return None;
    }
    Some(Term {
        what: record.text(key::WHAT)?.to_owned(),
        direction: direction(record.text(key::DIRECTION)?)?,
        count_per_s: record.number(key::COUNT_PER_S)?,
        payload_bytes: record.number(key::PAYLOAD_BYTES)?,
        header_bytes: record.number(key::HEADER_BYTES)?,
    })
}

/// A sum of data as counters show it, in the form of one transaction per second.
fn sum(record: &Record) -> Option<Term> {
    let direction = direction(&record.metric)?;
    Some(all_data(direction, record.median()?))
}

fn all_data(direction: Direction, payload_bytes: f64) -> Term {
    Term { what: SUM.to_owned(), direction, count_per_s: 1.0, payload_bytes, header_bytes: 0.0 }
}

/// The name of a sum among terms.
const SUM: &str = "all data";

fn direction(name: &str) -> Option<Direction> {
    Direction::ALL.into_iter().find(|direction| direction.name() == name)
}

/// Makes two lists comparable. Sums can be compared only with sums: if one list has no terms, the
/// terms of the other list are summed.
fn comparable(lists: [Vec<Term>; 2]) -> [Vec<Term>; 2] {
    let is_sums = |terms: &Vec<Term>| terms.iter().all(|term| term.what == SUM);
    if !lists.iter().any(is_sums) {
        return lists;
    }
    lists.map(|terms| match is_sums(&terms) {
        true => terms,
        false => Direction::ALL
            .into_iter()
            .map(|direction| {
                let of = terms.iter().filter(|term| term.direction == direction);
                all_data(direction, of.map(|term| term.count_per_s * term.payload_bytes).sum())
            })
            .collect(),
    })
}

impl Command for Explain {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json(), ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        record("pcie explain", self.records(), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        match self {
            Self::One(one) if one.json => show_notes(&one.subject.notes(), true),
            _ if self.json() => Ok(()),
            Self::One(one) => one.show(),
            Self::Two { names, lists, .. } => Self::show_two(names, lists),
        }
    }
}
