//! `haul compare`: which figures became faster, became slower or stayed the same between two sets
//! of runs.

use haul_experiments::context;
use haul_model::experiment::key;
use haul_model::{Line, Record, Verdict};
use haul_report::compare::{change_name, change_of, is_counted, is_whole, values, words};
use haul_report::{Changes, Terms};

use std::mem;
use std::path::{Path, PathBuf};

use super::{Command, refuse_replacing, report};
use crate::arguments::{self, FailOn};
use crate::error::{Error, InputError};
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Mark, Table};

pub(super) struct Compare {
    /// The machines of the later files.
    machines: Vec<Line>,
    changes: Changes,
    arguments: arguments::Compare,
}

impl Compare {
    /// Reads both sides and compares them.
    ///
    /// # Errors
    /// A file cannot be read, or the two sides have no figure in common.
    pub(super) fn read(arguments: arguments::Compare) -> Result<Self, Error> {
        let files = |one: &Option<PathBuf>, several: &[PathBuf]| -> Vec<PathBuf> {
            one.iter().chain(several).cloned().collect()
        };
        let old_files = files(&arguments.old, &arguments.old_runs);
        let new_files = files(&arguments.new, &arguments.new_runs);
        let inputs = [old_files.clone(), new_files.clone()].concat();
        refuse_replacing(&inputs, arguments.out_file.iter().chain(&arguments.export_markdown))?;
        let read = |files: &[PathBuf]| -> Result<Vec<Line>, Error> {
            let each: Result<Vec<_>, Error> =
                files.iter().map(|path| report::read_lines(path)).collect();
            Ok(each?.concat())
        };
        let (old, new) = (read(&old_files)?, read(&new_files)?);
        let terms = Terms {
            least: arguments.threshold / 100.0,
            across_machines: arguments.across_machines,
            only: arguments.only.clone(),
            subjects: arguments.subject.clone(),
        };
        let changes = haul_report::compare(&old, &new, &terms);
        if changes.records.is_empty() {
            let names = [shown(&old_files), shown(&new_files)];
            return Err(nothing_compared(&changes, names, [&old, &new], &terms).into());
        }
        let machines = new.into_iter().filter(|line| matches!(line, Line::Machine(_))).collect();
        Ok(Self { machines, changes, arguments })
    }

    fn table(&self) -> Table {
        let is_shown = |record: &&Record| {
            let is_change = matches!(change_of(record), Some(Verdict::More | Verdict::Less));
            self.arguments.all || is_change && is_counted(record)
        };
        let records: Vec<&Record> = self.changes.records.iter().filter(is_shown).collect();
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
            let parameter = |name: &str| record.number(name);
            let number =
                |name: &str| parameter(name).map_or(String::new(), |value| format!("{value:.3}"));
            let text = |name: &str| record.text(name);
            let [old, new] = values(record);
            let mark = match change_of(record).filter(|_| is_counted(record)) {
                Some(Verdict::Less) => Mark::Better,
                Some(Verdict::More) => Mark::Worse,
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

    /// `3 of 120 figures became slower, 8 faster; 105 stayed, for 4 the runs cannot tell.`, and the
    /// figures that were not compared.
    fn sentence(&self) -> String {
        let changes = &self.changes;
        let [slower, faster, stayed, unknown] =
            [Verdict::More, Verdict::Less, Verdict::NoDifference, Verdict::CannotTell]
                .map(|change| changes.count(change));
        let total = slower + faster + stayed + unknown;
        let mut text = String::new();
        for record in changes.records.iter().filter(|record| is_whole(record)) {
            text.push_str(&whole(record));
        }
        text.push_str(&format!(
            "{slower} of {total} figures became slower, {faster} faster; {stayed} stayed"
        ));
        if unknown > 0 {
            let remedy = match changes.is_repeated {
                true => "more runs on both sides or a quieter machine would decide them",
                false => {
                    "three or more runs on both sides would decide them (--old A1 A2 A3 --new B1 B2 B3)"
                }
            };
            text.push_str(&format!(", for {unknown} the runs cannot tell: {remedy}"));
        }
        text.push('.');
        let apart = [
            (changes.baselines(), "are baselines and are not counted"),
            (
                changes.left_out,
                "are of subjects that no program calls and are left out (--subject and --only show them)",
            ),
            (changes.only_old, "are only in the old runs"),
            (changes.only_new, "are only in the new runs"),
            (changes.unjudged, "have no better direction"),
        ];
        for (count, what) in apart.into_iter().filter(|(count, _)| *count > 0) {
            text.push_str(&format!(" {count} {what}."));
        }
        text
    }

    /// Fails if `--fail-on` names a change that was found.
    fn judge(&self) -> Result<(), Error> {
        let all = |change| self.changes.count(change) + self.changes.wholes(change);
        let (slower, faster) = (all(Verdict::More), all(Verdict::Less));
        let unknown = self.changes.count(Verdict::CannotTell);
        let failed = self.arguments.fail_on.iter().find_map(|on| match on {
            FailOn::Slower if slower > 0 => Some(("slower", slower, "became slower")),
            FailOn::Changed if slower + faster > 0 => Some(("changed", slower + faster, "changed")),
            FailOn::CannotTell if unknown > 0 => Some(("cannot-tell", unknown, "are undecided")),
            FailOn::Missing if self.changes.only_old > 0 => {
                Some(("missing", self.changes.only_old, "are only in the old runs"))
            }
            _ => None,
        });
        match failed {
            Some((option, count, what)) => Err(InputError::Changed { option, count, what }.into()),
            None => Ok(()),
        }
    }
}

/// `All of copy, 10 figures: slower, 1.050 (1.046-1.055). `
fn whole(record: &Record) -> String {
    let number = |name: &str| {
        let parameter = record.number(name);
        parameter.map_or(String::new(), |value| format!("{value:.3}"))
    };
    let name = words(&[record]).concat();
    let (first, rest) = name.split_at(1);
    let change = change_of(record).map_or("", change_name);
    format!(
        "{}{rest}: {change}, {:.3} ({}-{}). ",
        first.to_uppercase(),
        record.median().unwrap_or(0.0),
        number(key::RATIO_LOW),
        number(key::RATIO_HIGH)
    )
}

/// Why no figure of the two sides was compared.
fn nothing_compared(
    changes: &Changes,
    [old_name, new_name]: [String; 2],
    [old, new]: [&[Line]; 2],
    terms: &Terms,
) -> InputError {
    if changes.left_out > 0 {
        return InputError::LeftOut { count: changes.left_out };
    }
    if changes.unjudged > 0 {
        return InputError::NoDirection { old: old_name, new: new_name, count: changes.unjudged };
    }
    let elsewhere = Terms { across_machines: true, ..terms.clone() };
    match haul_report::compare(old, new, &elsewhere).records.is_empty() {
        false => InputError::OtherMachine { old: old_name, new: new_name },
        true => InputError::NothingInCommon { old: old_name, new: new_name },
    }
}

/// The first file, and the number of further ones.
fn shown(files: &[PathBuf]) -> String {
    let first = files.first().map(|path| Path::display(path).to_string()).unwrap_or_default();
    match files.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}

impl Command for Compare {
    fn outputs(&self) -> Outputs {
        let files = [&self.arguments.out_file, &self.arguments.export_markdown];
        let files = files.into_iter().flatten().cloned().collect();
        Outputs { json: self.arguments.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let time = context::now();
        self.machines.iter().for_each(|line| journal.add(line.clone()));
        let run = format!("compare {time}");
        for record in &mut self.changes.records {
            let machine = mem::take(&mut record.machine);
            record.stamp(&run, &machine, &time);
            journal.add(record.clone());
        }
        journal.check()
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if let Some(path) = &self.arguments.out_file {
            haul_machine::file::write_atomically(
                path,
                haul_report::html(journal.lines()).as_bytes(),
            )?;
        }
        let table = self.table();
        if let Some(path) = &self.arguments.export_markdown {
            let text = format!("{}\n\n{}\n", table.markdown(), self.sentence());
            haul_machine::file::write_atomically(path, text.as_bytes())?;
        }
        if let Some(export) = self.arguments.export {
            let counted = self.changes.records.iter().filter(|it| is_counted(it) || is_whole(it));
            let exported = haul_report::export(counted, export.format());
            terminal::say(&self.sentence());
            terminal::print(exported.trim_end())?;
        } else if !self.arguments.json {
            if !table.is_empty() {
                terminal::print(&table.text())?;
                let note = "ratio: new over old in time or cost, below 1 is better; if a baseline was measured in the \
                     same run, the change of that baseline is divided out. interval: 95% of one figure. noise: the \
                     floors of both sides together, or --threshold.";
                let note = terminal::wrap(note, terminal::width(), 0);
                terminal::print(&format!("\n{note}\n"))?;
            }
            terminal::print(&self.sentence())?;
        }
        self.judge()
    }
}
