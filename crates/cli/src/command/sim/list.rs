//! `haul sim list`: the settings of the simulated machine and of its workload.

use haul_experiments::sim;

use super::plan;
use crate::arguments::sim::List as Arguments;
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

pub(super) struct List {
    task: sim::Task,
    json: bool,
}

impl List {
    /// Reads the settings.
    ///
    /// # Errors
    /// The file cannot be read, or a setting is wrong.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { machine, set, json } = arguments;
        Ok(Self { task: plan::task_of(machine.as_deref(), None, Vec::new(), &set)?, json })
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut machine = this_machine();
        for setting in self.task.settings()? {
            machine.facts.insert(format!("sim_{}", setting.name), setting.value);
        }
        journal.add(machine);
        journal.check()
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        let settings = self.task.settings()?;
        let lines: Vec<String> =
            settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
        terminal::print(&lines.join("\n"))
    }
}
