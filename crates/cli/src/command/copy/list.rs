//! `haul copy list`: the kernels, and the policy in use.

use haul::copy::{Policy, Thresholds, kernel};
use haul_machine::tuning::{self, Force};
use haul_model::Bytes;

use crate::arguments::copy::List as Arguments;
use crate::command::{Command, doctor, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct List {
    json: bool,
}

impl List {
    pub(super) fn new(arguments: Arguments) -> Self {
        Self { json: arguments.json }
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut machine = this_machine();
        for (function, name, isa, is_available, summary) in kernels() {
            let available = if is_available { "runs here" } else { "does not run here" };
            machine.facts.insert(
                format!("kernel_{function}_{name}"),
                format!("{isa}, {available}: {summary}"),
            );
        }
        for (name, chosen, default, _) in choices(tuning::init()) {
            machine.facts.insert(format!("policy_{name}"), format!("{chosen}, default {default}"));
        }
        for (name, threshold, default, _) in thresholds(tuning::init()) {
            machine
                .facts
                .insert(format!("threshold_{name}"), format!("{threshold}, default {default}"));
        }
        machine.facts.insert("tuning".into(), doctor::tuning_line(tuning::init()));
        journal.add(machine);
        journal.check()
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::new(&["function", "kernel", "needs", "here", "what it does"]);
        for (function, name, isa, is_available, summary) in kernels() {
            let here = if is_available { "yes" } else { "no" };
            table.add([function, name, isa, here, summary].map(str::to_owned).into());
        }
        terminal::print(&table.text())?;
        let force = tuning::init();
        let mut table = Table::new(&["choice", ">in use", ">default", "from"]);
        for (name, chosen, default, from) in choices(force) {
            table.add([name, chosen, default, from].map(str::to_owned).into());
        }
        terminal::print(&format!("\n{}", table.text()))?;
        let mut table = Table::new(&["threshold", ">in use", ">default", "from"]);
        for (name, threshold, default, from) in thresholds(force) {
            table.add(vec![name.to_owned(), threshold, default, from.to_owned()]);
        }
        terminal::print(&format!("\n{}", table.text()))?;
        terminal::print(&format!("\ntuning: {}", doctor::tuning_line(force)))
    }
}

/// For each kernel: function, name, instruction set, whether it runs here, summary.
fn kernels() -> Vec<(&'static str, &'static str, &'static str, bool, &'static str)> {
    let copies = kernel::copies()
        .iter()
        .map(|k| ("copy", k.name(), k.isa().name(), k.is_available(), k.summary()));
    let fills = kernel::fills()
        .iter()
        .map(|k| ("fill", k.name(), k.isa().name(), k.is_available(), k.summary()));
    copies.chain(fills).collect()
}

/// For each choice by name: name, value in use, default, source of the value in use.
fn choices(force: &Force) -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let (current, default) = (Policy::current(), Policy::for_this_processor());
    let from = |name: &str| match force {
        Force::File { tuning, .. } if tuning.choices.contains_key(name) => "tuning file",
        _ => "processor",
    };
    let row = |name: &&'static str| {
        Some((*name, current.choice(name)?, default.choice(name)?, from(name)))
    };
    Policy::CHOICES.iter().filter_map(row).collect()
}

/// For each threshold: name, value in use, default, source of the value in use.
fn thresholds(force: &Force) -> Vec<(&'static str, String, String, &'static str)> {
    let (current, default) = (Thresholds::current(), Thresholds::defaults());
    let from = |name: &str| match force {
        Force::File { tuning, .. } if tuning.copy.contains_key(name) => "tuning file",
        _ => "processor",
    };
    Thresholds::NAMES
        .iter()
        .map(|name| (*name, size(current.get(name)), size(default.get(name)), from(name)))
        .collect()
}

/// A threshold as text for a person.
pub(super) fn size(bytes: Option<usize>) -> String {
    match bytes {
        Some(usize::MAX) | None => "never".to_owned(),
        Some(bytes) => Bytes(bytes as u64).to_string(),
    }
}
