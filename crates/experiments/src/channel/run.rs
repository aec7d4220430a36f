//! The run: it takes one sample of every subject in turn. The processes live as long as the run.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::disturbance::Watch;
use haul_measure::memory::available_bytes;
use haul_measure::random::Random;
use haul_measure::rounds::{self, Limits, Next, Order};
use haul_measure::sys;
use haul_model::Bytes;

use super::bench::{Bench, Subject, Target};
use super::pair::{Launch, Pair};
use super::protocol::{Cost, Kind, Task};
use super::transport::without_engine;
use crate::context::Context;
use crate::error::Error;
use crate::leave_out::or_leave_out;

/// The smallest number of repetitions per size, independent of the budget; the smallest number
/// for large messages; and the largest number.
const REPETITIONS_MIN: usize = 9;
const REPETITIONS_MIN_LARGE: usize = 5;
const REPETITIONS_MAX: usize = 1000;

/// From this size on, a message counts as large, because a repetition of all subjects takes
/// seconds.
const LARGE_BYTES: usize = 64 << 20;

/// The number of repetitions that do not count. The second of them measures the time of a sample
/// of many messages after the pages of the sample's memory were allocated.
const REPETITIONS_BEFORE: usize = 2;

/// The longest time of a sample, unless a few messages take longer.
const SAMPLE_MAX: Duration = Duration::from_millis(2);

/// The smallest number of messages in a shortened sample. With that many messages, the ends wait
/// for each other as they do in a long sample.
const MESSAGES_MIN: usize = 16;

/// The number of processors of a transfer.
const PROCESSORS: usize = 2;

/// A subject in a run.
pub(super) struct Entrant<'a> {
    pub(super) subject: &'a Subject,
    /// The index of the pair of ends whose drivers contain this subject.
    pub(super) pair: usize,
    pub(super) failure: Option<Error>,
    pub(super) transfers: Vec<Sample>,
    pub(super) echoes: Vec<Sample>,
    /// The number of messages per sample: for messages in one direction, and for echoes.
    counts: [usize; 2],
    pub(super) extra_bytes: u64,
    pub(super) remark: String,
}

/// The result of a repetition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) elapsed_ns: f64,
    pub(super) cpu_ns: f64,
    pub(super) faults: u64,
    pub(super) hit: bool,
}

/// Drivers that run, or that the run starts when it needs them.
pub(super) struct Running<'a> {
    name: &'a str,
    launch: &'a Launch,
    pair: Option<Pair>,
    pub(super) version: String,
}

/// A run of one size.
pub(super) struct Run<'a> {
    pub(super) config: &'a Bench,
    /// The two processors.
    pub(super) cpus: Vec<usize>,
    pub(super) running: Vec<Running<'a>>,
    /// The subjects; the last one is the baseline again.
    pub(super) entrants: Vec<Entrant<'a>>,
    /// Requested subjects that are not measured, because they are not installed or need too much
    /// memory.
    pub(super) left_out: Vec<String>,
    /// The number of attempts so far, including this one.
    pub(super) tries: u32,
    random: Random,
}

impl<'a> Run<'a> {
    /// Leaves out the subjects that need more memory than is available, and warns about them.
    pub(super) fn new(
        config: &'a Bench,
        machine: &Sys,
        context: &mut Context<'_>,
    ) -> Result<Self, Error> {
        if config.size == 0 {
            return Err(Error::Sizes { first: Bytes(0), last: Bytes(0) });
        }
        let mut cpus = if context.cpus.is_empty() { sys::affinity() } else { context.cpus.clone() };
        if cpus.len() < PROCESSORS {
            return Err(Error::OneProcessor { allowed: cpus.len() });
        }
        cpus.truncate(PROCESSORS);
        let (available, mut left_out) = (available_bytes(machine), config.left_out.clone());
        let fitting = config.fitting(available)?;
        for (subject, needs) in &fitting.left_out {
            let (name, size) = (&subject.name, Bytes(config.size as u64));
            (context.warn)(&format!(
                "{name} is left out at {size}: it needs {needs} in addition to the others, of {}  \
                 available; measure it by itself, or smaller sizes, or free memory",
                Bytes(available)
            ));
            left_out.push(name.clone());
        }
        let own =
            Running { name: "haul", launch: &config.driver, pair: None, version: own_version() };
        let (mut running, mut entrants) = (vec![own], Vec::new());
        for subject in fitting.subjects {
            let pair = match subject.found.as_ref().and_then(|found| found.launch.as_ref()) {
                Some(launch) => {
                    let name = &subject.name;
                    running.push(Running { name, launch, pair: None, version: String::new() });
                    running.len() - 1
                }
                None => 0,
            };
            entrants.push(Entrant::new(subject, pair, config));
        }
        let Some(baseline) =
            entrants.first().map(|first| Entrant::new(first.subject, first.pair, config))
        else {
            return Err(
                haul_measure::Error::Sampling { what: "subjects", value: 0, limit: 1 }.into()
            );
        };
        entrants.push(baseline);
        let random = Random::new(config.seed);
        Ok(Self { config, cpus, running, entrants, left_out, tries: 1, random })
    }

    /// Takes samples of all subjects repeatedly until the budget is spent. Returns false if the
    /// run was stopped.
    ///
    /// # Errors
    /// The baseline failed; all subjects keep the samples of the earlier repetitions.
    pub(super) fn repeat(
        &mut self,
        kind: Kind,
        budget: Duration,
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let takes_part = |it: &Entrant<'_>| kind == Kind::Transfer || can_echo(&it.subject.name);
        let entrants = (0..self.entrants.len()).filter(|&it| takes_part(&self.entrants[it]));
        let mut order = Order::new(entrants, self.random.bits());
        // These repetitions do not count. During these repetitions, the ends connect, pages are
        // allocated, and a failing subject fails before the other subjects have waited for it.
        let before = if self.config.count(kind) > MESSAGES_MIN { REPETITIONS_BEFORE } else { 1 };
        for _ in 0..before {
            let next = self.repetition(kind, &order.draw(), context);
            if next.inspect_err(|_| self.keep(kind, 0))? == Next::Stopped {
                self.keep(kind, 0);
                return Ok(false);
            }
        }
        self.shorten(kind);
        let least = match self.config.size {
            size if size >= LARGE_BYTES => REPETITIONS_MIN_LARGE,
            _ => REPETITIONS_MIN,
        };
        let limits = Limits { budget, started: Instant::now(), least, most: REPETITIONS_MAX };
        let what = format!("channel {}", Bytes(self.config.size as u64));
        let round = |context: &mut Context<'_>, _| self.repetition(kind, &order.draw(), context);
        let after = |context: &mut Context<'_>, progress| context.report_progress(&what, progress);
        let (done, ended) = rounds::repeat(limits, watch, context, round, after);
        self.keep(kind, done);
        ended.map(|()| !context.is_stopped())
    }

    /// Keeps the samples of the repetitions that all subjects have completed.
    fn keep(&mut self, kind: Kind, done: usize) {
        for entrant in &mut self.entrants {
            entrant.samples(kind).truncate(done);
        }
    }

    /// The error of the first failed subject among haul's own.
    pub(super) fn own_failure(self) -> Option<Error> {
        let own = self.entrants.into_iter().filter(|it| it.subject.name.starts_with("haul:"));
        own.filter_map(|entrant| entrant.failure).next()
    }

    /// Reduces the number of messages of the subjects whose samples are long, so that a slow
    /// subject does not use the time of all other subjects. Discards their samples so far.
    fn shorten(&mut self, kind: Kind) {
        let most = self.config.count(kind);
        for entrant in &mut self.entrants {
            let samples = std::mem::take(entrant.samples(kind));
            let each_ns = samples.iter().map(|s| s.elapsed_ns).fold(f64::INFINITY, f64::min);
            // With a busy processor, a sample lasts as long as a time slice of another program.
            if !self.config.is_busy && each_ns.is_finite() {
                let fitting = SAMPLE_MAX.as_nanos() as f64 / each_ns.max(1.0);
                entrant.set_count(kind, (fitting as usize).max(MESSAGES_MIN).min(most));
            }
        }
        if let [first, .., again] = self.entrants.as_mut_slice() {
            // The baseline is compared with itself, so that only noise causes a difference.
            again.set_count(kind, first.count(kind));
        }
    }

    /// One sample of each subject in this order.
    fn repetition(
        &mut self,
        kind: Kind,
        order: &[usize],
        context: &mut Context<'_>,
    ) -> Result<Next, Error> {
        let baseline = self.entrants[0].subject.name.clone();
        for &index in order {
            if context.is_stopped() {
                return Ok(Next::Stopped);
            }
            if self.entrants[index].failure.is_some() {
                continue;
            }
            let sample = self.sample(index, kind);
            let entrant = &mut self.entrants[index];
            let name = &entrant.subject.name;
            let is_needed = *name == baseline;
            let kept = or_leave_out(sample, name, is_needed, &mut entrant.failure, context)?;
            if let Some(sample) = kept {
                entrant.samples(kind).push(sample);
            }
        }
        Ok(Next::Round)
    }

    fn sample(&mut self, index: usize, kind: Kind) -> Result<Sample, Error> {
        let size = self.config.size;
        let entrant = &mut self.entrants[index];
        let count = entrant.count(kind);
        let task = Task {
            kind,
            size,
            count,
            is_cold: self.config.target == Target::Cold,
            seed: self.random.bits(),
            transport: entrant.subject.name.clone(),
        };
        let running = &mut self.running[entrant.pair];
        let (a, b) = running.perform(&task, &self.cpus)?;
        entrant.extra_bytes = entrant.extra_bytes.max(a.extra_bytes + b.extra_bytes);
        entrant.remark.clone_from(&a.remark);
        let (start_ns, end_ns, transfers) = match kind {
            _ if is_local(&entrant.subject.name) => (b.start_ns, b.end_ns, count),
            Kind::Transfer => (a.start_ns, a.end_ns.max(b.end_ns), count),
            Kind::Echo => (a.start_ns, a.end_ns, 2 * count),
        };
        Ok(Sample {
            elapsed_ns: end_ns.saturating_sub(start_ns) as f64 / transfers as f64,
            cpu_ns: (a.cpu_ns + b.cpu_ns) as f64 / transfers as f64,
            faults: a.faults + b.faults,
            // With a busy processor, the other program is part of the measured conditions.
            hit: !self.config.is_busy && a.switches + b.switches > 0,
        })
    }
}

/// Whether a transport has a latency: it works in both directions, and its receiver can send from
/// the memory that it receives into.
fn can_echo(name: &str) -> bool {
    !["haul:lease", "memcpy"].contains(&without_engine(name))
        && !["haul:sealed", "2014:"].iter().any(|of| name.starts_with(of))
}

/// Whether the subject is not a transfer, but a copy within B.
fn is_local(name: &str) -> bool {
    matches!(name, "memcpy" | "2014:mymemcpy")
}

impl Running<'_> {
    fn perform(&mut self, task: &Task, cpus: &[usize]) -> Result<(Cost, Cost), Error> {
        let pair = match &mut self.pair {
            Some(pair) => pair,
            none => {
                // The kernel places both ends, as it does for an ordinary program. If an end may
                // run only on one processor, the case is different: haul would choose another
                // mechanism.
                let pair = Pair::start(self.name, self.launch, cpus)?;
                self.version.clone_from(&pair.version);
                none.insert(pair)
            }
        };
        let cost = pair.perform(task);
        if cost.is_err() {
            self.pair = None;
        }
        cost
    }
}

impl<'a> Entrant<'a> {
    fn new(subject: &'a Subject, pair: usize, config: &Bench) -> Self {
        Self {
            subject,
            pair,
            failure: None,
            transfers: Vec::new(),
            echoes: Vec::new(),
            counts: [Kind::Transfer, Kind::Echo].map(|kind| config.count(kind)),
            extra_bytes: 0,
            remark: String::new(),
        }
    }

    fn samples(&mut self, kind: Kind) -> &mut Vec<Sample> {
        if kind == Kind::Echo { &mut self.echoes } else { &mut self.transfers }
    }

    /// Messages of a sample.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.counts[usize::from(kind == Kind::Echo)]
    }

    fn set_count(&mut self, kind: Kind, count: usize) {
        self.counts[usize::from(kind == Kind::Echo)] = count;
    }

    pub(super) fn is_measured(&self) -> bool {
        self.failure.is_none() && !self.transfers.is_empty()
    }
}

/// haul's own drivers are this program, which has the version of the workspace.
fn own_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
