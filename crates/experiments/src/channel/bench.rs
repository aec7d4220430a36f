//! The run: one size by every way in turn, the baseline twice, between processes that live as long
//! as the run.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use haul_measure::clock::Clock;
use haul_measure::disturbance::Watch;
use haul_measure::interleave::evaluation::{Round, evaluate};
use haul_measure::memory::check_available;
use haul_measure::random::Random;
use haul_measure::sys::{self, Proc};
use haul_model::{Bytes, Record};

use super::busy::Busy;
use super::pair::{Launch, Pair};
use super::peers::Found;
use super::protocol::{Kind, Task, Took};
use super::way::DIRTY_PAGES;
use crate::context::{Context, Step};
use crate::error::Error;
use crate::leave_out::or_leave_out;

/// The experiment's name in records.
pub const EXPERIMENT: &str = "channel.transfer";

/// Messages of a sample are so many bytes together, or one: small enough for the caches, long
/// enough against the clock, and each of them is verified.
const SAMPLE_BYTES: usize = 1 << 20;

/// The most messages of a sample.
const MESSAGES_MAX: usize = 1024;

/// The same with a busy processor: ways that poll then wait for a time slice at each of them.
const MESSAGES_MAX_BUSY: usize = 64;

/// Round trips of a sample: each takes a microsecond or more.
const ECHOES_MAX: usize = 256;

/// The largest message whose latency is asked for.
pub const ECHO_BYTES_MAX: usize = 64 << 10;

/// The largest message that fits its own descriptor (haul's `inline`).
const INLINE_BYTES_MAX: usize = 4032;

/// Below this size nobody builds a message in memory of its own: a memory file and a mapping each
/// take longer than the copy.
const SEALED_BYTES_MIN: usize = 64 << 10;

/// Repetitions that every size gets, whatever the budget, those of large messages, and the most.
const REPETITIONS_MIN: usize = 9;
const REPETITIONS_MIN_LARGE: usize = 5;
const REPETITIONS_MAX: usize = 1000;

/// From here on a message counts as large: a repetition of all ways takes seconds.
const LARGE_BYTES: usize = 64 << 20;

/// How many processors a transfer has.
const PROCESSORS: usize = 2;

/// What B's memory is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Used before.
    Warm,
    /// New, so that its page faults are part of the transfer.
    Cold,
}

/// Who is measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As records spell it: `haul:ring`, `ucx`.
    pub name: String,
    /// Its own drivers; `None` where haul's have it.
    pub found: Option<Found>,
}

/// Transfers of one size.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The size of a message in bytes.
    pub size: usize,
    /// What B's memory is like.
    pub target: Target,
    /// Whether another program keeps one of the two processors busy.
    pub is_busy: bool,
    /// Who is measured; see [`baseline_first`].
    pub subjects: Vec<Subject>,
    /// How haul's own drivers are started.
    pub driver: Launch,
    /// Peers that were asked for and are not there.
    pub left_out: Vec<String>,
    /// How long it may take.
    pub budget: Duration,
    /// What content and orders are drawn from.
    pub seed: u64,
}

/// A subject in a run.
struct Entrant<'a> {
    subject: &'a Subject,
    /// Which of the pairs has it.
    pair: usize,
    failure: Option<Error>,
    transfers: Vec<Sample>,
    echoes: Vec<Sample>,
    extra_bytes: u64,
    remark: String,
}

/// What a repetition gave.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    elapsed_ns: f64,
    cpu_ns: f64,
    faults: u64,
    hit: bool,
}

/// Drivers that run, or will when they are needed.
struct Running<'a> {
    name: &'a str,
    launch: &'a Launch,
    pair: Option<Pair>,
    version: String,
}

/// The subjects in the order that comparisons want: what every system has stands first.
#[must_use]
pub fn baseline_first(mut subjects: Vec<Subject>) -> Vec<Subject> {
    const FIRST: [&str; 2] = ["pipe", "unix"];
    let rank = |subject: &Subject| FIRST.iter().position(|name| *name == subject.name);
    subjects.sort_by_key(|subject| rank(subject).unwrap_or(FIRST.len()));
    subjects
}

/// Measures transfers of one size, and emits for each subject a record of its throughput, of the
/// processor time of both sides, of its latency where messages are small, and of the memory it has
/// beside source and target. A peer that fails is left out of the records, and the context is
/// warned; the others go on.
///
/// # Errors
/// haul or the baseline fails, or B has a wrong byte from one of these; there is one processor, or
/// not the memory.
pub fn measure_channel(config: &Bench, context: &mut Context<'_>) -> Result<(), Error> {
    let mut run = Run::new(config, context)?;
    let _busy = config.is_busy.then(|| Busy::on(run.cpus[1]));
    let mut watch = Watch::start(Proc::default());
    let kinds = config.kinds();
    let budget = config.budget / u32::try_from(kinds.len()).unwrap_or(1);
    for kind in kinds {
        if !run.repeat(kind, budget, &mut watch, context)? {
            break;
        }
    }
    let notes = watch.finish().iter().map(ToString::to_string).collect();
    run.emit(notes, context);
    Ok(())
}

impl Bench {
    fn kinds(&self) -> Vec<Kind> {
        let has_echo = self.size <= ECHO_BYTES_MAX && self.target == Target::Warm;
        if has_echo { vec![Kind::Transfer, Kind::Echo] } else { vec![Kind::Transfer] }
    }

    /// Messages of a sample.
    fn count(&self, kind: Kind) -> usize {
        let most = match kind {
            _ if self.is_busy => MESSAGES_MAX_BUSY,
            Kind::Echo => ECHOES_MAX,
            Kind::Transfer => MESSAGES_MAX,
        };
        (SAMPLE_BYTES / self.size.max(1)).clamp(1, most)
    }

    /// Subjects that can move messages of this size.
    fn entrants(&self) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().filter(|subject| can_move(&subject.name, self.size))
    }

    /// Memory for source and target of each pair, and what some ways have beside.
    fn memory_bytes(&self) -> u64 {
        // What is leased comes into the receiver's pool, and not into the target that B has as well.
        const WITH_A_COPY: [&str; 5] =
            ["haul:staged", "haul:lease", "seed:memcpy", "memcpy", "seed:mymemcpy"];
        let has = |name: &str| self.entrants().any(|subject| subject.name == name);
        let copies = WITH_A_COPY.iter().filter(|name| has(name)).count();
        // Built once by A; B's view takes what it writes to.
        let sealed = if has("haul:sealed") { 2 } else { 0 };
        // Its samples lie in memory of their own, of which it takes two in turn.
        let samples = if has("iceoryx2") { 2 } else { 0 };
        let pairs = 1 + self.entrants().filter(|subject| subject.found.is_some()).count();
        let bytes = (self.size * self.count(Kind::Transfer)) as u64;
        bytes.saturating_mul((2 * pairs + copies + sealed + samples) as u64)
    }
}

/// Whether a way is one for messages of this size.
#[must_use]
pub fn can_move(name: &str, size: usize) -> bool {
    match name {
        "haul:inline" => size <= INLINE_BYTES_MAX,
        "haul:sealed" => size >= SEALED_BYTES_MIN,
        _ => true,
    }
}

/// Whether a way goes in both directions into memory that can be sent from, so that it has a latency.
fn can_echo(name: &str) -> bool {
    !["haul:sealed", "haul:lease", "memcpy"].contains(&name) && !name.starts_with("seed:")
}

/// Whether it is no transfer, but a copy within B.
fn is_local(name: &str) -> bool {
    matches!(name, "memcpy" | "seed:mymemcpy")
}

struct Run<'a> {
    config: &'a Bench,
    /// The two processors.
    cpus: Vec<usize>,
    running: Vec<Running<'a>>,
    /// The subjects, and the baseline once more as the last.
    entrants: Vec<Entrant<'a>>,
    random: Random,
}

impl<'a> Run<'a> {
    fn new(config: &'a Bench, context: &Context<'_>) -> Result<Self, Error> {
        if config.size == 0 {
            return Err(Error::Sizes { first: Bytes(0), last: Bytes(0) });
        }
        let mut cpus = if context.cpus.is_empty() { sys::affinity() } else { context.cpus.clone() };
        if cpus.len() < PROCESSORS {
            return Err(Error::OneProcessor { allowed: cpus.len() });
        }
        cpus.truncate(PROCESSORS);
        check_available(config.memory_bytes(), &Proc::default())?;
        let own =
            Running { name: "haul", launch: &config.driver, pair: None, version: own_version() };
        let (mut running, mut entrants) = (vec![own], Vec::new());
        for subject in config.entrants() {
            let pair = match subject.found.as_ref().and_then(|found| found.launch.as_ref()) {
                Some(launch) => {
                    let name = &subject.name;
                    running.push(Running { name, launch, pair: None, version: String::new() });
                    running.len() - 1
                }
                None => 0,
            };
            entrants.push(Entrant::new(subject, pair));
        }
        let Some(baseline) = entrants.first().map(|first| Entrant::new(first.subject, first.pair))
        else {
            return Err(haul_measure::Error::Plan { what: "subjects", value: 0, limit: 1 }.into());
        };
        entrants.push(baseline);
        Ok(Self { config, cpus, running, entrants, random: Random::new(config.seed) })
    }

    /// Repeats until the budget is spent. False when told to stop.
    fn repeat(
        &mut self,
        kind: Kind,
        budget: Duration,
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let mut order: Vec<usize> = (0..self.entrants.len())
            .filter(|&index| kind == Kind::Transfer || can_echo(&self.entrants[index].subject.name))
            .collect();
        // Once untimed: ends meet, memory gets its pages, and who fails fails before the others
        // have waited.
        let is_whole = self.repetition(kind, &order, context)?;
        self.forget(kind);
        let least = match self.config.size {
            size if size >= LARGE_BYTES => REPETITIONS_MIN_LARGE,
            _ => REPETITIONS_MIN,
        };
        let (mut done, started) = (0, Instant::now());
        while is_whole && done < REPETITIONS_MAX && (done < least || started.elapsed() < budget) {
            watch.tick(&Clock::get());
            self.random.shuffle(&mut order);
            if !self.repetition(kind, &order, context)? {
                break;
            }
            done += 1;
            let what = format!("channel {}", Bytes(self.config.size as u64));
            let (elapsed, budget) = (started.elapsed(), budget);
            (context.progress)(&Step { what, elapsed, budget });
        }
        for entrant in &mut self.entrants {
            entrant.samples(kind).truncate(done);
        }
        Ok(!context.is_stopped())
    }

    fn forget(&mut self, kind: Kind) {
        for entrant in &mut self.entrants {
            entrant.samples(kind).clear();
        }
    }

    /// One sample of each in this order. False when told to stop.
    fn repetition(
        &mut self,
        kind: Kind,
        order: &[usize],
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        let baseline = self.entrants[0].subject.name.clone();
        for &index in order {
            if context.is_stopped() {
                return Ok(false);
            }
            if self.entrants[index].failure.is_some() {
                continue;
            }
            let sample = self.sample(index, kind);
            let entrant = &mut self.entrants[index];
            let name = &entrant.subject.name;
            let is_needed = name.starts_with("haul:") || *name == baseline;
            let kept = or_leave_out(sample, name, is_needed, &mut entrant.failure, context)?;
            if let Some(sample) = kept {
                entrant.samples(kind).push(sample);
            }
        }
        Ok(true)
    }

    fn sample(&mut self, index: usize, kind: Kind) -> Result<Sample, Error> {
        let (size, count) = (self.config.size, self.config.count(kind));
        let entrant = &mut self.entrants[index];
        let task = Task {
            kind,
            size,
            count,
            is_cold: self.config.target == Target::Cold,
            seed: self.random.bits(),
            way: entrant.subject.name.clone(),
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
            // With a busy processor another program is what is measured.
            hit: !self.config.is_busy && a.switches + b.switches > 0,
        })
    }

    fn emit(&mut self, notes: Vec<String>, context: &mut Context<'_>) {
        let size = self.config.size as f64;
        let transfers = |entrant: &Entrant<'_>| entrant.transfers.clone();
        let echoes = |entrant: &Entrant<'_>| entrant.echoes.clone();
        // Bytes a nanosecond are GB/s; nanoseconds a byte are seconds a GB.
        self.emit_one("throughput", "GB/s", &transfers, &|s| size / s.elapsed_ns, &notes, context);
        self.emit_one("cpu", "s/GB", &transfers, &|s| s.cpu_ns / size, &notes, context);
        self.emit_one("latency", "ns", &echoes, &|s| s.elapsed_ns, &notes, context);
        let measured = |entrant: &&Entrant<'_>| entrant.is_measured();
        let (_, subjects) = self.entrants.split_last().expect("the baseline is there twice");
        for entrant in subjects.iter().filter(measured) {
            let mut record = self.record(entrant, "extra_memory", "B", &notes);
            record.samples = vec![entrant.extra_bytes as f64];
            context.emit(record);
        }
    }

    /// One metric of all who have it, each against the baseline.
    fn emit_one(
        &self,
        metric: &str,
        unit: &str,
        samples: &dyn Fn(&Entrant<'_>) -> Vec<Sample>,
        value: &dyn Fn(&Sample) -> f64,
        notes: &[String],
        context: &mut Context<'_>,
    ) {
        let (again, subjects) = self.entrants.split_last().expect("the baseline is there twice");
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
            let mut record = self.record(entrant, metric, unit, notes);
            record = record.with("rounds_discarded", found.rounds_discarded);
            let faults: u64 = columns[index].iter().map(|sample| sample.faults).sum();
            record = record.with("page_faults", faults / count as u64);
            record.samples.clone_from(&found.series[index]);
            record.comparison = found.comparisons[index].clone();
            if record.check().is_err() {
                // Over a figure of 0 there is no ratio.
                record.comparison = None;
            }
            context.emit(record);
        }
    }

    /// What all records of a subject have in common.
    fn record(&self, entrant: &Entrant<'_>, metric: &str, unit: &str, notes: &[String]) -> Record {
        let kind = if metric == "latency" { Kind::Echo } else { Kind::Transfer };
        let config = self.config;
        let mut record = Record::new("", EXPERIMENT, &entrant.subject.name, metric, unit)
            .with("size_bytes", config.size)
            .with("target", config.target.to_string())
            .with("busy_core", u8::from(config.is_busy))
            .with("messages", config.count(kind))
            .with("cpus", self.cpus.len())
            .with("version", self.running[entrant.pair].version.clone());
        if !entrant.remark.is_empty() {
            record = record.with("mechanism", entrant.remark.clone());
        }
        if entrant.subject.name == "haul:sealed" {
            record = record.with("dirty_share", 1.0 / DIRTY_PAGES as f64);
        }
        if !config.left_out.is_empty() {
            record = record.with("left_out", config.left_out.join(", "));
        }
        if !notes.is_empty() {
            record = record.with("note", notes.join("; "));
        }
        record
    }
}

impl Running<'_> {
    fn perform(&mut self, task: &Task, cpus: &[usize]) -> Result<(Took, Took), Error> {
        let pair = match &mut self.pair {
            Some(pair) => pair,
            none => {
                // Who runs where is the kernel's business, as it is in a program's life: an end that
                // may run on one processor alone is another case, and haul would choose for it.
                let pair = Pair::start(self.name, self.launch, cpus)?;
                self.version.clone_from(&pair.version);
                none.insert(pair)
            }
        };
        let took = pair.perform(task);
        if took.is_err() {
            self.pair = None;
        }
        took
    }
}

impl<'a> Entrant<'a> {
    fn new(subject: &'a Subject, pair: usize) -> Self {
        Self {
            subject,
            pair,
            failure: None,
            transfers: Vec::new(),
            echoes: Vec::new(),
            extra_bytes: 0,
            remark: String::new(),
        }
    }

    fn samples(&mut self, kind: Kind) -> &mut Vec<Sample> {
        if kind == Kind::Echo { &mut self.echoes } else { &mut self.transfers }
    }

    fn is_measured(&self) -> bool {
        self.failure.is_none() && !self.transfers.is_empty()
    }
}

/// Haul's own drivers are this program; its version is the workspace's.
fn own_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Warm { "warm" } else { "cold" })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "warm" => Ok(Self::Warm),
            "cold" => Ok(Self::Cold),
            _ => Err(format!("no target is {text:?}; targets are warm and cold")),
        }
    }
}
