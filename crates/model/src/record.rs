//! What a measurement or a model says: one [`Record`] a line, and the [`Machine`] it holds for.
//!
//! Both are lines of one JSON Lines file, told apart by `schema`. `docs/record.schema.json` is the
//! same contract as a JSON Schema, and a test holds the two together.
//!
//! Forward compatibility: a reader ignores fields that it does not know, so that a later haul may
//! add one without changing the schema's number; a change that an older reader would misread
//! changes the number, and [`Line::parse`] refuses numbers that it does not know.
//!
//! From the bottom up:
//!
//! - `better`: which direction of a figure is the better one;
//! - `ratio`: a comparison in time or cost, or in rates, whichever the record holds;
//! - `fields`: a record as it is read;
//! - `line`: one line of a record file.

mod better;
mod fields;
mod line;
mod ratio;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use self::fields::RecordFields;
use crate::experiment::key;

pub use better::Better;
pub use line::{Line, LineError};
pub use ratio::RatioOf;

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
#[serde(try_from = "RecordFields")]
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
    /// Where [`Record::samples`] are no samples but their quantiles, at even steps from the least
    /// to the most: of how many samples. So a record takes less room, and whoever does not know the
    /// field reads the same median and quartiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantiles_of: Option<NonZeroU64>,
    /// What the ratio of [`Record::comparison`] is one of, where the figure is a rate. `None` of
    /// times and costs; a rate without it is of an older record, and its ratio one of rates:
    /// [`Record::cost`] and [`Record::rate`] read all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_of: Option<RatioOf>,
    /// The comparison with a baseline measured in the same interleaved run, if there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// A subject against its baseline, interleaved in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline's subject.
    pub baseline: String,
    /// Median of subject over baseline, paired by round: in time or cost, so that below 1 is
    /// better, but where [`Record::ratio_of`] says that it is one of rates.
    pub ratio: f64,
    /// Lower end of the ratio's 95% bootstrap interval.
    pub ratio_low: f64,
    /// Upper end of the ratio's 95% bootstrap interval.
    pub ratio_high: f64,
    /// The noise floor: how far from 1 the baseline's ratio with itself came in the same run.
    pub floor: f64,
}

/// What a comparison lets one say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The subject takes less of the metric than its baseline.
    Less,
    /// The subject takes more of the metric than its baseline.
    More,
    /// The difference is within the noise of the run.
    NoDifference,
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

impl Record {
    /// A figure counts as disturbed where the hypervisor took more than this of all processors'
    /// time while it was taken, in percent. The kernel counts in ticks of 10 ms: of a short step
    /// (0.3 s on two processors) this is three of them, so that a tick or two by chance mark
    /// nothing.
    pub const STEAL_PERCENT_MAX: f64 = 5.0;

    /// A figure counts as taken beside other programs where these kept more than so many processors
    /// busy on average: two processes that wait for each other then do it another way than on
    /// processors of their own.
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

    /// How many samples were taken, whether the record has all of them or their quantiles.
    #[must_use]
    pub fn samples_count(&self) -> u64 {
        self.quantiles_of.map_or(self.samples.len() as u64, NonZeroU64::get)
    }

    /// What the hypervisor took of all processors' time while the figure was taken, in percent;
    /// `None` where the record does not say, or says what no share can be.
    #[must_use]
    pub fn steal_percent(&self) -> Option<f64> {
        let percent = self.parameters.get(key::STEAL_PERCENT)?.as_f64()?;
        (0.0..=100.0).contains(&percent).then_some(percent)
    }

    /// Whether the hypervisor disturbed the figure.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.steal_percent().is_some_and(|percent| percent > Self::STEAL_PERCENT_MAX)
    }

    /// How many processors programs that have nothing to do with the measurement kept busy while
    /// the figure was taken; `None` where the record does not say, or says what cannot be.
    #[must_use]
    pub fn others_processors(&self) -> Option<f64> {
        let processors = self.parameters.get(key::OTHERS_PROCESSORS)?.as_f64()?;
        (processors.is_finite() && processors >= 0.0).then_some(processors)
    }

    /// Whether the figure was taken while other programs ran, and says nothing of a machine that
    /// does nothing else.
    #[must_use]
    pub fn is_beside_others(&self) -> bool {
        self.others_processors().is_some_and(|others| others > Self::OTHERS_PROCESSORS_MAX)
    }

    /// Checks what the types cannot hold: that every number is finite, and that a ratio, its
    /// interval and its floor are not negative. [`Line::parse`] calls it; whoever writes records
    /// calls it first, for JSON has no way to say a number that is not finite.
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

impl Comparison {
    /// Less or more only where the whole interval lies on one side of 1 and the ratio is farther
    /// from 1 than the floor; everything else is no difference.
    ///
    /// ```
    /// use haul_model::{Comparison, Verdict};
    /// let baseline = "libc".into();
    /// let (ratio, ratio_low, ratio_high, floor) = (0.97, 0.96, 0.98, 0.01);
    /// let mut against_libc = Comparison { baseline, ratio, ratio_low, ratio_high, floor };
    /// assert_eq!(against_libc.verdict(), Verdict::Less);
    /// against_libc.floor = 0.04;
    /// assert_eq!(against_libc.verdict(), Verdict::NoDifference);
    /// ```
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if (self.ratio - 1.0).abs() <= self.floor {
            Verdict::NoDifference
        } else if self.ratio < 1.0 && self.ratio_high < 1.0 {
            Verdict::Less
        } else if self.ratio > 1.0 && self.ratio_low > 1.0 {
            Verdict::More
        } else {
            Verdict::NoDifference
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, low: f64, high: f64, floor: f64) -> Comparison {
        Comparison { baseline: "libc".into(), ratio, ratio_low: low, ratio_high: high, floor }
    }

    #[test]
    fn a_verdict_needs_the_interval_and_the_floor() {
        for (c, expected) in [
            (comparison(0.80, 0.78, 0.82, 0.01), Verdict::Less),
            (comparison(1.20, 1.15, 1.25, 0.01), Verdict::More),
            (comparison(0.80, 0.70, 1.01, 0.01), Verdict::NoDifference),
            (comparison(1.20, 0.99, 1.40, 0.01), Verdict::NoDifference),
            (comparison(0.99, 0.985, 0.995, 0.0125), Verdict::NoDifference),
            (comparison(1.00, 1.00, 1.00, 0.00), Verdict::NoDifference),
        ] {
            assert_eq!(c.verdict(), expected, "{c:?}");
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_before_and_after_writing() {
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
    fn the_median_is_the_middle() {
        let mut record = Record::new("r", "copy.size", "haul", "time", "ns");
        assert_eq!(record.median(), None);
        record.samples = vec![3.0, 1.0, 2.0];
        assert_eq!(record.median(), Some(2.0));
        record.samples.push(10.0);
        assert_eq!(record.median(), Some(2.5));
    }
}
