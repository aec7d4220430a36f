//! The experiment: a run of one size, and its records.

use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_machine::sys::Sys;
use haul_machine::tuning::Force;
use haul_measure::Caches;
use haul_measure::disturbance::Watch;
use haul_measure::memory::available_bytes;
use haul_measure::rounds::{Round, evaluate};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Record};

use super::bench::{Bench, Target, is_sealed};
use super::others::Others;
use super::protocol::Kind;
use super::run::{Entrant, Run, Sample};
use super::transport::{ANNOUNCED, DIRTY_PAGES, ENGINE, UNTRUSTED};
use crate::busy::Busy;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, nanoseconds};
use crate::remarks::Remarks;

/// The time of a transfer in addition to its rounds, per subject, for small and for larger
/// messages. During this time, the ends connect and exchange a few samples in both directions.
const SUBJECT_OF_SMALL: Duration = Duration::from_millis(60);
const SMALL_BYTES_MAX: usize = 16 << 10;
const SUBJECT: Duration = Duration::from_millis(12);

/// The time in addition to the rounds, per subject and per byte of a message.
const OVERHEAD_NS_PER_BYTE: f64 = 6.0;

/// The time of a transfer with a busy processor, divided by the time without. A subject sometimes
/// waits for a time slice of the other program.
const BUSY_MULTIPLE: u32 = 4;

/// The time of a transfer into new memory, divided by the time of a transfer into warm memory.
const COLD_MULTIPLE: u32 = 2;

impl Experiment for Bench {
    fn name(&self) -> String {
        let (size, target) = (Bytes(self.size as u64), self.target);
        let busy = if self.is_busy { ", one processor busy" } else { "" };
        format!("transfer of {size}, {target} target{busy}")
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    /// The baseline is measured twice.
    fn overhead(&self, _: &Caches) -> Duration {
        let subjects = u32::try_from(self.subjects.len() + 1).unwrap_or(u32::MAX);
        let each = if self.size <= SMALL_BYTES_MAX { SUBJECT_OF_SMALL } else { SUBJECT };
        let all = (each + nanoseconds(OVERHEAD_NS_PER_BYTE, self.size)) * subjects;
        let all = if self.is_busy { all * BUSY_MULTIPLE } else { all };
        if self.target == Target::Cold { all * COLD_MULTIPLE } else { all }
    }

    /// Checks whether source and target of the two ends fit into memory. A subject that needs
    /// more memory than that is left out.
    fn check_memory(&self) -> Result<(), Error> {
        self.fitting(available_bytes(&Sys::new())).map(|_| ())
    }

    /// Emits for each subject the records of its throughput, of the processor time of both sides,
    /// of its latency if messages are small, and of its memory in addition to source and target.
    /// A subject that fails has no records and is reported to the context as a warning; the other
    /// subjects continue. If the baseline fails, all subjects have the earlier repetitions.
    ///
    /// # Errors
    /// haul or the baseline fails, or delivers a wrong byte to B. The records of the other
    /// subjects are emitted first. It is also an error if only one processor is available, or too
    /// little memory.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let is_good = |tried: &Try<'_>, stop: bool| {
            stop || !matches!(tried.ended, Ok(true)) || !tried.remarks.is_disturbed()
        };
        let stop = context.stop;
        let (tries, tried) = until_good(
            self.tries,
            || once(self, context),
            |tried| is_good(tried, stop.load(Ordering::Relaxed)),
        )?;
        let Try { mut run, remarks, ended } = tried;
        run.tries = tries;
        run.emit(&remarks, context);
        ended?;
        run.own_failure().map_or(Ok(()), Err)
    }
}

/// A run whose records are not emitted yet.
struct Try<'a> {
    run: Run<'a>,
    remarks: Remarks,
    /// Whether the run completed, or its error.
    ended: Result<bool, Error>,
}

/// Repeats the attempt until one is good, at most `tries` times. Returns the number of attempts
/// and the last attempt.
fn until_good<T, E>(
    tries: u32,
    mut once: impl FnMut() -> Result<T, E>,
    is_good: impl Fn(&T) -> bool,
) -> Result<(u32, T), E> {
    let mut count = 1;
    loop {
        let tried = once()?;
        if count >= tries || is_good(&tried) {
            return Ok((count, tried));
        }
        count += 1;
    }
}

fn once<'a>(config: &'a Bench, context: &mut Context<'_>) -> Result<Try<'a>, Error> {
    let mut run = Run::new(config, &Sys::new(), context)?;
    let _busy = config.is_busy.then(|| Busy::on(run.cpus[1]));
    let (mut watch, others) = (Watch::start(Sys::new()), Others::start(Sys::new()));
    let kinds = config.kinds();
    let budget = config.budget / u32::try_from(kinds.len()).unwrap_or(1);
    let mut ended = Ok(true);
    for kind in kinds {
        if matches!(ended, Ok(true)) {
            ended = run.repeat(kind, budget, &mut watch, context);
        }
    }
    let remarks = Remarks::new(&[], &watch.finish()).with_others(others.processors());
    Ok(Try { run, remarks, ended })
}

impl Run<'_> {
    /// Emits a record of each metric for each subject that has the metric.
    fn emit(&mut self, remarks: &Remarks, context: &mut Context<'_>) {
        let size = self.config.size as f64;
        let transfers = |entrant: &Entrant<'_>| entrant.transfers.clone();
        let echoes = |entrant: &Entrant<'_>| entrant.echoes.clone();
        // Bytes per nanosecond are GB/s, and nanoseconds per byte are seconds per GB.
        self.emit_one("throughput", "GB/s", &transfers, &|s| size / s.elapsed_ns, remarks, context);
        self.emit_one("cpu", "s/GB", &transfers, &|s| s.cpu_ns / size, remarks, context);
        self.emit_one("latency", "ns", &echoes, &|s| s.elapsed_ns, remarks, context);
        let measured = |entrant: &&Entrant<'_>| entrant.is_measured();
        let (_, subjects) = self.entrants.split_last().expect("the baseline is measured twice");
        for entrant in subjects.iter().filter(measured) {
            let mut record = self.record(entrant, "extra_memory", "B", remarks);
            record.samples = vec![entrant.extra_bytes as f64];
            context.emit(record);
        }
    }

    /// Emits one metric of all subjects that have the metric, each against the baseline.
    fn emit_one(
        &self,
        metric: &str,
        unit: &str,
        samples: &dyn Fn(&Entrant<'_>) -> Vec<Sample>,
        value: &dyn Fn(&Sample) -> f64,
        remarks: &Remarks,
        context: &mut Context<'_>,
    ) {
        let (again, subjects) = self.entrants.split_last().expect("the baseline is measured twice");
        let having: Vec<&Entrant<'_>> = subjects
            .iter()
            .filter(|entrant| entrant.failure.is_none() && !samples(entrant).is_empty())
            .collect();
        let columns: Vec<Vec<Sample>> =
            having.iter().copied().chain([again]).map(samples).collect();
        let count = columns.iter().map(Vec::len).min().unwrap_or(0);
        if having.is_empty() || count == 0 {
            return;
        }
        let round = |index: usize| Round {
            values: columns.iter().map(|column| value(&column[index])).collect(),
            hit: columns.iter().any(|column| column[index].hit),
        };
        let rounds: Vec<Round> = (0..count).map(round).collect();
        let names: Vec<String> =
            having.iter().map(|entrant| entrant.subject.name.clone()).collect();
        let found = evaluate(&rounds, &names, 0, self.config.seed);
        for (index, entrant) in having.iter().enumerate() {
            let mut record = self.record(entrant, metric, unit, remarks);
            record = record.with(key::ROUNDS_DISCARDED, found.rounds_discarded);
            let faults: u64 = columns[index].iter().map(|sample| sample.faults).sum();
            record = record.with(key::PAGE_FAULTS, faults / count as u64);
            record.samples.clone_from(&found.series[index]);
            record.compare(found.comparisons[index].clone());
            context.emit(record);
        }
    }

    /// The parameters that all records of a subject share.
    fn record(&self, entrant: &Entrant<'_>, metric: &str, unit: &str, remarks: &Remarks) -> Record {
        let kind = if metric == "latency" { Kind::Echo } else { Kind::Transfer };
        let config = self.config;
        let mut record =
            Record::new("", name::CHANNEL_TRANSFER, &entrant.subject.name, metric, unit)
                .with(key::SIZE_BYTES, config.size)
                .with(key::TARGET, config.target.to_string())
                .with(key::BUSY_CORE, u8::from(config.is_busy))
                .with(key::MESSAGES, entrant.count(kind))
                .with(key::CPUS, self.cpus.len())
                .with(key::VERSION, self.running[entrant.pair].version.clone());
        if self.tries > 1 {
            record = record.with(key::TRIES, self.tries);
        }
        if !entrant.remark.is_empty() {
            record = record.with(key::MECHANISM, entrant.remark.clone());
        }
        if entrant.subject.name.starts_with("haul:auto") {
            record = record.with(key::TABLE, has_table());
        }
        if let Some((_, engine)) = entrant.subject.name.split_once(ENGINE) {
            record = record.with(key::ENGINE, engine);
        }
        if is_sealed(&entrant.subject.name) {
            let is_announced = entrant.subject.name.ends_with(ANNOUNCED);
            let pages = if is_announced { "in one piece, announced" } else { "scattered" };
            record = record.with(key::DIRTY_SHARE, 1.0 / DIRTY_PAGES as f64);
            let is_trusted = !is_announced && !entrant.subject.name.ends_with(UNTRUSTED);
            record = record.with(key::DIRTY_PAGES, pages).with(key::TRUSTED, is_trusted);
        }
        if !self.left_out.is_empty() {
            record = record.with(key::LEFT_OUT, self.left_out.join(", "));
        }
        remarks.on(record)
    }
}

/// Whether haul chooses with a table that was measured on this machine. Drivers read the same
/// file as this process.
fn has_table() -> bool {
    let force = haul_machine::tuning::in_force();
    matches!(force, Some(Force::File { tuning, .. }) if !tuning.channel.choices.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several attempts, the third of which is good.
    fn tried(tries: u32) -> Result<(u32, u32), ()> {
        let mut last = 0;
        let once = || {
            last += 1;
            Ok(last)
        };
        until_good(tries, once, |number| *number >= 3)
    }

    #[test]
    fn disturbed_run_is_repeated_and_last_attempt_counts() {
        assert_eq!(tried(0), Ok((1, 1)));
        assert_eq!(tried(1), Ok((1, 1)));
        assert_eq!(tried(2), Ok((2, 2)));
        assert_eq!(tried(5), Ok((3, 3)));
        assert_eq!(until_good(3, || Err::<u32, _>("no"), |_| false), Err("no"));
    }
}
