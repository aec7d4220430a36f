//! `haul sim sweep`, `task` and `collect`: plans of tasks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_experiments::sim::sweep::{self, Plan};
use haul_experiments::sim::{self, Setting, pool, settings};
use haul_model::Record;
use haul_model::experiment::key;

use crate::arguments::sim::{
    Collect as CollectArguments, Sweep as SweepArguments, Task as TaskArguments,
};
use crate::command::steps::Runner;
use crate::command::{self, Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal;

/// Longest file of settings that is read, in bytes.
const MACHINE_BYTES_MAX: u64 = 1 << 20;

/// Expected time of a task with 1,000 packets, to estimate the time left.
const TIME_OF_TASK: Duration = Duration::from_millis(400);

/// A task with a file's settings, overridden by the settings of the command line.
///
/// # Errors
/// The file cannot be read, or a setting is wrong.
pub(super) fn task_of(
    machine: Option<&Path>,
    program: Option<PathBuf>,
    arguments: Vec<u64>,
    set: &[Setting],
) -> Result<sim::Task, Error> {
    let mut task = sim::Task { arguments, ..sim::Task::default() };
    if let Some(path) = machine {
        let bytes = haul_machine::file::read_limited(path, MACHINE_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        task.machine = settings::parse(&path.display().to_string(), &text)?;
    }
    if let Some(path) = program {
        task.program = path.to_string_lossy().into_owned();
    }
    set.iter().try_for_each(|setting| task.set(setting))?;
    task.check()?;
    Ok(task)
}

pub(super) struct Sweep {
    out: PathBuf,
    count: usize,
    threads: usize,
    run: bool,
    json: bool,
}

impl Sweep {
    /// Writes the plan.
    ///
    /// # Errors
    /// A setting is wrong, or the plan cannot be written.
    pub(super) fn check(arguments: SweepArguments) -> Result<Self, Error> {
        let SweepArguments {
            vary,
            set,
            machine,
            program,
            argument,
            out_file: out,
            run,
            threads,
            json,
        } = arguments;
        let base = task_of(machine.as_deref(), program, argument, &set)?;
        let count = sweep::write(&out, &base, &vary)?;
        let threads = pool::threads(threads.map(usize::from));
        Ok(Self { out, count, threads, run, json })
    }
}

impl Command for Sweep {
    fn stops(&self) -> Stops {
        if self.run { Stops::WithWhatThereIs } else { Stops::AtOnce }
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        if !self.run {
            return Ok(());
        }
        let plan = Plan::read(&self.out)?;
        let machine = this_machine();
        let budget = TIME_OF_TASK * self.count as u32 / self.threads as u32;
        let mut runner = Runner::new(&machine, journal, 1, budget)?;
        runner.step("the plan's tasks", budget, |context| plan.run_all(self.threads, context))
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let plan = self.out.display();
        if !self.run {
            return terminal::print(&format!(
                "{plan}: {} tasks; `haul sim task {plan} INDEX` runs one (0 to {}), `haul sim collect \
                 {plan}` joins them",
                self.count,
                self.count.max(1) - 1
            ));
        }
        if self.json {
            return Ok(());
        }
        terminal::print(&lines(journal.records()))
    }

    fn kept(&self, _: &Journal) -> String {
        let plan = self.out.display();
        format!(
            "finished tasks are kept; `haul sim collect {plan}` names the others, if there are any"
        )
    }
}

pub(super) struct Task {
    plan: Plan,
    name: String,
    index: usize,
    json: bool,
}

impl Task {
    /// Reads the plan.
    ///
    /// # Errors
    /// The plan is damaged.
    pub(super) fn check(arguments: TaskArguments) -> Result<Self, Error> {
        let TaskArguments { plan, index, json } = arguments;
        Ok(Self { plan: Plan::read(&plan)?, name: plan.display().to_string(), index, json })
    }
}

impl Command for Task {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        self.plan.run(self.index, &STOP)?;
        if self.json {
            command::record("sim.task", self.plan.records_of(self.index), journal)?;
        }
        Ok(())
    }

    fn render(&self, _: &Journal) -> Result<(), Error> {
        Ok(())
    }

    fn kept(&self, _: &Journal) -> String {
        format!("task {} of {} is not finished", self.index, self.name)
    }
}

pub(super) struct Collect {
    plan: Plan,
    name: String,
    json: bool,
}

impl Collect {
    /// Reads the plan.
    ///
    /// # Errors
    /// The plan is damaged.
    pub(super) fn check(arguments: CollectArguments) -> Result<Self, Error> {
        let CollectArguments { plan, json } = arguments;
        Ok(Self { plan: Plan::read(&plan)?, name: plan.display().to_string(), json })
    }
}

impl Command for Collect {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let (records, missing) = self.plan.collect();
        command::record("sim.collect", records, journal)?;
        if missing.is_empty() {
            return Ok(());
        }
        /// The largest number of missing tasks that are named one by one.
        const NAMED_MAX: usize = 20;
        let named: Vec<String> =
            missing.iter().take(NAMED_MAX).map(|(index, why)| format!("{index} ({why})")).collect();
        let more = missing.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::MissingTasks {
            plan: self.name.clone(),
            missing: missing.len(),
            tasks: self.plan.len(),
            named: named.join(", ") + &more,
        })
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if self.json || journal.records().next().is_none() {
            return Ok(());
        }
        terminal::print(&lines(journal.records()))
    }
}

/// One line per record: its parameters and its value.
fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> String {
    let line = |record: &Record| {
        let parameters: Vec<String> = record
            .parameters
            .iter()
            .filter(|(name, _)| ![key::DIGEST, key::PROGRAM].contains(&name.as_str()))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let value = record.median().unwrap_or(0.0);
        format!("{}: {} {value:.1} {}", parameters.join(" "), record.metric, record.unit)
    };
    records.map(line).collect::<Vec<_>>().join("\n")
}
