//! Plans: arrays of independent, idempotent tasks that any array engine can run.
//!
//! A plan is JSON Lines: a header, then one task per line, each with a digest. The digest covers
//! the task, the parameters of its records, the program's bytes, and the version of haul that
//! wrote the plan. A task's record file is in the folder `PLAN.d`, named by index and digest, and
//! is written in one step. If a task is killed halfway, runs twice, or runs on two workers at
//! once, the file is whole or absent. A plan that is written again for another program or
//! simulator has other digests, so that old records are not mistaken for its results.

mod range;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use haul_model::experiment::{key, name};
use haul_model::{Kind, Line, Record};
use serde::{Deserialize, Serialize};

use super::pool;
use super::program::{self, Program};
use super::settings::Setting;
use super::task::{Simulated, Task, digest};
use crate::context::{Context, Step};
use crate::error::Error;

pub use range::Range;

/// The `plan` of every header that this version of haul writes.
const SCHEMA: &str = "haul.sim.plan/2";

/// The largest number of tasks per plan. A larger number indicates a mistake in a range.
pub const TASKS_MAX: usize = 1_000_000;

/// The largest plan that is read, in bytes.
const PLAN_BYTES_MAX: u64 = 4 << 30;

/// The largest record file of a task that is read, in bytes: two records, whose parameters are a
/// line of the plan.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// The first line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    plan: String,
    tasks: usize,
    #[serde(flatten)]
    origin: Origin,
    /// The varied parameters.
    varied: Vec<String>,
}

/// The inputs, in addition to a task's settings, that decide its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// The digest of the program's bytes: tasks of one plan run one program.
    program_digest: String,
    /// The version of haul that wrote the plan, and a digest that changes with each build. After
    /// a change of the simulator, every task of a new plan runs again.
    simulator: String,
}

/// A line of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    index: usize,
    digest: String,
    /// The varied parameters and their values, for the record.
    parameters: Vec<(String, String)>,
    task: Task,
}

/// A plan that was read and checked.
#[derive(Clone, Debug)]
pub struct Plan {
    path: PathBuf,
    header: Header,
    entries: Vec<Entry>,
}

impl Entry {
    /// The entry's digest in a plan of that origin, over everything except the index and the
    /// digest itself.
    fn digest_for(&self, origin: &Origin) -> String {
        format!("{:016x}", digest(line(&(origin, &self.parameters, &self.task)).as_bytes()))
    }
}

/// The tasks of all combinations of values; the last range varies fastest.
///
/// # Errors
/// A name or a value is wrong, a name occurs twice, a machine is impossible, or there are more than
/// [`TASKS_MAX`].
fn tasks(base: &Task, ranges: &[Range], origin: &Origin) -> Result<Vec<Entry>, Error> {
    let names = || ranges.iter().map(|range| &range.name);
    if let Some((_, twice)) =
        names().enumerate().find(|(n, name)| names().take(*n).any(|x| x == *name))
    {
        return Err(Error::SimSetting {
            setting: twice.clone(),
            reason: "it is varied twice; name all its values at once, as in NAME=1,2,3".into(),
        });
    }
    let count = ranges.iter().try_fold(1_usize, |count, range| {
        count.checked_mul(range.values.len()).filter(|count| *count <= TASKS_MAX)
    });
    let count = count.ok_or_else(|| Error::SimSetting {
        setting: ranges.iter().map(|range| range.name.as_str()).collect::<Vec<_>>().join(", "),
        reason: format!("there are more than {TASKS_MAX} combinations; name fewer values"),
    })?;
    (0..count).map(|index| entry(base, ranges, origin, index)).collect()
}

fn entry(base: &Task, ranges: &[Range], origin: &Origin, index: usize) -> Result<Entry, Error> {
    let mut task = base.clone();
    let mut parameters = Vec::new();
    let mut rest = index;
    for range in ranges.iter().rev() {
        let value = range.values[rest % range.values.len()].clone();
        rest /= range.values.len();
        parameters.push((range.name.clone(), value));
    }
    parameters.reverse();
    for (name, value) in &parameters {
        task.set(&Setting { name: name.clone(), value: value.clone() })?;
    }
    task.check().map_err(|error| Error::SimSetting {
        setting: parameters.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
        reason: match error {
            Error::SimSetting { reason, .. } => reason,
            other => other.to_string(),
        },
    })?;
    let mut entry = Entry { index, digest: String::new(), parameters, task };
    entry.digest = entry.digest_for(origin);
    Ok(entry)
}

/// Writes the plan of all combinations. Returns the number of tasks.
///
/// # Errors
/// A setting is wrong, the program cannot be read, or the plan cannot be written.
pub fn write(path: &Path, base: &Task, ranges: &[Range]) -> Result<usize, Error> {
    let program_digest = Program::named(&base.program)?.digest();
    let origin = Origin { program_digest, simulator: simulator() };
    let entries = tasks(base, ranges, &origin)?;
    let header = Header {
        plan: SCHEMA.into(),
        tasks: entries.len(),
        origin,
        varied: ranges.iter().map(|range| range.name.clone()).collect(),
    };
    let mut text = line(&header);
    entries.iter().for_each(|entry| text.push_str(&line(entry)));
    replace(path, &text)?;
    Ok(entries.len())
}

/// The outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The task ran, and its record was written.
    Now,
    /// The task's record existed already.
    Before,
    /// The task was stopped before its end, and left no file.
    Stopped,
}

fn line(value: &impl Serialize) -> String {
    // Plain data with string keys: it cannot fail.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The plan cannot be read, is incomplete, or has a line that was changed; the error names
    /// the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |reason: String| Error::Plan { path: path.into(), reason };
        Self::parse(path, &program::text(path, PLAN_BYTES_MAX).map_err(failed)?)
    }

    /// Reads the text of a plan at `path`.
    ///
    /// # Errors
    /// Those of [`Plan::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let failed = |reason: String| Error::Plan { path: path.into(), reason };
        let mut lines = text.lines().enumerate();
        let (_, first) = lines
            .next()
            .ok_or_else(|| failed("it is empty; write it again with haul sim sweep".into()))?;
        let header: Header = serde_json::from_str(first).map_err(|error| {
            failed(format!(
                "line 1 is not the header of a plan ({error}); write it again with haul sim sweep"
            ))
        })?;
        if header.plan != SCHEMA {
            return Err(failed(format!("{:?} is not {SCHEMA:?}; write it again", header.plan)));
        }
        let mut entries = Vec::new();
        for (place, text) in lines {
            entries.push(entry_of(text, place, &header.origin).map_err(&failed)?);
        }
        if entries.len() != header.tasks {
            let (found, expected) = (entries.len(), header.tasks);
            return Err(failed(format!("it has {found} tasks of {expected}; write it again")));
        }
        Ok(Self { path: path.into(), header, entries })
    }

    /// The number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the plan has no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Runs a task, unless its record file exists and is whole, or `stop` is set in the meantime.
    ///
    /// # Errors
    /// There is no such task, the program is not the program of the plan, the run fails, or the
    /// record cannot be written.
    pub fn run(&self, index: usize, stop: &AtomicBool) -> Result<Completion, Error> {
        let entry = self.entries.get(index).ok_or_else(|| {
            self.failed(format!("there is no task {index}; it has 0 to {}", self.len().max(1) - 1))
        })?;
        let path = self.record_path(entry);
        if self.record(entry).is_ok() {
            return Ok(Completion::Before);
        }
        let program = Program::named(&entry.task.program)?;
        let found = program.digest();
        if found != self.header.origin.program_digest {
            return Err(self.failed(format!(
                "{} has digest {found}, the plan was made for {}; write the plan again",
                program.place().display(),
                self.header.origin.program_digest
            )));
        }
        let Some(simulated) = entry.task.run(&program.image()?, stop)? else {
            return Ok(Completion::Stopped);
        };
        let folder = self.folder();
        std::fs::create_dir_all(&folder)
            .map_err(|error| self.failed(format!("{}: {error}", folder.display())))?;
        let text: String = records(entry, &simulated)
            .into_iter()
            .map(|record| Line::from(record).to_json() + "\n")
            .collect();
        replace(&path, &text)?;
        Ok(Completion::Now)
    }

    /// Runs all tasks without a whole record file, `threads` at once, and emits the records of
    /// all tasks. When the run is stopped, no further task begins, and the running tasks end
    /// without a record. When a record cannot be written, no further task begins. If a task
    /// fails, the other tasks still run.
    ///
    /// # Errors
    /// The error is that of the first failed task; the records of completed tasks are kept.
    pub fn run_all(&self, threads: usize, context: &mut Context<'_>) -> Result<(), Error> {
        let indices: Vec<usize> = (0..self.len()).collect();
        let (began, mut done, mut failure) = (Instant::now(), 0_u32, None);
        let stop = context.stop;
        let work = |index: &usize| self.run(*index, stop);
        pool::each(&indices, threads, stop, work, |index, outcome| {
            match outcome {
                Ok(Completion::Stopped) => return false,
                Ok(Completion::Now | Completion::Before) => done += 1,
                Err(error) => {
                    done += 1;
                    let goes_on = matches!(error, Error::Simulation { .. });
                    failure.get_or_insert(error);
                    return goes_on;
                }
            }
            let what = format!("{done}/{} task {index}", indices.len());
            let elapsed = began.elapsed();
            let left = indices.len() as u32 - done;
            (context.progress)(&Step { what, elapsed, budget: elapsed / done * left });
            true
        });
        self.collect().0.into_iter().for_each(|record| context.emit(record));
        failure.map_or(Ok(()), Err)
    }

    /// A task's records, if the task has run.
    #[must_use]
    pub fn records_of(&self, index: usize) -> Vec<Record> {
        self.entries.get(index).and_then(|entry| self.record(entry).ok()).unwrap_or_default()
    }

    /// The records of all completed tasks, in the plan's order, and the indices of all other
    /// tasks, each with the reason why it has no record.
    #[must_use]
    pub fn collect(&self) -> (Vec<Record>, Vec<(usize, String)>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            match self.record(entry) {
                Ok(records) => found.extend(records),
                Err(reason) => missing.push((entry.index, reason)),
            }
        }
        (found, missing)
    }

    /// A task's records, if its file is whole.
    fn record(&self, entry: &Entry) -> Result<Vec<Record>, String> {
        let path = self.record_path(entry);
        // If the file's existence cannot be checked, reading the file reports the reason.
        if !path.try_exists().unwrap_or(true) {
            return Err("not done".into());
        }
        let text = program::text(&path, RECORD_BYTES_MAX)?;
        let lines = haul_model::parse(&text).map_err(|_| "its record file is damaged")?;
        let records: Vec<Record> = lines
            .into_iter()
            .filter_map(|line| match line {
                Line::Record(record) => Some(record),
                Line::Machine(_) => None,
            })
            .collect();
        let whole = records.len() == METRICS
            && records.iter().all(|record| record.text(key::DIGEST) == Some(entry.digest.as_str()));
        if whole { Ok(records) } else { Err("its record file is damaged".into()) }
    }

    fn record_path(&self, entry: &Entry) -> PathBuf {
        self.folder().join(format!("{:06}-{}.jsonl", entry.index, entry.digest))
    }

    fn folder(&self) -> PathBuf {
        let mut folder = self.path.clone().into_os_string();
        folder.push(".d");
        folder.into()
    }

    fn failed(&self, reason: String) -> Error {
        Error::Plan { path: self.path.clone(), reason }
    }
}

/// Reads a line as an entry, and checks the entry's digest.
fn entry_of(text: &str, place: usize, origin: &Origin) -> Result<Entry, String> {
    let entry: Entry = serde_json::from_str(text)
        .map_err(|error| format!("line {} is not a task: {error}; write it again", place + 1))?;
    if entry.index != place - 1 || entry.digest != entry.digest_for(origin) {
        return Err(format!(
            "line {} was changed, or the header was: its index or its digest does not match; write \
             it again with haul sim sweep",
            place + 1
        ));
    }
    Ok(entry)
}

/// The number of records of a task.
const METRICS: usize = 2;

fn records(entry: &Entry, simulated: &Simulated) -> Vec<Record> {
    let record = |metric: &str, unit: &str, value: f64| {
        let mut record = Record::new("sweep", name::SIM_SWEEP, "haul", metric, unit)
            .with(key::TASK, entry.index)
            .with(key::DIGEST, entry.digest.clone())
            .with(key::PROGRAM, name_of(&entry.task.program));
        for (name, value) in &entry.parameters {
            let number = value.replace('_', "").parse::<u64>();
            record = match number {
                Ok(number) => record.with(name, number),
                Err(_) => record.with(name, value.clone()),
            };
        }
        record.samples = vec![value];
        record.kind = Kind::Modelled;
        record
    };
    let (metric, cycles) = match simulated.cycles_per_packet {
        Some(cycles) => ("cycles_per_packet", cycles),
        None => ("time", simulated.cycles as f64),
    };
    let instructions = record("instructions", "count", simulated.instructions as f64);
    vec![record(metric, "cycles", cycles), instructions]
}

/// A program without its folder, which is specific to this machine.
fn name_of(program: &str) -> String {
    let name = Path::new(program).file_name().unwrap_or(program.as_ref());
    name.to_string_lossy().into_owned()
}

/// This build of haul: its version, and the size and the time of its file, which change with each
/// build.
fn simulator() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata).ok();
    let built = file.and_then(|file| Some((file.len(), file.modified().ok()?)));
    format!("{} {:016x}", env!("CARGO_PKG_VERSION"), digest(format!("{built:?}").as_bytes()))
}

/// Writes a file in one step, so that two workers that run the same task do not write to the same
/// file.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    haul_machine::file::write_atomically(path, text.as_bytes()).map_err(|error| {
        let reason = match error {
            haul_machine::Error::Write { reason, .. } => reason.to_string(),
            other => other.to_string(),
        };
        Error::Plan { path: path.into(), reason }
    })
}

#[cfg(test)]
mod tests;
