//! `haul channel list`: the mechanisms, and whether each works here.

use haul::channel::Mechanism;
use haul_machine::sys::Sys;

use crate::arguments::channel;
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct List {
    json: bool,
}

impl List {
    pub(super) fn new(arguments: channel::List) -> Self {
        Self { json: arguments.json }
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut machine = this_machine();
        for (mechanism, here) in mechanisms() {
            let (name, summary) = (mechanism.name(), mechanism.summary());
            machine.facts.insert(format!("channel_{name}"), format!("{here}: {summary}"));
        }
        journal.add(machine);
        journal.check()
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::new(&["mechanism", ">copies", "here", "what it does", "needs"]);
        for (mechanism, here) in mechanisms() {
            table.add(vec![
                mechanism.name().into(),
                mechanism.copies().to_string(),
                here,
                mechanism.summary().into(),
                mechanism.needs().into(),
            ]);
        }
        terminal::print(&table.text())
    }
}

/// Each mechanism, and whether it works on this machine.
fn mechanisms() -> Vec<(Mechanism, String)> {
    let permissions = Sys::new().permissions();
    let here = |mechanism: Mechanism| match permissions.obstacle(mechanism) {
        None => "yes".to_owned(),
        Some(reason) => format!("no, {reason}"),
    };
    Mechanism::ALL.into_iter().map(|mechanism| (mechanism, here(mechanism))).collect()
}
