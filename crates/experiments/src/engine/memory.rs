//! What one subject does in one round, and the buffers of its copies.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_measure::sys;
use haul_model::statistics;

use super::copier::{Call, Copier};
use super::group::{Batches, Each, Groups, OfSeveral, One};
use super::subject::{Copies, Job};
use crate::error::Error;

/// The most bytes that are pending at a time.
const PENDING_MAX: usize = 32 << 20;
/// The bytes of the copies whose latencies are measured together, so that a clock is read rarely.
const LATENCY_BYTES: usize = 64 << 10;
/// The most copies whose latencies are measured together.
const LATENCIES_MAX: usize = 16;
/// The most repetitions in a row of what several figures are measured in, and the time after which
/// none begins. A round sleeps in between, after which code and data are cold and the processor may
/// be slow; a program that copies often is warm. The median of the repetitions counts.
const REPETITIONS_MAX: usize = 9;
const REPETITIONS_FOR: Duration = Duration::from_millis(5);
/// After this time without a copy every thread sleeps that ever does.
const QUIET_AFTER: Duration = Duration::from_micros(500);

/// The figures of one subject in one round, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// The caller's time for a submission while the engine polls.
    pub(super) submit: f64,
    /// The caller's time to take back the buffers of a copy that is done.
    pub(super) complete: f64,
    /// A copy by a caller that waits at once: of haul's engines by `Queue::execute`.
    pub(super) latency: f64,
    /// A copy when several are pending and the engine alone copies.
    pub(super) throughput: f64,
    /// The caller's time for a submission while the engine sleeps.
    pub(super) wake: f64,
    /// The time until that copy is done by the engine alone.
    pub(super) wake_latency: f64,
    /// Computing without a copy.
    pub(super) alone: f64,
    /// Computing and copying together.
    pub(super) both: f64,
    /// The processor time of the process for a copy beside computing, from sleep to sleep, less
    /// that of computing.
    pub(super) cpu: f64,
}

/// The jobs of a round, which share their source.
pub(super) struct Memory {
    jobs: Vec<Job>,
    /// The number of copies that are submitted together.
    batch: usize,
    latencies: usize,
}

/// For each copy: the time of its submission, the time until all are done, that of its completion.
type Phases = [f64; 3];

impl Memory {
    /// `depth` submissions of `batch` copies each, or fewer submissions of large copies.
    pub(super) fn new(size: usize, depth: usize, batch: usize) -> Self {
        let source: Arc<[u8]> = (0..size).map(|at| (at / 3) as u8).collect();
        let count = (PENDING_MAX / (size * batch).max(1)).clamp(1, depth) * batch;
        let job = |_| Job::new(vec![1; size], Arc::clone(&source));
        let latencies = (LATENCY_BYTES / size.max(1)).clamp(1, LATENCIES_MAX);
        Self { jobs: (0..count).map(job).collect(), batch, latencies }
    }

    /// The number of submissions that are pending at a time.
    pub(super) fn depth(&self) -> usize {
        self.jobs.len() / self.batch
    }

    /// The turns of computing that take as long as a copy of the baseline.
    pub(super) fn calibrate(&mut self) -> u64 {
        let copies: Vec<f64> = (0..9).map(|_| self.latency(&mut Call)).collect();
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

    /// One round of a subject. Without `turns`, only the figures of several pending submissions.
    ///
    /// # Errors
    /// A peer does not start again.
    pub(super) fn round(
        &mut self,
        copier: &mut Copier,
        turns: Option<u64>,
    ) -> Result<Figures, Error> {
        copier.resume()?;
        let figures = match copier {
            Copier::Call(call) => self.figures(call, turns),
            Copier::Queue(queue) => self.figures(queue, turns),
            Copier::Thread(thread) => self.figures(thread, turns),
            Copier::Library(library) => self.figures(library, turns),
        };
        copier.pause();
        Ok(figures)
    }

    fn figures<C: Copies>(&mut self, subject: &mut C, turns: Option<u64>) -> Figures {
        let mut figures = Figures::default();
        self.awake(subject);
        let all: Vec<Phases> = repeat(|| self.pending(subject));
        let phase = |of: usize| median(&all.iter().map(|phases| phases[of]).collect::<Vec<_>>());
        (figures.submit, figures.throughput, figures.complete) = (phase(0), phase(1), phase(2));
        let Some(turns) = turns else { return figures };
        figures.latency = median(&repeat(|| self.latency(subject)));
        figures.alone = median(&repeat(|| seconds(|| compute(turns))));
        figures.both = median(&repeat(|| self.both(subject, turns)));
        self.asleep(subject, turns, &mut figures);
        figures
    }

    /// The first byte of a target that differs from the source after a copy into zeros: its
    /// index, the byte, and the source's.
    ///
    /// # Errors
    /// A peer does not start again.
    pub(super) fn wrong_byte(
        &mut self,
        copier: &mut Copier,
    ) -> Result<Option<(usize, u8, u8)>, Error> {
        copier.resume()?;
        let mut job = self.take();
        job.target.fill(0);
        self.jobs.push(job);
        match copier {
            Copier::Call(call) => self.awake(call),
            Copier::Queue(queue) => self.awake(queue),
            Copier::Thread(thread) => self.awake(thread),
            Copier::Library(library) => self.awake(library),
        }
        copier.pause();
        let job = self.take();
        let bytes = job.target.iter().copied().zip(job.source.iter().copied());
        let wrong = bytes.enumerate().find(|(_, (found, expected))| found != expected);
        self.jobs.push(job);
        Ok(wrong.map(|(index, (found, expected))| (index, found, expected)))
    }

    /// Copies of which several are pending, alone or in groups.
    fn pending<C: Copies>(&mut self, subject: &mut C) -> Phases {
        match subject.queue().cloned() {
            _ if self.batch == 1 => self.many(subject),
            Some(queue) => self.groups(&mut Batches(queue)),
            None => self.groups(&mut Each(subject)),
        }
    }

    fn take(&mut self) -> Job {
        self.jobs.pop().expect("every job is put back")
    }

    /// One copy, after which the engine polls.
    fn awake<C: Copies>(&mut self, subject: &mut C) {
        let job = self.take();
        let started = subject.submit(job);
        self.jobs.push(subject.watch(started));
    }

    /// The seconds of a copy by a caller that has nothing else to do.
    fn latency<C: Copies>(&mut self, subject: &mut C) -> f64 {
        let mut job = self.take();
        let begun = Instant::now();
        for _ in 0..self.latencies {
            job = subject.execute(job);
        }
        let elapsed = begun.elapsed().as_secs_f64();
        self.jobs.push(job);
        elapsed / self.latencies as f64
    }

    /// Copies that are submitted one by one.
    fn many<C: Copies>(&mut self, subject: &mut C) -> Phases {
        self.awake(subject);
        let (copies, jobs) = (self.jobs.len(), std::mem::take(&mut self.jobs));
        let (phases, back) = phases(&mut One(subject), jobs, copies);
        self.jobs = back;
        phases
    }

    /// Copies that are submitted together.
    fn groups<G: OfSeveral>(&mut self, subject: &mut G) -> Phases {
        let (copies, mut jobs) = (self.jobs.len(), std::mem::take(&mut self.jobs));
        let mut groups = Vec::new();
        while !jobs.is_empty() {
            groups.push(G::prepare(jobs.split_off(jobs.len() - self.batch)));
        }
        let (phases, back) = phases(subject, groups, copies);
        self.jobs = back.into_iter().flat_map(G::take).collect();
        phases
    }

    /// The seconds of a copy with computing meanwhile.
    fn both<C: Copies>(&mut self, subject: &mut C, turns: u64) -> f64 {
        self.awake(subject);
        let job = self.take();
        let begun = Instant::now();
        let started = subject.submit(job);
        compute(turns);
        let job = subject.watch(started);
        let elapsed = begun.elapsed().as_secs_f64();
        self.jobs.push(job);
        elapsed
    }

    /// Two copies that begin while every thread sleeps: one for its times, and one with computing
    /// meanwhile for its processor time.
    fn asleep<C: Copies>(&mut self, subject: &mut C, turns: u64, figures: &mut Figures) {
        let job = self.take();
        std::thread::sleep(QUIET_AFTER);
        let begun = Instant::now();
        let started = subject.submit(job);
        figures.wake = begun.elapsed().as_secs_f64();
        let job = subject.watch(started);
        figures.wake_latency = begun.elapsed().as_secs_f64();
        std::thread::sleep(QUIET_AFTER);
        let before = sys::usage_process().cpu;
        let started = subject.submit(job);
        compute(turns);
        let job = subject.watch(started);
        std::thread::sleep(QUIET_AFTER);
        let used = sys::usage_process().cpu.saturating_sub(before).as_secs_f64();
        figures.cpu = used - figures.alone;
        self.jobs.push(job);
    }
}

/// The submission, the copies and the completion of groups of which all are pending together.
/// Hands back their buffers.
fn phases<G: Groups>(
    subject: &mut G,
    groups: Vec<G::Jobs>,
    copies: usize,
) -> (Phases, Vec<G::Jobs>) {
    let mut pending: Vec<G::Started> = Vec::with_capacity(groups.len());
    let mut back: Vec<G::Jobs> = Vec::with_capacity(groups.len());
    let begun = Instant::now();
    for group in groups {
        pending.push(subject.submit(group));
    }
    let submitted = begun.elapsed().as_secs_f64();
    if let Some(last) = pending.last() {
        while !subject.are_done(last) {
            std::hint::spin_loop();
        }
    }
    let copied = begun.elapsed().as_secs_f64();
    for started in pending {
        back.push(subject.watch(started));
    }
    let completed = begun.elapsed().as_secs_f64();
    ([submitted, copied, completed - copied].map(|seconds| seconds / copies as f64), back)
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

fn repeat<T>(mut run: impl FnMut() -> T) -> Vec<T> {
    let (begun, mut all) = (Instant::now(), vec![run()]);
    while all.len() < REPETITIONS_MAX && begun.elapsed() < REPETITIONS_FOR {
        all.push(run());
    }
    all
}

/// The median; 0 without a sample.
pub(super) fn median(samples: &[f64]) -> f64 {
    statistics::median(samples).unwrap_or(0.0)
}

fn seconds(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}
