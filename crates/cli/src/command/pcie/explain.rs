//! `haul pcie explain`: what a workload's bytes go to, what would save some, and why two differ.

use std::path::Path;

use haul_model::experiment::{key, name};
use haul_model::pcie::{
    self, Advice, Cause, Difference, Direction, Term, Transaction, Way, advise, busiest,
    differences,
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
    /// One estimate, and what would save some of it.
    One { subject: Box<Subject>, terms: Vec<Transaction>, advice: Vec<Advice>, json: bool },
    /// Two lists of terms by their names, and what they differ in.
    Two { names: [String; 2], lists: [Vec<Term>; 2], json: bool },
}

impl Explain {
    /// # Errors
    /// What is asked for cannot be, or a file has no terms, or those of several estimates.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { files, subject, against, json } = arguments;
        if let [first, second] = &files[..] {
            let names = [first, second].map(|path| path.display().to_string());
            let lists = [terms_of(first, None)?, terms_of(second, None)?];
            return Ok(Self::Two { names, lists: comparable(lists), json });
        }
        let subject = Subject::check(subject, None)?;
        let terms = pcie::estimate(&subject.estimate())?;
        if let Some(path) = against {
            let named = terms.iter().map(Term::from).collect();
            let rate = subject.workload.rate.packets_per_s();
            let lists = comparable([terms_of(&path, Some(rate))?, named]);
            let names = [path.display().to_string(), "this workload".to_owned()];
            return Ok(Self::Two { names, lists, json });
        }
        let advice = advise(&subject.estimate())?;
        Ok(Self::One { subject: Box::new(subject), terms, advice, json })
    }

    fn json(&self) -> bool {
        match self {
            Self::One { json, .. } | Self::Two { json, .. } => *json,
        }
    }

    fn records(&self) -> Vec<Record> {
        match self {
            Self::One { subject, terms, advice, .. } => {
                let (way, order) = busiest(terms);
                let term = |(place, term): (usize, &&Transaction)| {
                    let bytes = term.bytes_per_s();
                    subject
                        .describe(modelled("transaction", "bytes/s", bytes))
                        .with(key::WHAT, term.what)
                        .with(key::DIRECTION, term.direction.name())
                        .with(key::COUNT_PER_S, term.count_per_s)
                        .with(key::PAYLOAD_BYTES, term.payload_bytes)
                        .with(key::HEADER_BYTES, term.header_bytes)
                        .with(key::BINDS, way.name())
                        .with(key::ORDER, place as u64 + 1)
                };
                let advice = advice.iter().map(|advice| {
                    subject
                        .describe(modelled("saved", "bytes/s", advice.saved_bytes_per_s))
                        .with(key::CHANGE, advice.change.as_str())
                        .with(key::HOW, advice.how.as_str())
                        .with(key::WHAT, advice.term)
                        .with(key::SAVED_WRITES_PER_S, advice.saved_writes_per_s)
                        .with(key::RATE_MAX_RATIO, advice.rate_max_ratio)
                });
                order.iter().enumerate().map(term).chain(advice).collect()
            }
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

    /// The terms of one estimate, what is to be known to read them, and what would save some.
    fn show_one(terms: &[Transaction], notes: &[String], advice: &[Advice]) -> Result<(), Error> {
        let (way, order) = busiest(terms);
        let all: f64 = terms.iter().map(|term| term.bytes_per_s_on(way)).sum();
        let headings =
            ["transaction", "direction", ">a second", ">to the host", ">to the device", ">share %"];
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
        let side = if way == Way::ToHost { "to the host" } else { "to the device" };
        terminal::print(&table.text())?;
        let text = format!(
            "modelled, not measured: data and headers, requests of reads included; busier {side}: \
             order and share are of that direction"
        );
        terminal::print(&format!("\n{}", terminal::wrap(&text, terminal::width(), 0)))?;
        show_notes(notes, false)?;
        if advice.is_empty() {
            return terminal::print("\nnothing that haul knows to change would save anything");
        }
        terminal::print("")?;
        for advice in advice {
            let text = format!("{}: {}; {}", advice.change, gains(advice), advice.how);
            terminal::print(&terminal::wrap(&text, terminal::width(), 2))?;
        }
        Ok(())
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

/// `saves 430 MB/s (tx doorbell most) and 1.88 M writes to the device a second; ...`.
fn gains(advice: &Advice) -> String {
    let mut text =
        format!("saves {}, most in {}", BytesPerSecond(advice.saved_bytes_per_s), advice.term);
    if advice.saved_writes_per_s >= 1.0 {
        text +=
            &format!(", and {} writes to the device a second", count(advice.saved_writes_per_s));
    }
    let more = (advice.rate_max_ratio - 1.0) * 100.0;
    if more >= 0.1 {
        text += &format!("; the link carries {}% more packets", three_digits(more));
    }
    text
}

/// Which of the terms of a direction explains most of its difference.
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
        "{name}: {} in all, {}% of it by {}, {}",
        signed(sum),
        three_digits(share),
        first.what,
        because(first)
    ))
}

fn because(difference: &Difference) -> String {
    let (before, after) = difference.count_per_s;
    let counts = format!("{} a second, {} before", count(after), count(before));
    let (small, large) = difference.bytes_each;
    let sizes = format!("{} B each, {} B before", three_digits(large), three_digits(small));
    match difference.cause() {
        Cause::Added => "it was not there before".to_owned(),
        Cause::Removed => "it is not there any more".to_owned(),
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

/// The terms of a file's one estimate; of several, those at this rate. Its sums, by the name of
/// their direction, where it has no terms.
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
        let of = record.parameters.get(key::RATE_PACKETS_PER_S).and_then(|rate| rate.as_f64());
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
    let number = |name: &str| record.parameters.get(name)?.as_f64();
    if record.metric != "transaction" {
        return None;
    }
    Some(Term {
        what: record.parameters.get(key::WHAT)?.as_str()?.to_owned(),
        direction: direction(record.parameters.get(key::DIRECTION)?.as_str()?)?,
        count_per_s: number(key::COUNT_PER_S)?,
        payload_bytes: number(key::PAYLOAD_BYTES)?,
        header_bytes: number(key::HEADER_BYTES)?,
    })
}

/// A sum of data as counters show it: one a second, so large.
fn sum(record: &Record) -> Option<Term> {
    let direction = direction(&record.metric)?;
    Some(all_data(direction, record.median()?))
}

fn all_data(direction: Direction, payload_bytes: f64) -> Term {
    Term { what: SUM.to_owned(), direction, count_per_s: 1.0, payload_bytes, header_bytes: 0.0 }
}

/// What a sum is called among terms.
const SUM: &str = "all data";

fn direction(name: &str) -> Option<Direction> {
    Direction::ALL.into_iter().find(|direction| direction.name() == name)
}

/// Sums can be compared with sums alone: where one list has no terms, the other's become sums.
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
            Self::One { subject, json: true, .. } => show_notes(&subject.notes(), true),
            _ if self.json() => Ok(()),
            Self::One { subject, terms, advice, .. } => {
                Self::show_one(terms, &subject.notes(), advice)
            }
            Self::Two { names, lists, .. } => Self::show_two(names, lists),
        }
    }
}
