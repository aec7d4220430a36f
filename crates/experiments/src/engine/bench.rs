//! Submission, latency, throughput and overlap of copies of one size.
//!
//! In every round each subject does the same in a new random order. The baseline is `inline`, the
//! CPU itself; the last entrant is the baseline again, which gives the noise floor. A round in
//! which the kernel preempted a thread of this process is marked.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_measure::disturbance::Watch;
use haul_measure::rounds::{self, Evaluation, Limits, Next, Order, Round, evaluate};
use haul_measure::{Caches, sys};
use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::statistics::{self, median_interval};

use super::subject::{Copier, Subject};
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL};

/// The number of copies that are pending at a time.
const DEPTH: usize = 8;
/// The most bytes that are pending at a time.
const PENDING_MAX: usize = 32 << 20;

/// Copies of one size by several subjects.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The size of a copy in bytes.
    pub size: usize,
    /// The subjects; the first one is the baseline.
    pub subjects: Vec<Subject>,
    /// The time of the rounds.
    pub budget: Duration,
}

/// The figures of one subject in one round, in seconds, but for the share.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    submit: f64,
    latency: f64,
    throughput: f64,
    /// The time of computing without a copy.
    alone: f64,
    /// The time of computing and copying together.
    both: f64,
}

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
        format!("engine {} B", self.size)
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut copiers = Vec::new();
        for subject in self.subjects.iter().chain(self.subjects.first()) {
            copiers.push(subject.open()?);
        }
        let mut memory = Memory::new(self.size);
        let turns = memory.calibrate(&mut copiers[0]);
        let entrants = copiers.len();
        let mut all: Vec<Measured> = Vec::new();
        let mut order = Order::new(0..entrants, 1);
        let (budget, started) = (self.budget, Instant::now());
        let limits = Limits { budget, started, least: 5, most: 2000 };
        let mut watch = Watch::start(haul_machine::sys::Sys::new());
        let (name, stop) = (self.name(), context.stop);
        let (_, done) = rounds::repeat(
            limits,
            &mut watch,
            context,
            |_, _| {
                let mut figures = vec![Figures::default(); entrants];
                let before = sys::usage_process().switches_involuntary;
                for entrant in order.draw() {
                    figures[entrant] = memory.round(&mut copiers[entrant], turns);
                }
                let hit = sys::usage_process().switches_involuntary > before;
                all.push(Measured { figures, hit });
                let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
                Ok::<_, Error>(if stopped { Next::Last } else { Next::Round })
            },
            |context, progress| context.report_progress(&name, progress),
        );
        done?;
        self.emit(context, &all);
        Ok(())
    }
}

impl Bench {
    fn emit(&self, context: &mut Context<'_>, all: &[Measured]) {
        let bytes = self.size as f64;
        let evaluated = |of: fn(&Figures) -> f64| {
            self.evaluate(&all.iter().map(|round| round.round(of)).collect::<Vec<_>>())
        };
        let times: [(_, fn(&Figures) -> f64); 2] = [
            (name::ENGINE_SUBMIT, |figures| figures.submit),
            (name::ENGINE_LATENCY, |figures| figures.latency),
        ];
        for (experiment, time) in times {
            let evaluation = evaluated(time);
            let records = self.records(&evaluation, experiment, "time", "s");
            for (mut record, comparison) in records.into_iter().zip(evaluation.comparisons) {
                record.comparison = comparison;
                context.emit(record);
            }
        }
        let mut rates = evaluated(|figures| figures.throughput);
        rates.series.iter_mut().flatten().for_each(|time| *time = bytes / *time);
        for record in self.records(&rates, name::ENGINE_THROUGHPUT, "throughput", "bytes/s") {
            context.emit(record);
        }
        let shares = self.evaluate(&all.iter().map(Measured::shares).collect::<Vec<_>>());
        let floor = share_floor(&shares);
        for record in self.records(&shares, name::ENGINE_OVERLAP, "share", "share") {
            context.emit(record.with(key::SHARE_FLOOR, floor));
        }
    }

    fn names(&self) -> Vec<String> {
        self.subjects.iter().map(|subject| subject.name().to_owned()).collect()
    }

    fn evaluate(&self, rounds: &[Round]) -> Evaluation {
        evaluate(rounds, &self.names(), 0, 1)
    }

    /// A record for each subject, without a comparison.
    fn records(
        &self,
        evaluation: &Evaluation,
        experiment: &str,
        metric: &str,
        unit: &str,
    ) -> Vec<Record> {
        let names = self.names();
        let record = |(subject, samples): (&String, &Vec<f64>)| {
            let mut record = Record::new("", experiment, subject, metric, unit)
                .with(key::SIZE_BYTES, self.size as u64);
            record.samples.clone_from(samples);
            record
        };
        names.iter().zip(&evaluation.series).map(record).collect()
    }
}

/// The share that the baseline seems to hide, which hides nothing: the higher end of the intervals
/// of both its entrants' medians.
fn share_floor(evaluation: &Evaluation) -> f64 {
    let both = [evaluation.series.first(), evaluation.series.last()].into_iter().flatten();
    let high = |series: &Vec<f64>| median_interval(series).map_or(median(series), |it| it[1]);
    both.map(high).fold(0.0, f64::max)
}

/// The source, and targets that the copies of a round write.
struct Memory {
    source: Arc<[u8]>,
    targets: Vec<Vec<u8>>,
}

impl Memory {
    fn new(size: usize) -> Self {
        let source: Arc<[u8]> = (0..size).map(|at| at as u8).collect();
        let count = (PENDING_MAX / size.max(1)).clamp(1, DEPTH);
        Self { source, targets: vec![vec![1; size]; count] }
    }

    /// The turns of computing that take as long as a copy of the baseline.
    fn calibrate(&mut self, baseline: &mut Copier) -> u64 {
        let copies: Vec<f64> = (0..9).map(|_| self.latency(baseline)).collect();
        let copy = median(&copies);
        let mut turns = 100;
        loop {
            let times: Vec<f64> = (0..5).map(|_| seconds(|| compute(turns))).collect();
            if median(&times) >= copy {
                return turns;
            }
            turns += turns / 4;
        }
    }

    fn round(&mut self, copier: &mut Copier, turns: u64) -> Figures {
        let latency = self.latency(copier);
        let (submit, throughput) = self.many(copier);
        let alone = seconds(|| compute(turns));
        let both = self.both(copier, turns);
        Figures { submit, latency, throughput, alone, both }
    }

    /// One copy, after which the helper thread polls.
    fn awake(&mut self, copier: &mut Copier) {
        let target = self.targets.pop().unwrap_or_default();
        let started = copier.submit(target, &self.source);
        let target = copier.watch(started);
        self.targets.push(target);
    }

    /// The seconds of a copy that is submitted and waited for at once.
    fn latency(&mut self, copier: &mut Copier) -> f64 {
        self.awake(copier);
        let target = self.targets.pop().unwrap_or_default();
        let begun = Instant::now();
        let started = copier.submit(target, &self.source);
        let target = copier.wait(started);
        let elapsed = begun.elapsed().as_secs_f64();
        self.targets.push(target);
        elapsed
    }

    /// The seconds of a submission, and of a copy, when several are pending. The engine alone
    /// copies.
    fn many(&mut self, copier: &mut Copier) -> (f64, f64) {
        self.awake(copier);
        let targets = std::mem::take(&mut self.targets);
        let count = targets.len() as f64;
        let mut pending = Vec::with_capacity(targets.len());
        let begun = Instant::now();
        for target in targets {
            pending.push(copier.submit(target, &self.source));
        }
        let submitted = begun.elapsed().as_secs_f64();
        if let Some(last) = pending.last() {
            while !copier.is_done(last) {
                std::hint::spin_loop();
            }
        }
        let copied = begun.elapsed().as_secs_f64();
        self.targets = pending.into_iter().map(|started| copier.watch(started)).collect();
        (submitted / count, copied / count)
    }

    /// The seconds of a copy with computing meanwhile.
    fn both(&mut self, copier: &mut Copier, turns: u64) -> f64 {
        self.awake(copier);
        let target = self.targets.pop().unwrap_or_default();
        let begun = Instant::now();
        let started = copier.submit(target, &self.source);
        compute(turns);
        let target = copier.watch(started);
        let elapsed = begun.elapsed().as_secs_f64();
        self.targets.push(target);
        elapsed
    }
}

/// Computes in registers.
fn compute(turns: u64) {
    let mut state = black_box(88_172_645_463_325_252_u64);
    for _ in 0..turns {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The median; 0 without a sample.
fn median(samples: &[f64]) -> f64 {
    statistics::median(samples).unwrap_or(0.0)
}

fn seconds(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}

/// For each subject but the baseline, the smallest measured size from which on an engine costs its
/// caller less than a copy: in each larger size too, the interval of its median share lies above
/// what both entrants of the baseline seem to hide. None for a subject that never does.
#[must_use]
pub fn break_even(records: &[Record]) -> Vec<Record> {
    let of_overlap = records.iter().filter(|record| record.experiment == name::ENGINE_OVERLAP);
    let mut gains: Vec<(&str, u64, bool)> = of_overlap
        .filter_map(|record| {
            let size = record.parameters.get(key::SIZE_BYTES)?.as_u64()?;
            let floor = record.parameters.get(key::SHARE_FLOOR)?.as_f64()?;
            let low = median_interval(&record.samples).map(|interval| interval[0]);
            Some((&record.subject[..], size, low.is_some_and(|low| low > floor)))
        })
        .collect();
    gains.sort_unstable();
    let mut found: Vec<Record> = Vec::new();
    for of_subject in gains.chunk_by(|a, b| a.0 == b.0) {
        let subject = of_subject[0].0;
        let last = of_subject.iter().rev().take_while(|(.., gains)| *gains).last();
        let Some((_, size, _)) = last.filter(|_| subject != Subject::Inline.name()) else {
            continue;
        };
        let mut record = Record::new("", name::ENGINE_BREAK_EVEN, subject, "size", "bytes");
        record.samples = vec![*size as f64];
        found.push(record);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::measured;

    #[test]
    fn bench_emits_every_figure_of_every_subject() {
        let (size, budget) = (64 << 10, Duration::from_millis(100));
        let bench = Bench { size, subjects: Subject::ALL.to_vec(), budget };
        let (done, records, _) = measured(Vec::new(), |context| bench.measure(context));
        done.unwrap();
        assert_eq!(records.len(), 4 * Subject::ALL.len());
        for record in &records {
            assert!(!record.samples.is_empty() && record.samples.iter().all(|s| s.is_finite()));
            let is_share = record.experiment == name::ENGINE_OVERLAP;
            assert!(is_share || record.samples.iter().all(|sample| *sample > 0.0));
            assert_eq!(is_share, record.parameters.contains_key(key::SHARE_FLOOR));
        }
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
        let bench = Bench { size: 1, subjects: Subject::ALL.to_vec(), budget: Duration::ZERO };
        let shares =
            |inline, again| Round { values: vec![inline, 9.0, 9.0, 9.0, again], hit: false };
        let rounds = [shares(-0.1, 0.2), shares(0.1, -0.2), shares(0.0, 0.0)];
        assert_eq!(share_floor(&bench.evaluate(&rounds)), 0.2);
    }

    #[test]
    fn break_even_is_the_size_from_which_all_gain_more_than_the_baseline() {
        let record = |subject: &str, size: u64, low: f64, floor: f64| {
            let mut record = Record::new("", name::ENGINE_OVERLAP, subject, "share", "share")
                .with(key::SIZE_BYTES, size)
                .with(key::SHARE_FLOOR, floor);
            record.samples = vec![low, low + 0.1, low + 0.2];
            record
        };
        let records = [
            record("worker", 64, 0.1, 0.05),
            record("worker", 4096, 0.2, 0.25),
            record("worker", 65_536, 0.5, 0.25),
            record("worker", 1 << 20, 0.9, 0.1),
            record("auto", 4096, 0.3, 0.3),
            record("inline", 4096, 0.3, 0.1),
        ];
        let found = break_even(&records);
        assert_eq!((found.len(), found[0].samples[0]), (1, 65_536.0));
    }
}
