//! How each experiment is drawn: which parameter is the position, which one names the series, and
//! which quantities are shown.

mod all;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Kind, Record};

use self::all::{CPU, FOOTPRINT, SHARE};
use super::{Mode, Role, Shape};
use crate::select::{bytes, field, threads};
use crate::stats::quantile;
use crate::text;

pub(crate) use self::all::ALL;

/// How one experiment is drawn.
pub(crate) struct Drawing {
    pub experiment: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub shape: Shape,
    pub x_title: &'static str,
    pub place: Place,
    /// The field that names a series.
    pub series: &'static str,
    pub modes: &'static [Mode],
    /// Adds the best kernel and the memory limit.
    pub limits: bool,
    /// Whether each series shows the best of all subjects at each position, with a remark that
    /// names this subject.
    pub best_of_subjects: bool,
}

/// The parameters that determine a record's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A size in bytes.
    Size(&'static str),
    /// A count, and the name of the counted things.
    Count(&'static str, &'static str),
    /// A row for each combination of values.
    Row(&'static [&'static str]),
}

/// A record on the plot.
pub(crate) struct Point<'a> {
    pub record: &'a Record,
    pub series: String,
    /// `None` for rows, which are placed by their label.
    pub x: Option<f64>,
    pub label: String,
    /// One reading per mode.
    pub readings: Vec<Option<Reading>>,
}

/// A value and its interval: the ratio's confidence interval, or the quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Drawing {
    /// The record's point on this plot; `None` if it lacks a field that the plot needs. The table
    /// shows it anyway.
    pub(crate) fn point<'a>(&self, record: &'a Record) -> Option<Point<'a>> {
        let mut series = field(record, self.series)?;
        if self.series == key::LEVEL {
            series = text::level(&series);
        }
        if record.kind == Kind::Modelled {
            series.push_str(" (modelled)");
        }
        let (x, label) = self.place(record)?;
        let readings: Vec<Option<Reading>> = self
            .modes
            .iter()
            .map(|mode| self.reading(mode, record).filter(|reading| reading.is_drawable(mode)))
            .collect();
        readings.iter().any(Option::is_some).then_some(Point { record, series, x, label, readings })
    }

    fn place(&self, record: &Record) -> Option<(Option<f64>, String)> {
        #[expect(clippy::cast_precision_loss, reason = "the axis has a few thousand pixels")]
        match self.place {
            Place::Size(name) => {
                let size = bytes(record, name).filter(|size| *size > 0)?;
                Some((Some(size as f64), Bytes(size).to_string()))
            }
            Place::Count(name, noun) => {
                let count = record.count(name)?;
                Some((Some(count as f64), text::count(usize::try_from(count).ok()?, noun)))
            }
            Place::Row(names) => {
                let parts: Vec<String> =
                    names.iter().filter_map(|name| field(record, name)).collect();
                let label = match (parts.is_empty(), self.experiment) {
                    (true, _) => return None,
                    (_, name::COPY_SIZE_CLASS) => text::size_class(&parts[0]),
                    (_, name::MEMORY_FAULT) => {
                        let page = Bytes(bytes(record, key::PAGES)?).to_string();
                        let rest = parts.iter().skip(1).cloned();
                        std::iter::once(page).chain(rest).collect::<Vec<_>>().join(", ")
                    }
                    (_, name::HEAP_PAIRS) => Bytes(bytes(record, key::SIZE_BYTES)?).to_string(),
                    _ => parts.join(", "),
                };
                Some((None, label))
            }
        }
    }

    fn reading(&self, mode: &Mode, record: &Record) -> Option<Reading> {
        if mode.name == "ratio" {
            let c = record.cost()?;
            return Some(Reading { value: c.ratio, low: c.ratio_low, high: c.ratio_high });
        }
        let own = Reading {
            value: record.median()?,
            low: quantile(&record.samples, 0.25)?,
            high: quantile(&record.samples, 0.75)?,
        };
        match (mode.name, record.metric.as_str(), record.unit.as_str()) {
            ("time", "time", "ns")
            | ("alloc_time", "alloc_time", "ns")
            | ("footprint", "footprint", "MiB")
            | ("cpu", "cpu", "s/GB")
            | ("latency", "latency", "ns")
            | ("throughput", "throughput", "GB/s") => Some(own),
            ("packets", "rate_peak", "packets/s") => Some(own.times(1e-6)),
            ("time", "time", "s") => Some(own.times(1e9)),
            ("throughput", "throughput", "bytes/s") => Some(own.times(1e-9)),
            ("share", "share", "share") => Some(own.times(100.0)),
            ("throughput", "time", "ns") => {
                // Bytes per nanosecond are GB/s, of all threads together; the quartiles swap.
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the axis has a few thousand pixels"
                )]
                let size = (bytes(record, key::SIZE_BYTES)? * threads(record)) as f64;
                Some(Reading {
                    value: size / own.value,
                    low: size / own.high,
                    high: size / own.low,
                })
            }
            _ => None,
        }
    }

    /// Whether each mode shows a different metric, so that several records make up one point.
    pub(crate) fn is_by_metric(&self) -> bool {
        self.modes.contains(&FOOTPRINT) || self.modes.contains(&CPU)
    }

    /// The parameters that determine a record's position or series, and so distinguish records
    /// already.
    pub(crate) fn own_fields(&self) -> Vec<&'static str> {
        let mut own = vec![self.series];
        if self.best_of_subjects {
            own.push("subject");
        }
        match self.place {
            Place::Size(name) | Place::Count(name, _) => own.push(name),
            Place::Row(names) => own.extend(names),
        }
        own
    }
}

impl Reading {
    /// The reading in another unit; at least 0.
    fn times(self, factor: f64) -> Self {
        let [value, low, high] =
            [self.value, self.low, self.high].map(|value| (value * factor).max(0.0));
        Self { value, low, high }
    }

    /// Whether the plot can show it. A share may be 0.
    fn is_drawable(&self, mode: &Mode) -> bool {
        let is_finite = [self.value, self.low, self.high].iter().all(|value| value.is_finite());
        is_finite && (self.value > 0.0 || mode.name == SHARE.name)
    }
}

/// The role of a series for the reader.
pub(crate) fn role(series: &str, baselines: &[&str]) -> Role {
    match series {
        "haul" | "haul:auto" | "auto" | "tuned" => Role::Haul,
        "asked for" | "memcpy" | "none" | "empty" => Role::Limit,
        other if baselines.contains(&other) => Role::Baseline,
        "libc" if baselines.is_empty() => Role::Baseline,
        _ => Role::Other,
    }
}
