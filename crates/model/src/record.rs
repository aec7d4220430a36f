//! What a measurement or a model says: one [`Record`] a line, and the [`Machine`] it holds for.
//!
//! Both are lines of one JSON Lines file, told apart by `schema`. `docs/record.schema.json` is the
//! same contract as a JSON Schema, and a test holds the two together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The `schema` of every [`Record`] that this version writes.
pub const RECORD_SCHEMA: &str = "haul.record/1";

/// The `schema` of every [`Machine`] that this version writes.
pub const MACHINE_SCHEMA: &str = "haul.machine/1";

/// Whether a figure was measured on a machine or computed by a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A clock, a counter or the kernel said so.
    Measured,
    /// A formula or a simulator said so.
    Modelled,
}

/// One figure: who, where, under which parameters, in which unit, and every sample of it.
///
/// ```
/// use haul_model::{Kind, Line, Record};
/// let mut record = Record::new("run-1", "copy.size", "haul", "time", "ns");
/// record.parameters.insert("size_bytes".into(), 4096.into());
/// record.samples = vec![51.2, 50.9];
/// let line = Line::from(record.clone()).to_json();
/// assert_eq!(Line::parse(&line).unwrap(), Line::Record(record));
/// assert!(line.contains(r#""kind":"measured""#));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// Which run wrote it: the same for all records of one command.
    pub run: String,
    /// When the samples were complete: RFC 3339, UTC, to the second.
    pub time: String,
    /// [`Machine::id`] of the machine it holds for.
    pub machine: String,
    /// Measured or modelled.
    pub kind: Kind,
    /// What was done: `copy.distribution`, `copy.size`, `memory.bandwidth`.
    pub experiment: String,
    /// What it was done with: `haul`, `libc`, `avx2`.
    pub subject: String,
    /// Under which conditions. Keys end in their unit where they have one: `size_bytes`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Which quantity: `time`, `throughput`, `faults`.
    pub metric: String,
    /// Its unit: `ns`, `GB/s` (10^9), `count`.
    pub unit: String,
    /// Every sample, in the order taken; each is already per operation where the metric is.
    pub samples: Vec<f64>,
    /// The comparison with a baseline measured in the same interleaved run, if there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub comparison: Option<Comparison>,
}

/// A subject against its baseline, interleaved in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The baseline's subject.
    pub baseline: String,
    /// Median of subject over baseline, paired by round. Below 1 is less of the metric.
    pub ratio: f64,
    /// Lower end of the ratio's 95% bootstrap interval.
    pub ratio_low: f64,
    /// Upper end of the ratio's 95% bootstrap interval.
    pub ratio_high: f64,
    /// The noise floor: how far from 1 the baseline's ratio with itself came in the same run.
    pub floor: f64,
}

/// The machine that records hold for. Says nothing that names a host or its user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// [`MACHINE_SCHEMA`].
    pub schema: String,
    /// Short and stable: the same for machines that the same tuning holds for.
    pub id: String,
    /// The processor's name as it gives it.
    pub cpu: String,
    /// Instruction sets that haul uses, best last: `sse2`, `avx2`.
    pub isa: Vec<String>,
    /// Logical processors that this process may run on.
    pub processors: usize,
    /// Cache sizes for one core, in bytes, nearest first. Absent where the machine does not tell.
    pub caches_bytes: Vec<u64>,
    /// Memory in bytes; 0 where the machine does not tell.
    pub memory_bytes: u64,
    /// Everything else worth printing, by name: kernel, libc, hypervisor, page sizes.
    pub facts: BTreeMap<String, String>,
}

/// One line of a record file.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A figure.
    Record(Record),
    /// A machine.
    Machine(Machine),
}

/// Why a line is not a record or a machine.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not JSON, or not of the schema's shape.
    #[error("not a line of a haul record file: {0}; write it with `haul ... --json` or `haul survey`")]
    Malformed(#[from] serde_json::Error),
    /// JSON of another schema.
    #[error("schema {found:?} is not known to this haul; it reads {RECORD_SCHEMA:?} and {MACHINE_SCHEMA:?}")]
    UnknownSchema {
        /// The line's `schema`.
        found: String,
    },
    /// A sample or a ratio that is not a finite number cannot be drawn or compared.
    #[error("record of {experiment:?} holds a number that is not finite in {field:?}")]
    NotFinite {
        /// The record's experiment.
        experiment: String,
        /// `samples`, `ratio`, ...
        field: &'static str,
    },
}

impl Record {
    /// A measured record with no parameters, samples, time or machine yet.
    #[must_use]
    pub fn new(run: &str, experiment: &str, subject: &str, metric: &str, unit: &str) -> Self {
        Self {
            schema: RECORD_SCHEMA.into(),
            run: run.into(),
            time: String::new(),
            machine: String::new(),
            kind: Kind::Measured,
            experiment: experiment.into(),
            subject: subject.into(),
            parameters: BTreeMap::new(),
            metric: metric.into(),
            unit: unit.into(),
            samples: Vec::new(),
            comparison: None,
        }
    }

    /// The same record with one more parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.parameters.insert(name.into(), value.into());
        self
    }

    /// The median of the samples; `None` where there are none.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            length if length % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        }
    }
}

impl Line {
    /// Reads one line.
    ///
    /// # Errors
    /// The line is not JSON, is of an unknown schema or of another shape, or holds a number that
    /// is not finite.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let value: serde_json::Value = serde_json::from_str(line)?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(RECORD_SCHEMA) => {
                let record: Record = serde_json::from_value(value)?;
                check_finite(&record)?;
                Ok(Self::Record(record))
            }
            Some(MACHINE_SCHEMA) => Ok(Self::Machine(serde_json::from_value(value)?)),
            other => Err(LineError::UnknownSchema { found: other.unwrap_or("(none)").into() }),
        }
    }

    /// The line as JSON, without the line break.
    ///
    /// # Panics
    /// Never: both shapes have string keys and no number that JSON cannot hold.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Record(record) => serde_json::to_string(record),
            Self::Machine(machine) => serde_json::to_string(machine),
        }
        .expect("records are plain data")
    }
}

impl From<Record> for Line {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl From<Machine> for Line {
    fn from(machine: Machine) -> Self {
        Self::Machine(machine)
    }
}

fn check_finite(record: &Record) -> Result<(), LineError> {
    let not_finite =
        |field| LineError::NotFinite { experiment: record.experiment.clone(), field };
    if record.samples.iter().any(|sample| !sample.is_finite()) {
        return Err(not_finite("samples"));
    }
    let Some(c) = &record.comparison else { return Ok(()) };
    for (field, value) in
        [("ratio", c.ratio), ("ratio_low", c.ratio_low), ("ratio_high", c.ratio_high), ("floor", c.floor)]
    {
        if !value.is_finite() {
            return Err(not_finite(field));
        }
    }
    Ok(())
}
