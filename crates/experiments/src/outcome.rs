//! Turns the outcome of an interleaved run into records.

use haul_measure::interleave::{Control, SubjectOutcome};
use haul_measure::{Outcome, Progress, Sampling, Subject};
use haul_model::experiment::key;
use haul_model::{RatioOf, Record};

use crate::context::{Context, Step};
use crate::error::Error;
use crate::remarks::Remarks;

/// The metric of the samples, which are measured in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// `time` in `ns`, for each operation.
    Time,
    /// `throughput` in `GB/s` (10^9), of all threads together.
    Throughput {
        /// The number of bytes for which one operation counts, on all threads together.
        bytes_per_operation: f64,
    },
}

/// The parts that the records of one run share.
#[derive(Clone, Debug)]
pub struct Template {
    /// The name of the experiment, such as `copy.size`.
    pub experiment: &'static str,
    /// The parameters of every record of the run.
    pub parameters: Vec<(&'static str, serde_json::Value)>,
    /// The metric.
    pub metric: Metric,
    /// Notes for the reader, in addition to the disturbances.
    pub notes: Vec<String>,
}

/// Runs the subjects against `subjects[baseline]` under the context's CPUs, stop flag and progress.
///
/// # Errors
/// See [`haul_measure::interleave::run`].
pub fn measure(
    context: &mut Context<'_>,
    what: &str,
    subjects: &[&dyn Subject],
    baseline: usize,
    sampling: &Sampling,
) -> Result<Outcome, Error> {
    let sampling = Sampling { cpus: context.cpus.clone(), ..sampling.clone() };
    let report = &mut *context.progress;
    let mut progress = |progress: Progress| {
        report(&Step { what: what.to_owned(), elapsed: progress.elapsed, budget: progress.budget });
    };
    let mut control = Control { stop: context.stop, progress: &mut progress };
    Ok(haul_measure::interleave::run(subjects, baseline, &sampling, &mut control)?)
}

/// Emits one record for each subject that has samples.
pub fn emit(context: &mut Context<'_>, outcome: &Outcome, template: &Template) {
    emit_each(context, outcome, template, |_| Vec::new());
}

/// Like [`emit`], but with further parameters for each subject, by its name.
pub fn emit_each(
    context: &mut Context<'_>,
    outcome: &Outcome,
    template: &Template,
    own: impl Fn(&str) -> Vec<(&'static str, serde_json::Value)>,
) {
    let remarks = Remarks::new(&template.notes, &outcome.noticed);
    for subject in outcome.subjects.iter().filter(|subject| !subject.samples_ns.is_empty()) {
        let record = record(subject, outcome, template, &remarks);
        let own = own(&subject.name).into_iter();
        context.emit(own.fold(record, |record, (name, value)| record.with(name, value)));
    }
}

fn record(
    subject: &SubjectOutcome,
    outcome: &Outcome,
    template: &Template,
    remarks: &Remarks,
) -> Record {
    let (metric, unit) = match template.metric {
        Metric::Time => ("time", "ns"),
        Metric::Throughput { .. } => ("throughput", "GB/s"),
    };
    let mut record = Record::new("", template.experiment, &subject.name, metric, unit);
    for (name, value) in &template.parameters {
        record = record.with(name, value.clone());
    }
    record = record
        .with(key::OPERATIONS_PER_SAMPLE, subject.iterations)
        .with(key::ROUNDS_DISCARDED, outcome.rounds_discarded as u64);
    if let Some(cpu_ns) = subject.account.cpu_ns_per_operation() {
        record = record.with(key::CPU_NS, rounded(cpu_ns));
    }
    let faults = subject.account.faults_minor + subject.account.faults_major;
    record = record.with(key::PAGE_FAULTS, faults);
    if let Some(peak_bytes) = subject.account.peak_bytes {
        record = record.with(key::MEMORY_PEAK_BYTES, peak_bytes);
    }
    record = remarks.on(record);
    record.samples = subject.samples_ns.iter().map(|&ns| template.metric.of(ns)).collect();
    // The comparison uses times, independent of the metric.
    record.comparison.clone_from(&subject.comparison);
    let is_rate = matches!(template.metric, Metric::Throughput { .. });
    record.ratio_of = (is_rate && record.comparison.is_some()).then_some(RatioOf::Cost);
    record
}

impl Metric {
    fn of(self, ns: f64) -> f64 {
        match self {
            Self::Time => ns,
            Self::Throughput { bytes_per_operation } => bytes_per_operation / ns,
        }
    }
}

/// Rounds to four digits, which is the precision of a cost figure.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 3);
    (value / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_bytes_per_nanosecond() {
        let metric = Metric::Throughput { bytes_per_operation: 4096.0 };
        assert_eq!(metric.of(409.6), 10.0);
        assert_eq!(Metric::Time.of(409.6), 409.6);
    }

    #[test]
    fn rounded_keeps_four_digits() {
        assert!((rounded(123_456.0) - 123_500.0).abs() < 1e-6);
        assert!((rounded(0.001_234_56) - 0.001_235).abs() < 1e-12);
        assert_eq!(rounded(0.0), 0.0);
    }
}
