//! `haul doctor`: what this machine offers, how to get what is missing, and what disturbs a
//! measurement.

use std::time::Duration;

use haul_machine::sys::Sys;
use haul_machine::sys::offer::{Offer, State};
use haul_machine::tuning::{self, Force, Origin};

use super::{Command, this_machine};
use crate::arguments;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// How long the use of the processors by other programs is observed.
const WATCH: Duration = Duration::from_millis(200);

pub(super) struct Doctor {
    json: bool,
    /// Found by `run`, printed by `render`.
    disturbances: Vec<Offer>,
}

impl Doctor {
    pub(super) fn new(arguments: arguments::Doctor) -> Self {
        Self { json: arguments.json, disturbances: Vec::new() }
    }
}

impl Command for Doctor {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut machine = this_machine();
        machine.facts.insert("tuning".into(), tuning_line(tuning::init()));
        self.disturbances = Sys::new().disturbances(WATCH);
        for line in self.disturbances.iter().filter(|line| line.state == State::Disturbs) {
            let name = line.name.split(" (").next().unwrap_or(line.name).replace(' ', "_");
            machine.facts.insert(format!("disturbs_{name}"), line.detail.clone());
        }
        journal.add(machine);
        journal.check()
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let Some(haul_model::Line::Machine(machine)) = journal.lines().first() else {
            return Ok(());
        };
        if self.json {
            return Ok(());
        }
        let fact = |name: &str| machine.facts.get(name).map_or("not known", String::as_str);
        terminal::print(&format!(
            "{}\n{}, {}, hypervisor: {}\nid {}\n",
            machine.cpu,
            fact("kernel"),
            fact("libc"),
            fact("hypervisor"),
            machine.id
        ))?;
        let mut offers = Sys::new().offers();
        offers.push(offer_tuning(tuning::init()));
        let width = terminal::width();
        offers.iter().try_for_each(|offer| terminal::print(&lines_of(offer, width)))?;
        terminal::print(&summary(&offers))?;
        let disturbances = &self.disturbances;
        disturbances.iter().try_for_each(|line| terminal::print(&lines_of(line, width)))?;
        terminal::print(&conclusion(disturbances))
    }
}

/// `ok      caches                  L1 32 KiB, ...`, with the remedy below it.
fn lines_of(offer: &Offer, width: usize) -> String {
    const INDENT: usize = 33;
    const INDENT_NARROW: usize = 8;
    const NARROW: usize = 90;
    let mark = match offer.state {
        State::Ok => "ok",
        State::Missing => "missing",
        State::Disturbs => "noise",
        State::Unknown => "unknown",
    };
    let head = format!("{mark:<8}{:<24} {}", offer.name, offer.detail);
    // Wrapping would collapse the padding of the columns, so only the detail is wrapped.
    let (columns, detail) = head.split_at(INDENT.min(head.len()));
    let mut text = format!(
        "{columns}{}",
        terminal::wrap(detail, width.saturating_sub(INDENT), 0)
            .replace('\n', &format!("\n{:INDENT$}", ""))
    );
    if let Some(remedy) = &offer.remedy {
        // On a narrow terminal a command does not fit after the columns.
        let indent = if width < NARROW { INDENT_NARROW } else { INDENT };
        let remedy = terminal::wrap(&format!("-> {remedy}"), width.saturating_sub(indent), 3);
        for line in remedy.lines() {
            text += &format!("\n{:indent$}{line}", "");
        }
    }
    text
}

fn summary(offers: &[Offer]) -> String {
    let missing = offers.iter().filter(|offer| offer.state == State::Missing).count();
    let unknown = offers.iter().filter(|offer| offer.state == State::Unknown).count();
    let ok = offers.len() - missing - unknown;
    format!(
        "\n{ok} ok, {missing} missing, {unknown} unknown. haul runs without the missing ones.\n\n\
         What disturbs a measurement:"
    )
}

/// The conclusion from the lines above it.
fn conclusion(disturbances: &[Offer]) -> String {
    let names: Vec<&str> = disturbances
        .iter()
        .filter(|line| line.state == State::Disturbs)
        .map(|line| line.name)
        .collect();
    if names.is_empty() {
        return "\nThis machine reports no disturbance of a measurement now.".into();
    }
    format!(
        "\nFigures measured now would be noisier: {}. Comparisons stay fair because they are interleaved.",
        names.join(", ")
    )
}

/// The tuning in use, as a fact.
pub(super) fn tuning_line(force: &Force) -> String {
    match force {
        Force::NoFile => "defaults of this processor: no haul.toml".into(),
        Force::Off => "defaults of this processor: HAUL_TUNING turns tuning off".into(),
        Force::Privileged => {
            "defaults of this processor: the program runs with more rights than its caller".into()
        }
        Force::Ignored { path, error } => {
            format!("defaults of this processor: {} is ignored: {error}", path.display())
        }
        Force::File { path, origin, tuning } => {
            let origin = match origin {
                Origin::Environment => "named by HAUL_TUNING",
                Origin::User => "the user's",
                Origin::System => "the system's",
            };
            format!("{}, {origin}, written {}", path.display(), tuning.written)
        }
    }
}

fn offer_tuning(force: &Force) -> Offer {
    let detail = tuning_line(force);
    let (state, remedy) = match force {
        Force::File { .. } | Force::Off | Force::Privileged => (State::Ok, None),
        Force::NoFile => (
            State::Missing,
            Some("haul copy tune --out-file ~/.config/haul/haul.toml (under a minute)".to_owned()),
        ),
        Force::Ignored { .. } => (
            State::Missing,
            Some("write a new one: haul copy tune --out-file FILE; or HAUL_TUNING=off".to_owned()),
        ),
    };
    Offer { name: "tuning file", state, detail, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_keeps_columns_at_any_width() {
        let offer = Offer {
            name: "transparent huge pages",
            state: State::Missing,
            detail: "never, and then some words that do not fit on one narrow line".into(),
            remedy: Some(
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled".into(),
            ),
        };
        for width in [40, 80, 200] {
            let text = lines_of(&offer, width);
            assert!(text.starts_with("missing transparent huge pages   never"), "{text}");
            let indent = " ".repeat(if width < 90 { 8 } else { 33 });
            assert!(text.lines().skip(1).all(|line| line.starts_with(&indent)), "{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(words.join(" ").contains("-> echo madvise | sudo tee /sys"), "{text}");
        }
    }
}
