//! Submission, latency, throughput and overlap of copies of one size.
//!
//! In every round each subject does the same in a new random order. The baseline is `inline`, the
//! CPU itself; the last entrant is the baseline again, which gives the noise floor.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_measure::Caches;
use haul_measure::disturbance::Watch;
use haul_measure::rounds::{self, Limits, Next, Order, Round, evaluate};
use haul_model::experiment::{key, name};
use haul_model::{Record, statistics};

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
    /// The time of computing and copying together.
    both: f64,
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
        let mut all: Vec<Vec<Figures>> = Vec::new();
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
                let mut round = vec![Figures::default(); entrants];
                for entrant in order.draw() {
                    round[entrant] = memory.round(&mut copiers[entrant], turns);
                }
                all.push(round);
                let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
                Ok::<_, Error>(if stopped { Next::Last } else { Next::Round })
            },
            |context, progress| context.report_progress(&name, progress),
        );
        done?;
        self.emit(context, &all, memory.alone);
        Ok(())
    }
}

impl Bench {
    fn emit(&self, context: &mut Context<'_>, all: &[Vec<Figures>], alone: f64) {
        let bytes = self.size as f64;
        self.record(context, all, name::ENGINE_SUBMIT, "time", "s", |figures| figures.submit);
        self.record(context, all, name::ENGINE_LATENCY, "time", "s", |figures| figures.latency);
        let rate = |figures: &Figures| bytes / figures.throughput;
        self.record(context, all, name::ENGINE_THROUGHPUT, "throughput", "bytes/s", rate);
        // The copy alone is the baseline's time of this run, and computing was calibrated to take
        // as long as `alone`.
        let copy = median(&all.iter().map(|round| round[0].latency).collect::<Vec<_>>());
        let hidden = |figures: &Figures| ((alone + copy - figures.both) / copy).clamp(0.0, 1.0);
        self.record(context, all, name::ENGINE_OVERLAP, "share", "share", hidden);
    }

    /// Emits a record for each subject, compared with the first one in time.
    fn record(
        &self,
        context: &mut Context<'_>,
        all: &[Vec<Figures>],
        experiment: &str,
        metric: &str,
        unit: &str,
        of: impl Fn(&Figures) -> f64,
    ) {
        let is_time = unit == "s";
        let round =
            |round: &Vec<Figures>| Round { values: round.iter().map(&of).collect(), hit: false };
        let rounds: Vec<Round> = all.iter().map(round).collect();
        let names: Vec<String> = self.subjects.iter().map(|s| s.name().to_owned()).collect();
        let evaluation = evaluate(&rounds, &names, 0, 1);
        for (number, subject) in names.iter().enumerate() {
            let mut record = Record::new("", experiment, subject, metric, unit)
                .with(key::SIZE_BYTES, self.size as u64);
            record.samples.clone_from(&evaluation.series[number]);
            record.comparison = evaluation.comparisons[number].clone().filter(|_| is_time);
            context.emit(record);
        }
    }
}

/// The source, and targets that the copies of a round write.
struct Memory {
    source: Arc<[u8]>,
    targets: Vec<Vec<u8>>,
    /// The seconds that computing takes.
    alone: f64,
}

impl Memory {
    fn new(size: usize) -> Self {
        let source: Arc<[u8]> = (0..size).map(|at| at as u8).collect();
        let count = (PENDING_MAX / size.max(1)).clamp(1, DEPTH);
        Self { source, targets: vec![vec![1; size]; count], alone: 0.0 }
    }

    /// The turns of computing that take as long as a copy of the baseline.
    fn calibrate(&mut self, baseline: &mut Copier) -> u64 {
        let copies: Vec<f64> = (0..9).map(|_| self.latency(baseline)).collect();
        let copy = median(&copies);
        let mut turns = 100;
        loop {
            let times: Vec<f64> = (0..5).map(|_| seconds(|| compute(turns))).collect();
            self.alone = median(&times);
            if self.alone >= copy {
                return turns;
            }
            turns += turns / 4;
        }
    }

    fn round(&mut self, copier: &mut Copier, turns: u64) -> Figures {
        let latency = self.latency(copier);
        let (submit, throughput) = self.many(copier);
        let both = self.both(copier, turns);
        Figures { submit, latency, throughput, both }
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
/// caller less than a copy: in each larger size too, it hides more of the copy than it adds.
#[must_use]
pub fn break_even(records: &[Record]) -> Vec<Record> {
    let of_overlap = records.iter().filter(|record| record.experiment == name::ENGINE_OVERLAP);
    let mut shares: Vec<(String, u64, f64)> = of_overlap
        .filter_map(|record| {
            let size = record.parameters.get(key::SIZE_BYTES)?.as_u64()?;
            Some((record.subject.clone(), size, median(&record.samples)))
        })
        .collect();
    shares.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut found: Vec<Record> = Vec::new();
    for of_subject in shares.chunk_by(|a, b| a.0 == b.0) {
        let subject = &of_subject[0].0;
        let gains = of_subject.iter().rev().take_while(|(_, _, share)| *share > 0.0);
        let Some((_, size, _)) = gains.last().filter(|_| subject != Subject::Inline.name()) else {
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
            assert!(!record.samples.is_empty() && record.samples.iter().all(|s| *s >= 0.0));
            let is_share = record.experiment == name::ENGINE_OVERLAP;
            assert!(is_share || record.samples.iter().all(|sample| *sample > 0.0));
        }
        // What does not copy beside the CPU hides next to nothing.
        let of_inline = |record: &&Record| {
            record.experiment == name::ENGINE_OVERLAP && record.subject == "inline"
        };
        let inline = records.iter().find(of_inline).unwrap();
        assert!(median(&inline.samples) < 0.5, "{inline:?}");
    }

    #[test]
    fn break_even_is_the_size_from_which_all_gain() {
        let record = |subject: &str, size: u64, share: f64| {
            let mut record = Record::new("", name::ENGINE_OVERLAP, subject, "share", "share")
                .with(key::SIZE_BYTES, size);
            record.samples = vec![share];
            record
        };
        let records = [
            record("worker", 64, 0.1),
            record("worker", 4096, 0.0),
            record("worker", 65_536, 0.5),
            record("worker", 1 << 20, 0.9),
            record("auto", 4096, 0.0),
            record("inline", 4096, 0.3),
        ];
        let found = break_even(&records);
        assert_eq!((found.len(), found[0].samples[0]), (1, 65_536.0));
    }
}
