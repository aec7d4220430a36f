//! `haul compare`: what became faster, slower or stayed from one file of records to another.

use haul_experiments::context;
use haul_model::experiment::key;
use haul_model::{Line, Record};
use haul_report::compare::{values, words};
use haul_report::{Change, Changes, Terms};

use super::{Command, refuse_replacing, report};
use crate::arguments::{self, FailOn};
use crate::error::{Error, InputError};
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Mark, Table};

pub(super) struct Compare {
    /// Lines of the later file that are machines.
    machines: Vec<Line>,
    changes: Changes,
    arguments: arguments::Compare,
}

impl Compare {
    /// Reads both files and compares them.
    ///
    /// # Errors
    /// A file cannot be read, or the two have no figure in common.
    pub(super) fn read(arguments: arguments::Compare) -> Result<Self, Error> {
        let inputs = [arguments.old.clone(), arguments.new.clone()];
        refuse_replacing(&inputs, arguments.out.iter().chain(&arguments.export_markdown))?;
        let old = report::read_lines(&arguments.old)?;
        let new = report::read_lines(&arguments.new)?;
        let terms = Terms {
            least: arguments.threshold / 100.0,
            across_machines: arguments.across_machines,
        };
        let changes = haul_report::compare(&old, &new, terms);
        if changes.records.is_empty() {
            let [old_name, new_name] = inputs.map(|path| path.display().to_string());
            if changes.unjudged > 0 {
                return Err(InputError::NoDirection {
                    old: old_name,
                    new: new_name,
                    count: changes.unjudged,
                }
                .into());
            }
            let apart = !haul_report::compare(&old, &new, Terms { across_machines: true, ..terms })
                .records
                .is_empty();
            return Err(match apart {
                true => InputError::OtherMachine { old: old_name, new: new_name },
                false => InputError::NothingInCommon { old: old_name, new: new_name },
            }
            .into());
        }
        let machines = new.into_iter().filter(|line| matches!(line, Line::Machine(_))).collect();
        Ok(Self { machines, changes, arguments })
    }

    fn table(&self) -> Table {
        let shown =
            |record: &&Record| self.arguments.all || Change::of(record) != Some(Change::Stayed);
        let records: Vec<&Record> = self.changes.records.iter().filter(shown).collect();
        let mut table = Table::new(&[
            "figure",
            "subject",
            ">old",
            ">new",
            ">ratio",
            ">interval",
            ">noise",
            "change",
            "beside",
        ]);
        for (record, name) in records.iter().zip(words(&records)) {
            let said = |name: &str| record.parameters.get(name).and_then(|value| value.as_f64());
            let number =
                |name: &str| said(name).map_or(String::new(), |value| format!("{value:.3}"));
            let text = |name: &str| record.parameters.get(name).and_then(|value| value.as_str());
            let [old, new] = values(record);
            let mark = match Change::of(record) {
                Some(Change::Faster) => Mark::Better,
                Some(Change::Slower) => Mark::Worse,
                _ => Mark::Plain,
            };
            let row = vec![
                name,
                record.subject.clone(),
                old,
                new,
                format!("{:.3}", record.median().unwrap_or(0.0)),
                format!("{}-{}", number(key::RATIO_LOW), number(key::RATIO_HIGH)),
                number(key::NOISE),
                text(key::CHANGE).unwrap_or_default().to_owned(),
                text(key::BESIDE).unwrap_or_default().to_owned(),
            ];
            table.add_marked(mark, row);
        }
        table
    }

    /// `3 of 120 figures became slower, 8 faster; 109 stayed.`, and what was not compared.
    fn sentence(&self) -> String {
        let changes = &self.changes;
        let [slower, faster, stayed] =
            [Change::Slower, Change::Faster, Change::Stayed].map(|change| changes.count(change));
        let total = slower + faster + stayed;
        let mut text =
            format!("{slower} of {total} figures became slower, {faster} faster; {stayed} stayed.");
        let baselines = changes.records.len() - total;
        if baselines > 0 {
            text.push_str(&format!(" {baselines} are of baselines, and not counted."));
        }
        let apart = [
            (changes.only_old, "in the old file alone"),
            (changes.only_new, "in the new file alone"),
            (changes.unjudged, "of no better or worse"),
        ];
        for (count, what) in apart.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(" {count} {what}."));
        }
        text
    }

    /// What `--fail-on` says to it.
    fn judge(&self) -> Result<(), Error> {
        let (slower, faster) =
            (self.changes.count(Change::Slower), self.changes.count(Change::Faster));
        let failed = self.arguments.fail_on.iter().find_map(|on| match on {
            FailOn::Slower if slower > 0 => Some(("slower", slower, "became slower")),
            FailOn::Changed if slower + faster > 0 => Some(("changed", slower + faster, "changed")),
            FailOn::Missing if self.changes.only_old > 0 => {
                Some(("missing", self.changes.only_old, "are in the old file alone"))
            }
            _ => None,
        });
        match failed {
            Some((option, count, what)) => Err(InputError::Changed { option, count, what }.into()),
            None => Ok(()),
        }
    }
}

impl Command for Compare {
    fn outputs(&self) -> Outputs {
        let files = [&self.arguments.out, &self.arguments.export_markdown];
        let files = files.into_iter().flatten().cloned().collect();
        Outputs { json: self.arguments.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let time = context::now();
        self.machines.iter().for_each(|line| journal.add(line.clone()));
        for record in &mut self.changes.records {
            record.run = format!("compare {time}");
            record.time.clone_from(&time);
            journal.add(record.clone());
        }
        journal.check()
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if let Some(path) = &self.arguments.out {
            haul::file::write_atomically(path, haul_report::html(journal.lines()).as_bytes())?;
        }
        let table = self.table();
        if let Some(path) = &self.arguments.export_markdown {
            let text = format!("{}\n\n{}\n", table.markdown(), self.sentence());
            haul::file::write_atomically(path, text.as_bytes())?;
        }
        if !self.arguments.json {
            if !table.is_empty() {
                terminal::print(&table.text())?;
                let note = "ratio: new over old in time or cost, below 1 is better; where a baseline was measured \
                     beside it, what that baseline changed is taken out. noise: the floors of both runs together, \
                     or --threshold.";
                let note = terminal::wrap(note, terminal::width(), 0);
                terminal::print(&format!("\n{note}\n"))?;
            }
            terminal::print(&self.sentence())?;
        }
        self.judge()
    }
}
