//! The results of measurements and models: one [`Record`] a line, and the [`Machine`] that it is
//! valid for.
//!
//! Both are lines of one JSON Lines file; `schema` distinguishes them. `docs/record.schema.json` is
//! the same contract as a JSON Schema, and a test compares the two.
//!
//! Forward compatibility: a reader ignores unknown fields, so that a later version of haul may add
//! a field without changing the schema's number. A change that an older reader would misread must
//! change the number, and [`Line::parse`] rejects unknown numbers.
//!
//! From the bottom up:
//!
//! - `better`: whether a larger or a smaller figure is better;
//! - `ratio`: conversion of a comparison between costs and rates;
//! - `verdict`: the conclusion of a comparison;
//! - `fields`: the fields of a record as they are parsed;
//! - `line`: one line of a record file.

mod better;
mod fields;
mod line;
mod ratio;
mod verdict;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use self::fields::RecordFields;
use crate::experiment::key;
use crate::statistics;

pub use better::Better;
pub use line::{Line, LineError};
pub use ratio::RatioOf;
pub use verdict::{MATTERS, Settle, Verdict};

/// The `schema` of every [`Record`] that this version writes.
pub const RECORD_SCHEMA: &str = "haul.record/1";

/// The `schema` of every [`Machine`] that this version writes.
pub const MACHINE_SCHEMA: &str = "haul.machine/1";

/// Whether a figure was measured on a machine or computed by a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A clock, a counter or the kernel gave the figure.
    Measured,
    /// A formula or a simulator gave the figure.
    Modelled,
}

/// One figure: its subject, machine, parameters and unit, and all of its samples.
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
#[serde(try_from = "RecordFields")]
pub struct Record {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// The run that wrote it: the same for all records of one command.
    pub run: String,
    /// The time at which the samples were complete: RFC 3339, UTC, to the second.
    pub time: String,
    /// [`Machine::id`] of the machine that it is valid for.
    pub machine: String,
    /// Measured or modelled.
    pub kind: Kind,
    /// The experiment: `copy.distribution`, `copy.size`, `memory.bandwidth`.
    pub experiment: String,
    /// The measured implementation: `haul`, `libc`, `avx2`.
    pub subject: String,
    /// The conditions. A key of a value with a unit ends in the unit: `size_bytes`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// The quantity: `time`, `throughput`, `faults`.
    pub metric: String,
    /// The unit of the metric: `ns`, `GB/s` (10^9), `count`.
    pub unit: String,
    /// All samples, in the order in which they were taken. If the metric is per operation, each
    /// sample is per operation too.
    pub samples: Vec<f64>,
    /// The number of samples, if [`Record::samples`] contains only their quantiles, at even steps
    /// from the least to the largest. Such a record is smaller, and a reader that does not know
    /// the field computes the same median and quartiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantiles_of: Option<NonZeroU64>,
    /// The quantity of [`Record::comparison`]'s ratio, if the figure is a rate. It is `None` for
    /// times and costs. A rate without this field comes from an older record, whose ratio is a
    /// ratio of rates. [`Record::cost`] and [`Record::rate`] handle all cases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_of: Option<RatioOf>,
    /// The comparison with a baseline measured in the same interleaved run, if there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// A comparison of a subject with its baseline, interleaved in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline's subject.
    pub baseline: String,
    /// The median of subject over baseline, paired by round. It is a ratio of times or costs, so
    /// that below 1 is better, unless [`Record::ratio_of`] says that it is a ratio of rates.
    pub ratio: f64,
    /// Lower end of the ratio's 95% bootstrap interval.
    pub ratio_low: f64,
    /// Upper end of the ratio's 95% bootstrap interval.
    pub ratio_high: f64,
    /// The noise floor: the distance from 1 of the baseline's ratio with itself in the same run.
    pub floor: f64,
}

/// The machine that records are valid for. It has no field that identifies a host or its user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// [`MACHINE_SCHEMA`].
    pub schema: String,
    /// A short and stable name: equal for machines that the same tuning is valid for.
    pub id: String,
    /// The name that the processor reports.
    pub cpu: String,
    /// The instruction sets that haul uses, best last: `sse2`, `avx2`.
    pub isa: Vec<String>,
    /// The number of logical processors that this process may run on.
    pub processors: usize,
    /// The cache sizes of one core in bytes, nearest first. Empty if the machine does not report
    /// them.
    pub caches_bytes: Vec<u64>,
    /// The memory in bytes; 0 if the machine does not report it.
    pub memory_bytes: u64,
    /// Other facts by name: kernel, libc, hypervisor, page sizes.
    pub facts: BTreeMap<String, String>,
}

impl Record {
    /// A figure counts as disturbed if the hypervisor used more than this share of all processors'
    /// time while it was measured, in percent. The kernel counts in ticks of 10 ms: in a short step
    /// (0.3 s on two processors) this is three ticks, so that one or two ticks by chance do not
    /// count.
    pub const STEAL_PERCENT_MAX: f64 = 5.0;

    /// A figure counts as measured while other programs ran if these kept more than this number
    /// of processors busy on average, because two processes that wait for each other then behave
    /// differently than on otherwise idle processors.
    pub const OTHERS_PROCESSORS_MAX: f64 = 0.25;

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
            quantiles_of: None,
            ratio_of: None,
            comparison: None,
        }
    }

    /// This record with one more parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.parameters.insert(name.into(), value.into());
        self
    }

    /// Sets this record's run, machine id and time.
    pub fn stamp(&mut self, run: &str, machine: &str, time: &str) {
        self.run = run.into();
        self.machine = machine.into();
        self.time = time.into();
    }

    /// A parameter that is a number. `None` if it is absent or something else.
    ///
    /// ```
    /// use haul_model::Record;
    /// let record = Record::new("r", "copy.size", "haul", "time", "ns")
    ///     .with("size_bytes", 4096)
    ///     .with("level", "l1");
    /// assert_eq!((record.number("size_bytes"), record.number("level")), (Some(4096.0), None));
    /// assert_eq!((record.count("size_bytes"), record.text("level")), (Some(4096), Some("l1")));
    /// assert_eq!(record.shown("size_bytes").as_deref(), Some("4096"));
    /// assert_eq!(record.shown("threads"), None);
    /// ```
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.parameters.get(name)?.as_f64()
    }

    /// A parameter that is a whole number, not below 0. `None` if it is absent or something else.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<u64> {
        self.parameters.get(name)?.as_u64()
    }

    /// A parameter that is a text. `None` if it is absent or something else.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)?.as_str()
    }

    /// A parameter as a reader sees it: a text without its quotes, anything else as JSON. `None` if
    /// it is absent.
    #[must_use]
    pub fn shown(&self, name: &str) -> Option<String> {
        let value = self.parameters.get(name)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// The median of the samples; `None` if there are none.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.samples)
    }

    /// The median of a cost that was computed by subtraction, sample by sample. `None` if the
    /// interval of the median contains 0, or if there are fewer than three samples: a value that
    /// cannot be distinguished from 0 must not be shown as a cost.
    ///
    /// ```
    /// use haul_model::Record;
    /// let mut record = Record::new("r", "forward.pvp", "haul", "cycles_copy", "cycles/packet");
    /// record.samples = vec![12.0, 9.0, 14.0];
    /// assert_eq!(record.above_zero(), Some(12.0));
    /// record.samples = vec![-395.0, 800.0, -1200.0];
    /// assert_eq!(record.above_zero(), None);
    /// ```
    #[must_use]
    pub fn above_zero(&self) -> Option<f64> {
        let [low, _] = statistics::median_interval(&self.samples)?;
        self.median().filter(|_| low > 0.0)
    }

    /// The number of samples that were taken, even if the record contains only their quantiles.
    #[must_use]
    pub fn samples_count(&self) -> u64 {
        self.quantiles_of.map_or(self.samples.len() as u64, NonZeroU64::get)
    }

    /// The share of all processors' time that the hypervisor used while the figure was measured, in
    /// percent. `None` if the record has no such share, or an impossible one.
    #[must_use]
    pub fn steal_percent(&self) -> Option<f64> {
        let percent = self.number(key::STEAL_PERCENT)?;
        (0.0..=100.0).contains(&percent).then_some(percent)
    }

    /// Whether the hypervisor disturbed the figure.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.steal_percent().is_some_and(|percent| percent > Self::STEAL_PERCENT_MAX)
    }

    /// The number of processors that unrelated programs kept busy while the figure was measured.
    /// `None` if the record has no such number, or an impossible one.
    #[must_use]
    pub fn others_processors(&self) -> Option<f64> {
        let processors = self.number(key::OTHERS_PROCESSORS)?;
        (processors.is_finite() && processors >= 0.0).then_some(processors)
    }

    /// Whether the figure was measured while other programs ran, so that it is not valid for an
    /// otherwise idle machine.
    #[must_use]
    pub fn is_beside_others(&self) -> bool {
        self.others_processors().is_some_and(|others| others > Self::OTHERS_PROCESSORS_MAX)
    }

    /// Checks the conditions that the types do not ensure: every number must be finite, and a
    /// ratio, its interval and its floor must not be negative. [`Line::parse`] calls it. A writer
    /// of records must call it before it writes, because JSON cannot represent a number that is not
    /// finite.
    ///
    /// # Errors
    /// [`LineError::BadNumber`] names the first field that fails.
    pub fn check(&self) -> Result<(), LineError> {
        let bad = |field, value, negative_allowed| LineError::BadNumber {
            experiment: self.experiment.clone(),
            field,
            value,
            negative_allowed,
        };
        if let Some(value) = self.samples.iter().find(|sample| !sample.is_finite()) {
            return Err(bad("samples", *value, true));
        }
        let Some(c) = &self.comparison else {
            return Ok(());
        };
        for (field, value) in [
            ("ratio", c.ratio),
            ("ratio_low", c.ratio_low),
            ("ratio_high", c.ratio_high),
            ("floor", c.floor),
        ] {
            if !value.is_finite() || value < 0.0 {
                return Err(bad(field, value, false));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, low: f64, high: f64, floor: f64) -> Comparison {
        Comparison { baseline: "libc".into(), ratio, ratio_low: low, ratio_high: high, floor }
    }

    #[test]
    fn check_and_parse_reject_non_finite_numbers() {
        let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
        record.samples = vec![1.0, f64::NAN];
        let message = record.check().unwrap_err().to_string();
        assert!(message.contains("samples") && message.contains("NaN"), "{message}");
        assert!(Line::parse(&Line::from(record.clone()).to_json()).is_err());

        record.samples = vec![1.0];
        record.comparison = Some(comparison(1.0, -0.5, 1.0, 0.1));
        let message = record.check().unwrap_err().to_string();
        assert!(message.contains("ratio_low") && message.contains("not below 0"), "{message}");
    }

    #[test]
    fn median_is_middle_of_samples() {
        let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
        assert_eq!(record.median(), None);
        record.samples = vec![3.0, 1.0, 2.0];
        assert_eq!(record.median(), Some(2.0));
        record.samples.push(10.0);
        assert_eq!(record.median(), Some(2.5));
    }
}
