//! Submission, latency, throughput and overlap of copies of one size.
//!
//! In every round each subject does the same in a new random order. The baseline is `copy`, a call
//! of haul's copy; the last entrant is the baseline again, which gives the noise floor. A round in
//! which the kernel preempted a thread of this process is marked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_measure::disturbance::{Noticed, Watch};
use haul_measure::rounds::{self, Evaluation, Limits, Next, Order, Round, evaluate};
use haul_measure::{Caches, sys};
use haul_model::experiment::{key, name};
use haul_model::statistics::median_interval;
use haul_model::{RatioOf, Record};

use super::copier::Copier;
use super::memory::{Figures, Memory, median};
use super::place::Place;
use super::subject::Subject;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL, nanoseconds};
use crate::remarks::Remarks;

/// Copies of one size by several subjects.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The size of a copy in bytes.
    pub size: usize,
    /// How many submissions are pending at a time. Large copies are pending in smaller numbers.
    pub depth: usize,
    /// How many copies are submitted together: as one operation by haul's engines, one after the
    /// other by others.
    pub batch: usize,
    /// Whether only the figures are measured that depend on depth and batch: submission, completion
    /// and throughput.
    pub is_only_pending: bool,
    /// The subjects; the first one is the baseline.
    pub subjects: Vec<Subject>,
    /// Whether another thread keeps the last processor busy.
    pub is_busy: bool,
    /// The time of the rounds.
    pub budget: Duration,
}

impl Bench {
    /// The number of submissions that are pending at a time, if nothing else is asked for.
    pub const DEPTH: usize = 8;
    /// The largest number of copies that are pending at a time.
    pub const PENDING_MAX: usize = 4096;
}

/// One of the figures.
type Figure = fn(&Figures) -> f64;

/// One round.
#[derive(Clone, Debug)]
struct Measured {
    /// One for each entrant.
    figures: Vec<Figures>,
    /// Whether the kernel preempted a thread of this process.
    hit: bool,
}

impl Measured {
    /// The values of the entrants for the evaluation.
    fn round(&self, of: impl Fn(&Figures) -> f64) -> Round {
        Round { values: self.figures.iter().map(of).collect(), hit: self.hit }
    }

    /// The share of a copy that each entrant hides behind computing, in this round alone. The time
    /// of a copy is the mean of both entrants of the baseline. A share is below 0 if the entrant
    /// costs more than a copy of the baseline, and noise can raise it above 1.
    fn shares(&self) -> Round {
        let copies = [self.figures.first(), self.figures.last()].into_iter().flatten();
        let copy = copies.map(|figures| figures.latency).sum::<f64>() / 2.0;
        self.round(|figures| hidden(figures.alone, copy, figures.both))
    }
}

/// The share of a copy that is hidden if computing takes `alone`, a copy takes `copy` and both
/// together take `both`.
fn hidden(alone: f64, copy: f64, both: f64) -> f64 {
    (alone + copy - both) / copy
}

impl Experiment for Bench {
    fn name(&self) -> String {
        let busy = if self.is_busy { ", one processor busy" } else { "" };
        format!("engine {} B, depth {}, batch {}{busy}", self.size, self.depth, self.batch)
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        /// Copies of a size before the rounds, with the faults of their pages, in ns per byte.
        const PREPARED: f64 = 20.0;
        SMALL + nanoseconds(PREPARED, self.size)
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut copiers = Vec::new();
        for subject in self.subjects.iter().chain(self.subjects.first()) {
            copiers.push(Copier::open(*subject)?);
        }
        let mut memory = Memory::new(self.size, self.depth, self.batch);
        let mut watch = Watch::start(haul_machine::sys::Sys::new());
        let place = Place::new(self.is_busy);
        let all = self.rounds(context, &mut copiers, &mut memory, &mut watch)?;
        drop(place);
        for (subject, copier) in self.subjects.iter().zip(&mut copiers) {
            if let Some(wrong) = memory.wrong_byte(copier)? {
                return Err(self.wrong(*subject, wrong));
            }
        }
        let noticed = watch.finish();
        self.emit(context, &all, &copiers, &noticed, memory.depth());
        Ok(())
    }
}

impl Bench {
    fn rounds(
        &self,
        context: &mut Context<'_>,
        copiers: &mut [Copier],
        memory: &mut Memory,
        watch: &mut Watch,
    ) -> Result<Vec<Measured>, Error> {
        let turns = (!self.is_only_pending).then(|| memory.calibrate());
        let mut all: Vec<Measured> = Vec::new();
        let mut order = Order::new(0..copiers.len(), 1);
        let limits = Limits { budget: self.budget, started: Instant::now(), least: 5, most: 2000 };
        let (name, stop) = (self.name(), context.stop);
        let (_, done) = rounds::repeat(
            limits,
            watch,
            context,
            |_, _| {
                let mut figures = vec![Figures::default(); copiers.len()];
                let before = sys::usage_process().switches_involuntary;
                for entrant in order.draw() {
                    figures[entrant] = memory.round(&mut copiers[entrant], turns)?;
                }
                // With a busy processor, the other thread is part of the measured conditions.
                let hit = !self.is_busy && sys::usage_process().switches_involuntary > before;
                all.push(Measured { figures, hit });
                let stopped = stop.load(Ordering::Relaxed);
                Ok::<_, Error>(if stopped { Next::Last } else { Next::Round })
            },
            |context, progress| context.report_progress(&name, progress),
        );
        done.map(|()| all)
    }

    fn wrong(&self, subject: Subject, (index, found, expected): (usize, u8, u8)) -> Error {
        Error::WrongBytes {
            subject: subject.name().to_owned(),
            function: "copy",
            size_bytes: self.size,
            index: index as isize,
            found,
            expected,
        }
    }

    fn emit(
        &self,
        context: &mut Context<'_>,
        all: &[Measured],
        copiers: &[Copier],
        noticed: &Noticed,
        depth: usize,
    ) {
        let remarks = Remarks::new(&[], noticed);
        let bytes = self.size as f64;
        let times: [(_, Figure); 5] = [
            (name::ENGINE_SUBMIT, |figures| figures.submit),
            (name::ENGINE_COMPLETE, |figures| figures.complete),
            (name::ENGINE_LATENCY, |figures| figures.latency),
            (name::ENGINE_WAKE, |figures| figures.wake),
            (name::ENGINE_WAKE_LATENCY, |figures| figures.wake_latency),
        ];
        let is_asked = |experiment| {
            let of_many = [name::ENGINE_SUBMIT, name::ENGINE_COMPLETE];
            !self.is_only_pending || of_many.contains(&experiment)
        };
        let mut records = Vec::new();
        for (experiment, time) in times.into_iter().filter(|(experiment, _)| is_asked(experiment)) {
            records.extend(self.records(&self.of(all, time), experiment, "time", "s"));
        }
        let mut rates = self.of(all, |figures| figures.throughput);
        rates.series.iter_mut().flatten().for_each(|time| *time = bytes / *time);
        let name = name::ENGINE_THROUGHPUT;
        records.extend(self.records(&rates, name, "throughput", "bytes/s").map(|mut record| {
            record.ratio_of = record.comparison.is_some().then_some(RatioOf::Cost);
            record
        }));
        if !self.is_only_pending {
            records.extend(self.shares(all));
        }
        for record in records {
            let subject = self.subjects.iter().position(|it| it.name() == record.subject);
            let version = subject.and_then(|number| copiers[number].version());
            let record = remarks.on(record).with(key::DEPTH, depth as u64);
            let record = record.with(key::BATCH, self.batch as u64);
            context.emit(match version {
                Some(version) => record.with(key::VERSION, version),
                None => record,
            });
        }
    }

    /// The records of the shares that are hidden, with the processor times.
    fn shares(&self, all: &[Measured]) -> Vec<Record> {
        let mut shares = self.evaluate(&all.iter().map(Measured::shares).collect::<Vec<_>>());
        let floor = share_floor(&shares);
        // A ratio of shares has no meaning: the baseline hides nothing.
        shares.comparisons.iter_mut().for_each(|comparison| *comparison = None);
        let times = self.of(all, |figures| figures.cpu);
        let cpu_ns = times.series.iter().map(|of_subject| (median(of_subject) * 1e9).round());
        let shares = self.records(&shares, name::ENGINE_OVERLAP, "share", "share");
        let with = |(record, cpu_ns): (Record, f64)| {
            record.with(key::SHARE_FLOOR, floor).with(key::CPU_NS, cpu_ns)
        };
        shares.zip(cpu_ns).map(with).collect()
    }

    /// Evaluates a figure.
    fn of(&self, all: &[Measured], figure: Figure) -> Evaluation {
        self.evaluate(&all.iter().map(|round| round.round(figure)).collect::<Vec<_>>())
    }

    fn evaluate(&self, rounds: &[Round]) -> Evaluation {
        let names: Vec<String> = self.subjects.iter().map(|it| it.name().to_owned()).collect();
        evaluate(rounds, &names, 0, 1)
    }

    /// A record for each subject.
    fn records<'a>(
        &'a self,
        evaluation: &'a Evaluation,
        experiment: &'a str,
        metric: &'a str,
        unit: &'a str,
    ) -> impl Iterator<Item = Record> + use<'a> {
        let evaluated = evaluation.series.iter().zip(&evaluation.comparisons);
        self.subjects.iter().zip(evaluated).map(move |(subject, (samples, comparison))| {
            let mut record = Record::new("", experiment, subject.name(), metric, unit)
                .with(key::SIZE_BYTES, self.size as u64)
                .with(key::BUSY_CORE, u8::from(self.is_busy));
            record.samples.clone_from(samples);
            record.comparison.clone_from(comparison);
            record
        })
    }
}

/// The share that the baseline seems to hide, which hides nothing: the higher end of the intervals
/// of both its entrants' medians.
fn share_floor(evaluation: &Evaluation) -> f64 {
    let both = [evaluation.series.first(), evaluation.series.last()].into_iter().flatten();
    let high = |series: &Vec<f64>| median_interval(series).map_or(median(series), |it| it[1]);
    both.map(high).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::measured;

    fn bench(size: usize) -> Bench {
        let (depth, batch, budget) = (Bench::DEPTH, 1, Duration::from_millis(100));
        let (is_only_pending, is_busy) = (false, false);
        Bench { size, depth, batch, is_only_pending, subjects: subjects(), is_busy, budget }
    }

    fn subjects() -> Vec<Subject> {
        let own = [Subject::Copy, Subject::Thread];
        own.into_iter().chain(Subject::ENGINES).collect()
    }

    #[test]
    fn bench_emits_every_figure_of_every_subject() {
        let bench = bench(64 << 10);
        let (done, records, _) = measured(Vec::new(), |context| bench.measure(context));
        done.unwrap();
        assert_eq!(records.len(), 7 * subjects().len());
        for record in &records {
            assert!(!record.samples.is_empty() && record.samples.iter().all(|s| s.is_finite()));
            let is_share = record.experiment == name::ENGINE_OVERLAP;
            assert!(is_share || record.samples.iter().all(|sample| *sample >= 0.0));
            for key in [key::SHARE_FLOOR, key::CPU_NS] {
                assert_eq!(is_share, record.parameters.contains_key(key));
            }
            let is_rate = record.experiment == name::ENGINE_THROUGHPUT;
            assert_eq!(is_rate, record.ratio_of == Some(RatioOf::Cost));
        }
    }

    #[test]
    fn further_depths_and_batches_emit_the_figures_of_pending_copies() {
        let bench = Bench { depth: 3, batch: 4, is_only_pending: true, ..bench(4096) };
        let (done, records, _) = measured(Vec::new(), |context| bench.measure(context));
        done.unwrap();
        let experiments = [name::ENGINE_SUBMIT, name::ENGINE_COMPLETE, name::ENGINE_THROUGHPUT];
        assert_eq!(records.len(), experiments.len() * subjects().len());
        for record in &records {
            assert!(experiments.contains(&record.experiment.as_str()), "{record:?}");
            assert!(record.samples.iter().all(|sample| *sample > 0.0), "{record:?}");
            let of = |key| record.count(key);
            assert_eq!((of(key::DEPTH), of(key::BATCH)), (Some(3), Some(4)));
        }
        // 32 MiB are pending at most.
        assert_eq!(Memory::new(16 << 20, 64, 1).depth(), 2);
    }

    #[test]
    fn share_is_what_the_sum_of_both_times_loses() {
        assert_eq!([8.0, 6.0, 4.0, 10.0].map(|both| hidden(4.0, 4.0, both)), [0.0, 0.5, 1.0, -0.5]);
        let figures = |latency, both| Figures { latency, both, alone: 4.0, ..Figures::default() };
        // The baseline's two entrants take 3 and 5, on average 4; the engine's own latency is not
        // the time of a copy.
        let figures = vec![figures(3.0, 8.0), figures(9.0, 5.0), figures(5.0, 9.0)];
        let round = Measured { figures, hit: true }.shares();
        assert_eq!((round.values, round.hit), (vec![0.0, 0.75, -0.25], true));
    }

    #[test]
    fn floor_is_the_higher_end_of_both_entrants_of_the_baseline() {
        let bench = bench(1);
        let shares =
            |copy, again| Round { values: vec![copy, 9.0, 9.0, 9.0, 9.0, again], hit: false };
        let rounds = [shares(-0.1, 0.2), shares(0.1, -0.2), shares(0.0, 0.0)];
        assert_eq!(share_floor(&bench.evaluate(&rounds)), 0.2);
    }
}
