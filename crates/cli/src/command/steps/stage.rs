//! A plan as data: what is measured and for how long, so that progress and time left are honest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_experiments::Context;
use haul_experiments::channel::{self, measure_channel};
use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::{Drawn, Sizes, ThenRead, measure_drawn, measure_sizes};
use haul_experiments::drive::Program;
use haul_experiments::heap::{self, measure_heap};
use haul_experiments::memory::{Bandwidth, Fault, measure_bandwidth, measure_fault};
use haul_measure::Caches;
use haul_measure::memory::check_available;
use haul_measure::sys::Proc;
use haul_model::{Bytes, Machine, Record, limit};

use super::schedule::{Schedule, Time};
use crate::command::this_machine;
use crate::error::Error;
use crate::journal::Journal;
use crate::progress::Progress;
use crate::stop::{self, STOP};
use crate::terminal;

/// Base pages and huge ones: what a page-fault experiment measures one after the other.
const KINDS_OF_PAGES: u32 = 2;

/// What nobody minds that something takes longer than he asked for.
const LITTLE: Duration = Duration::from_secs(2);

/// One step of a plan.
pub(in crate::command) struct Stage {
    /// What it measures, for a person.
    pub(in crate::command) what: String,
    /// How long it takes.
    pub(in crate::command) time: Time,
    /// What it does.
    pub(in crate::command) work: Work,
}

/// What a step measures.
pub(in crate::command) enum Work {
    /// Calls of drawn sizes.
    Drawn(Drawn),
    /// One size after the other.
    Sizes(Sizes),
    /// The limit by memory.
    Bandwidth(Bandwidth),
    /// The price of a page fault, for two kinds of pages.
    Fault(Fault),
    /// Allocation beside other heaps.
    Heap(heap::Bench),
    /// Transfers between processes beside other ways.
    Channel(channel::Bench),
}

/// What becomes of a plan when one of its steps fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum OnFailure {
    /// It ends: the step is what was asked for.
    End,
    /// It goes on, and says so: the other steps are worth having.
    GoOn,
}

/// What all steps of a command share.
pub(in crate::command) struct Runner<'a> {
    machine: &'a Machine,
    journal: &'a mut Journal,
    progress: Progress,
    run: String,
    schedule: Schedule,
    /// Whether the deadline has passed, and somebody was told.
    is_over: bool,
}

impl<'a> Runner<'a> {
    /// Opens the run: watches for Ctrl-C, and writes the machine, which every record refers to.
    ///
    /// # Errors
    /// Ctrl-C cannot be watched for, or the machine cannot be written.
    pub(in crate::command) fn new(
        machine: &'a Machine,
        journal: &'a mut Journal,
        steps: usize,
        total: Duration,
    ) -> Result<Self, Error> {
        stop::watch()?;
        journal.add(machine.clone());
        journal.check()?;
        let progress = Progress::new(steps, total);
        let schedule = Schedule::endless();
        Ok(Self { machine, journal, progress, run: run_name(), schedule, is_over: false })
    }

    /// The same, its steps shortened so that all of them, which take `total`, keep the deadline.
    /// None begins after it.
    pub(in crate::command) fn until(self, deadline: Instant, total: Time) -> Self {
        Self { schedule: Schedule::until(deadline, total), ..self }
    }

    /// The machine that records are of.
    pub(in crate::command) fn machine_id(&self) -> &'a str {
        &self.machine.id
    }

    /// What was recorded so far.
    pub(in crate::command) fn records(&self) -> impl Iterator<Item = &Record> {
        self.journal.records()
    }

    /// Does the steps one after the other, until one fails or somebody says stop.
    ///
    /// # Errors
    /// A record cannot be written; or a step fails, and that ends the plan.
    pub(in crate::command) fn stages(
        &mut self,
        plan: &mut [Stage],
        failing: OnFailure,
    ) -> Result<(), Error> {
        for Stage { what, time, work } in plan {
            if STOP.load(Ordering::Relaxed) {
                break;
            }
            let Some(budget) = self.allot(what, *time) else { break };
            work.set_budget(budget);
            let done = self.step(what, time.whole(), |context| work.measure(context));
            match failing {
                OnFailure::End => done?,
                OnFailure::GoOn => {
                    self.go_on(what, done)?;
                }
            }
        }
        Ok(())
    }

    /// Turns an experiment's failure into a warning: the other steps are worth having.
    ///
    /// # Errors
    /// Every other failure.
    pub(in crate::command) fn go_on<T>(
        &self,
        what: &str,
        done: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match done {
            Err(error @ Error::Experiment(_)) => {
                self.progress.say(&format!("haul: warning: {what} is left out: {error}"));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// What the rounds of the next step may take. `None` where the plan is out of time: then
    /// somebody is told of the steps that are left out.
    pub(in crate::command) fn allot(&mut self, what: &str, time: Time) -> Option<Duration> {
        let rounds = self.schedule.next(time, Instant::now());
        if rounds.is_none() && !self.is_over {
            self.is_over = true;
            self.progress.say(&format!(
                "haul: warning: out of time, {} steps are left out, from {what} on; this machine is \
                 busy: run again when it is quiet",
                self.progress.steps_left()
            ));
        }
        rounds
    }

    /// Does one step, which takes so long, with its records going to the journal as they are
    /// complete.
    ///
    /// # Errors
    /// A record cannot be written, or the experiment fails.
    pub(in crate::command) fn step<T>(
        &mut self,
        what: &str,
        time: Duration,
        measure: impl FnOnce(&mut Context<'_>) -> Result<T, haul_experiments::Error>,
    ) -> Result<T, Error> {
        self.progress.begin(what, time);
        let (journal, progress) = (&mut *self.journal, &self.progress);
        let mut context = Context {
            run: self.run.clone(),
            machine: self.machine.id.clone(),
            stop: &STOP,
            caches: Caches::from_sizes(&self.machine.caches_bytes),
            cpus: Vec::new(),
            sink: &mut |record| {
                let record = beside_limit(journal, record);
                journal.add(record);
            },
            progress: &mut |step| progress.advance(&step.what),
            warn: &mut |text| progress.say(&format!("haul: warning: {text}")),
        };
        let outcome = measure(&mut context);
        self.journal.check()?;
        Ok(outcome?)
    }
}

/// A copy or a fill of one size with what memory allows it, where that was measured before it.
fn beside_limit(journal: &Journal, record: Record) -> Record {
    if record.experiment != "copy.size" {
        return record;
    }
    match limit::throughput(&record).zip(limit::memory_limit(journal.records(), &record)) {
        None => record,
        Some((rate, allowed)) => {
            let short = |value: f64| (value * 1000.0).round() / 1000.0;
            record.with("limit_gb_s", short(allowed)).with("of_limit", short(rate / allowed))
        }
    }
}

/// Measures every work of a command until one fails: `budget` together, or `each` for each of them
/// in the mean. Large sizes, whose every round takes long, get more of it than small ones.
pub(in crate::command) fn evenly(
    works: Vec<Work>,
    budget: Option<Duration>,
    each: Duration,
) -> Vec<Stage> {
    let count = u32::try_from(works.len()).unwrap_or(u32::MAX);
    let whole = budget.unwrap_or(each * count);
    let weights: f64 = works.iter().map(Work::weight).sum();
    let caches = Caches::from_sizes(&this_machine().caches_bytes);
    let stage = |work: Work| {
        let share = work.weight() / weights;
        Stage::of(work, whole.mul_f64(share), &caches)
    };
    works.into_iter().map(stage).collect()
}

/// Does a plan whose every step was asked for, in this time where somebody said so: if it takes
/// much longer, he is told before it begins.
///
/// # Errors
/// There is no memory for one of the steps; and as [`Runner::new`] and [`Runner::stages`].
pub(in crate::command) fn measure(
    plan: &mut [Stage],
    budget: Option<Duration>,
    journal: &mut Journal,
) -> Result<(), Error> {
    for stage in plan.iter() {
        stage.work.check_memory()?;
    }
    let time = total(plan);
    if budget.is_some() && time.beside > LITTLE.max(time.rounds / 4) {
        terminal::say(&format!(
            "haul: this takes about {:.0} s: the {:.0} s of --budget are for rounds; preparing, proving \
             and the fewest rounds of each take the rest",
            time.whole().as_secs_f64(),
            time.rounds.as_secs_f64()
        ));
    }
    let machine = this_machine();
    let mut runner = Runner::new(&machine, journal, plan.len(), time.whole())?;
    runner.stages(plan, OnFailure::End)
}

/// This program and the arguments of one of its commands, for a child process.
pub(in crate::command) fn this_program(command: [&str; 2]) -> Program {
    // Without /proc, the path that the kernel was given when it started this process.
    let started = || OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()).into();
    let path = std::env::current_exe().unwrap_or_else(|_| started());
    Program::new(path).with(command.map(OsString::from).into())
}

impl Stage {
    /// Leaves haul under the default policy out: there is no other that it would be told from.
    pub(in crate::command) fn without_untuned(&mut self) {
        self.work.set_without_untuned();
    }

    /// A step whose rounds take `budget` on a machine with these caches, named for what it does.
    pub(in crate::command) fn of(mut work: Work, budget: Duration, caches: &Caches) -> Self {
        work.set_budget(budget);
        let time = Time { rounds: budget, beside: work.beside(caches) };
        Self { what: work.name(), time, work }
    }
}

fn on_threads(threads: usize) -> String {
    if threads == 1 { String::new() } else { format!(", {threads} threads") }
}

fn then_read(read: ThenRead) -> String {
    if read == ThenRead::Nothing { String::new() } else { format!(", then read {}", read.name()) }
}

impl Work {
    /// How much of the time of a command it should have, beside others. One size gets the more the
    /// larger it is: of 2 KiB to 1 GiB in 25 s, those from 256 MiB on have eight to ten rounds and
    /// the others hundreds, where even shares left the large ones five.
    fn weight(&self) -> f64 {
        /// As long as the fixed cost of a step and enough rounds of small sizes, in bytes copied.
        const UNIT_BYTES: f64 = (64 << 20) as f64;
        match self {
            Self::Sizes(sizes) => 1.0 + sizes.sizes_bytes.iter().sum::<usize>() as f64 / UNIT_BYTES,
            _ => 1.0,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Drawn(drawn) => {
                let sizes = match &drawn.shape {
                    Shape::Distribution(distribution) => distribution.name().to_owned(),
                    Shape::SizeClass(class) => format!("{class} B"),
                };
                let (function, level) = (drawn.function.name(), drawn.level);
                let read = then_read(drawn.then_read);
                format!("{function}, {sizes}, {level}{}{read}", on_threads(drawn.threads))
            }
            Self::Sizes(sizes) => {
                let listed: Vec<String> =
                    sizes.sizes_bytes.iter().map(|&s| Bytes(s as u64).to_string()).collect();
                let function = sizes.function.name();
                let read = then_read(sizes.then_read);
                format!("{function}, {}{}{read}", listed.join(" "), on_threads(sizes.threads))
            }
            Self::Bandwidth(bandwidth) => {
                format!("memory {}{}", bandwidth.operation.name(), on_threads(bandwidth.threads))
            }
            Self::Fault(fault) => format!("page faults, {}", fault.touch.name()),
            Self::Heap(bench) => {
                let heap::Shape { size, align } = bench.extent.shape;
                let (size, align) = (Bytes(size as u64), Bytes(align as u64));
                let test = bench.test.name();
                format!("heap {test}, {size} aligned to {align}{}", on_threads(bench.threads))
            }
            Self::Channel(bench) => {
                let (size, target) = (Bytes(bench.size as u64), bench.target);
                let busy = if bench.is_busy { ", one processor busy" } else { "" };
                format!("transfer of {size}, {target} target{busy}")
            }
        }
    }

    /// The same without what is told of a haul.toml.
    fn set_without_untuned(&mut self) {
        if let Self::Drawn(drawn) = self {
            drawn.untuned = false;
        }
    }

    fn set_budget(&mut self, budget: Duration) {
        match self {
            Self::Drawn(drawn) => drawn.budget = budget,
            Self::Sizes(sizes) => {
                let count = u32::try_from(sizes.sizes_bytes.len()).unwrap_or(u32::MAX).max(1);
                sizes.budget_per_size = budget / count;
            }
            Self::Bandwidth(bandwidth) => bandwidth.budget = budget,
            Self::Fault(fault) => fault.budget = budget / KINDS_OF_PAGES,
            Self::Heap(bench) => bench.budget = budget,
            Self::Channel(bench) => bench.budget = budget,
        }
    }

    /// Whether there is memory for it, as far as that is known before it begins.
    fn check_memory(&self) -> Result<(), haul_experiments::Error> {
        match self {
            Self::Sizes(sizes) => {
                // Source and target of each thread; a fill has them as well.
                let largest = sizes.sizes_bytes.iter().max().map_or(0, |&size| size as u64);
                let wanted = largest.saturating_mul(2).saturating_mul(sizes.threads as u64);
                Ok(check_available(wanted, &Proc::default())?)
            }
            Self::Heap(bench) => bench.check_memory(),
            Self::Channel(bench) => bench.check_memory(),
            Self::Drawn(_) | Self::Bandwidth(_) | Self::Fault(_) => Ok(()),
        }
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), haul_experiments::Error> {
        match self {
            Self::Drawn(drawn) => measure_drawn(drawn, context),
            Self::Sizes(sizes) => measure_sizes(sizes, context),
            Self::Bandwidth(bandwidth) => measure_bandwidth(bandwidth, context),
            Self::Fault(fault) => measure_fault(fault, context),
            Self::Heap(bench) => measure_heap(bench, context),
            Self::Channel(bench) => measure_channel(bench, context),
        }
    }
}

/// The time a plan takes.
pub(in crate::command) fn total(plan: &[Stage]) -> Time {
    plan.iter().map(|stage| stage.time).sum()
}

/// The second it began in and the process tell one machine's runs apart.
fn run_name() -> String {
    format!("{}-{}", haul_experiments::context::now(), std::process::id())
}
