//! A run: subjects alternate in short samples, and the baseline also competes with itself.
//!
//! ```text
//! calibrate    how many iterations make a sample of the wanted length
//! each round   shuffle the subjects, the baseline twice among them; one sample of each
//! each subject ratios = its samples / the baseline's, round by round
//!              median of the ratios, and its 95% bootstrap interval
//! floor        how far from 1 that interval reaches for the baseline against itself
//! stop         at the budget, or when all intervals are as narrow as asked, or when stopped
//! ```
//!
//! Rounds in which the kernel preempted a thread within a sample also measured another process.
//! Such rounds are left out unless they are at least half of all rounds, or too few other rounds
//! remain. If they are not left out, the run reports that, and their samples count the thread's
//! CPU time, not the elapsed time. Samples that are too short for the timer's precision are
//! refused.
//!
//! From the bottom up:
//!
//! - `calibration`: the number of iterations per sample;
//! - `best`: how much slower a subject is than the best of the others.

pub mod best;
mod calibration;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_model::Comparison;

use crate::account::Account;
use crate::clock::Clock;
use crate::crew::{self, Crew, Meeting};
use crate::disturbance::{Noticed, Watch};
use crate::error::Error;
use crate::rounds::evaluation::{self, evaluate};
use crate::rounds::{self, Limits, Next, Order, Progress, Round};
use crate::sample::Sample;
use crate::sys;

/// A sample lasts at least this many times the timer's precision.
pub const PRECISION_MULTIPLE: f64 = 1000.0;

/// The untimed part before a sample has the length of the sample divided by this number. This
/// part warms up the subject's code and the predictors.
pub const LEAD_IN_DIVISOR: u64 = 8;

/// The least interval between two calls of the progress callback.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// A measured function.
pub trait Subject: Sync {
    /// The subject's name in records.
    fn name(&self) -> &str;

    /// Executes the operation `iterations` times. `thread` counts from 0; each thread makes its own
    /// call.
    fn run(&self, thread: usize, iterations: u64);

    /// Called before each sample of `iterations`, outside of the timed part. The number of the
    /// round is the same for all subjects of the round. This call warms up caches and predictors;
    /// the default runs an eighth of the sample.
    fn prepare(&self, thread: usize, round: u64, iterations: u64) {
        let _ = round;
        if iterations >= LEAD_IN_DIVISOR {
            self.run(thread, iterations / LEAD_IN_DIVISOR);
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The intended duration of a sample.
    pub sample: Duration,
    /// The budget of the run, calibration included.
    pub budget: Duration,
    /// The number of rounds that are measured even if the budget is exceeded.
    pub rounds_min: usize,
    /// The number of rounds after which the run ends in any case.
    pub rounds_max: usize,
    /// A sample's iterations are a multiple of this: of the operations of a whole list, for
    /// example.
    pub iterations_multiple: u64,
    /// The most iterations of a sample, for operations that consume something such as memory.
    pub iterations_max: u64,
    /// Ends the run early when every ratio's interval is this narrow (half of its width, as a share
    /// of the ratio).
    pub precision: Option<f64>,
    /// The number of threads that run each subject at the same time.
    pub threads: usize,
    /// The CPUs to which the threads are pinned; if empty, the CPUs that this process may use.
    pub cpus: Vec<usize>,
    /// The seed of the order of subjects and of the bootstrap.
    pub seed: u64,
}

impl Default for Sampling {
    /// Samples of 300 us (long compared with the timer, short compared with a scheduler's tick of 1
    /// to 10 ms, so that most samples contain no other process), for one second, on one thread.
    fn default() -> Self {
        Self {
            sample: Duration::from_micros(300),
            budget: Duration::from_secs(1),
            rounds_min: 15,
            rounds_max: 5000,
            iterations_multiple: 1,
            iterations_max: 1 << 40,
            precision: None,
            threads: 1,
            cpus: Vec::new(),
            seed: 0x6861_756c,
        }
    }
}

/// The caller's control of a run.
pub struct Control<'a> {
    /// If this flag is set (on Ctrl-C, for example), the run ends after its current sample, with
    /// the rounds measured so far.
    pub stop: &'a AtomicBool,
    /// Called between rounds, at most 20 times a second.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One outcome per subject, in the order of the subjects.
    pub subjects: Vec<SubjectOutcome>,
    /// The index of the baseline.
    pub baseline: usize,
    /// The baseline's second series, in nanoseconds per operation.
    pub baseline_again_ns: Vec<f64>,
    /// The noise floor; `None` without a round.
    pub floor: Option<f64>,
    /// The number of rounds in the figures.
    pub rounds: usize,
    /// The number of rounds that were left out because another process ran in them.
    pub rounds_discarded: usize,
    /// Whether the caller stopped the run.
    pub stopped: bool,
    /// The machine's disturbances.
    pub noticed: Noticed,
}

/// The result of a run for one subject.
#[derive(Clone, Debug)]
pub struct SubjectOutcome {
    /// The subject's name.
    pub name: String,
    /// Nanoseconds per operation, one sample per round; the mean over threads.
    pub samples_ns: Vec<f64>,
    /// The number of operations of a sample on each thread.
    pub iterations: u64,
    /// The comparison with the baseline (for the baseline: with its second series). `None` without
    /// a round.
    pub comparison: Option<Comparison>,
    /// The subject's resource use other than time.
    pub account: Account,
}

/// One sample: the entrant, its iterations, and the round.
#[derive(Clone, Copy, Debug)]
struct Command {
    entrant: usize,
    iterations: u64,
    round: u64,
}

/// The state of a run. The entrants are the subjects and, as the last entrant, the baseline a
/// second time.
struct Run<'a> {
    names: Vec<String>,
    baseline: usize,
    sampling: &'a Sampling,
    clock: Clock,
    crew: &'a Crew<'a, Command, Sample>,
    accounts: Vec<Account>,
    iterations: Vec<u64>,
    rounds: Vec<Round>,
    started: Instant,
}

/// Measures the subjects against `subjects[baseline]`, interleaved. Takes the sampling's budget,
/// or the time of `rounds_min` rounds if that is longer, on `sampling.threads` threads, including
/// the calling thread.
///
/// # Errors
/// The sampling has no subject, thread or round; a subject panics; a sample remains too short for
/// the timer within `iterations_max`; a thread cannot be started.
///
/// # Panics
/// `baseline` is not an index of `subjects`.
pub fn run(
    subjects: &[&dyn Subject],
    baseline: usize,
    sampling: &Sampling,
    control: &mut Control<'_>,
) -> Result<Outcome, Error> {
    for (what, value) in [("subjects", subjects.len()), ("rounds", sampling.rounds_max)] {
        if value == 0 {
            return Err(Error::Sampling { what, value: 0, limit: 1 });
        }
    }
    assert!(
        baseline < subjects.len(),
        "baseline {baseline} is not among {} subjects",
        subjects.len()
    );
    let started = Instant::now();
    let clock = Clock::get();
    let mut entrants = subjects.to_vec();
    entrants.push(subjects[baseline]);
    let cpus = if sampling.cpus.is_empty() { sys::affinity() } else { sampling.cpus.clone() };
    let work = |thread: usize, command: &Command, meeting: &Meeting<'_>| {
        take_sample(entrants[command.entrant], thread, command, meeting, &clock)
    };
    crew::with_crew(sampling.threads, &cpus, &work, |crew, disturbances| {
        let mut run = Run {
            names: entrants.iter().map(|entrant| entrant.name().to_owned()).collect(),
            baseline,
            sampling,
            clock,
            crew,
            accounts: vec![Account::default(); entrants.len()],
            iterations: vec![1; entrants.len()],
            rounds: Vec::new(),
            started,
        };
        let mut noticed = run.measure(control)?;
        noticed.disturbances.splice(0..0, disturbances);
        Ok(run.outcome(control.stop.load(Ordering::Relaxed), noticed))
    })?
}

/// One thread's part of a sample: untimed preparation, then all threads start together.
fn take_sample(
    subject: &dyn Subject,
    thread: usize,
    command: &Command,
    meeting: &Meeting<'_>,
    clock: &Clock,
) -> Sample {
    subject.prepare(thread, command.round, command.iterations);
    meeting.wait();
    Sample::of(clock, || subject.run(thread, command.iterations)).0
}

impl Run<'_> {
    fn measure(&mut self, control: &mut Control<'_>) -> Result<Noticed, Error> {
        let mut watch = Watch::start(Sys::new());
        if !self.calibrate(control.stop)? {
            return Ok(watch.finish());
        }
        let mut order = Order::new(0..self.names.len(), self.sampling.seed);
        let mut check_at = self.sampling.rounds_min.max(evaluation::ROUNDS_FOR_AN_INTERVAL);
        let limits = Limits {
            budget: self.sampling.budget,
            started: self.started,
            least: self.sampling.rounds_min,
            most: self.sampling.rounds_max,
        };
        let stop = control.stop;
        let round = |run: &mut Self, _| {
            let Some(round) = run.round(&order.draw(), stop)? else { return Ok(Next::Stopped) };
            run.rounds.push(round);
            Ok(run.next(&mut check_at))
        };
        let mut reported = Instant::now();
        let after = |_: &mut Self, progress| {
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                (control.progress)(progress);
            }
        };
        let (_, ended) = rounds::repeat(limits, &mut watch, self, round, after);
        ended.map(|()| watch.finish())
    }

    /// Whether the run continues, or ends because its ratios are precise enough.
    fn next(&self, check_at: &mut usize) -> Next {
        let Some(precision) = self.sampling.precision.filter(|_| self.rounds.len() >= *check_at)
        else {
            return Next::Round;
        };
        *check_at += *check_at / 3;
        match evaluation::is_precise(&self.rounds, self.baseline, precision, self.sampling.seed) {
            true => Next::Last,
            false => Next::Round,
        }
    }

    /// One sample of each entrant in this order; `None` if the run is stopped before it has all
    /// samples.
    fn round(&mut self, order: &[usize], stop: &AtomicBool) -> Result<Option<Round>, Error> {
        let mut round = Round { values: vec![0.0; order.len()], hit: false };
        let number = self.rounds.len() as u64;
        for &entrant in order {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let iterations = self.iterations[entrant];
            let samples = self.sample(Command { entrant, iterations, round: number })?;
            for sample in &samples {
                self.accounts[entrant].add(sample.before, sample.after, iterations);
                round.hit |= sample.is_hit();
            }
            let ns = samples.iter().map(Sample::own_ns).sum::<f64>() / samples.len() as f64;
            round.values[entrant] = ns / iterations as f64;
        }
        Ok(Some(round))
    }

    fn sample(&self, command: Command) -> Result<Vec<Sample>, Error> {
        self.crew.together(&command).map_err(|panic| Error::Panicked {
            subject: self.names[command.entrant].clone(),
            thread: panic.thread,
            message: panic.message,
        })
    }

    fn outcome(self, stopped: bool, mut noticed: Noticed) -> Outcome {
        let again = self.names.len() - 1;
        let names = &self.names[..again];
        let mut found = evaluate(&self.rounds, names, self.baseline, self.sampling.seed);
        noticed.disturbances.extend(found.disturbance);
        let baseline_again_ns = found.series.pop().unwrap_or_default();
        let figures = found.series.into_iter().zip(found.comparisons);
        let subjects = figures
            .enumerate()
            .map(|(index, (samples_ns, comparison))| SubjectOutcome {
                name: names[index].clone(),
                samples_ns,
                iterations: self.iterations[index],
                comparison,
                account: self.accounts[index],
            })
            .collect();
        Outcome {
            subjects,
            baseline: self.baseline,
            baseline_again_ns,
            floor: found.floor,
            rounds: found.rounds,
            rounds_discarded: found.rounds_discarded,
            stopped,
            noticed,
        }
    }
}

fn mean_ns(samples: &[Sample]) -> f64 {
    samples.iter().map(|sample| sample.ns).sum::<f64>() / samples.len() as f64
}
