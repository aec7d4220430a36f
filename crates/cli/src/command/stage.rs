//! A plan as data: what is measured and for how long, so that progress and time left are honest.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_experiments::Context;
use haul_experiments::channel::{self, measure_channel};
use haul_experiments::copy::drawn::Shape;
use haul_experiments::copy::{Drawn, Sizes, measure_drawn, measure_sizes};
use haul_experiments::heap::{self, measure_heap};
use haul_experiments::memory::{Bandwidth, Fault, measure_bandwidth, measure_fault};
use haul_measure::Caches;
use haul_model::{Bytes, Machine, Record};

use crate::error::Error;
use crate::journal::Journal;
use crate::progress::Progress;
use crate::stop::{self, STOP};

/// Base pages and huge ones: what a page-fault experiment measures one after the other.
const KINDS_OF_PAGES: u32 = 2;

/// One step of a plan.
pub(super) struct Stage {
    /// What it measures, for a person.
    pub(super) what: String,
    /// How long it takes.
    pub(super) budget: Duration,
    /// What it does.
    pub(super) work: Work,
}

/// What a step measures.
pub(super) enum Work {
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
pub(super) enum OnFailure {
    /// It ends: the step is what was asked for.
    End,
    /// It goes on, and says so: the other steps are worth having.
    GoOn,
}

/// What all steps of a command share.
pub(super) struct Runner<'a> {
    machine: &'a Machine,
    journal: &'a mut Journal,
    progress: Progress,
    run: String,
    deadline: Option<Instant>,
}

impl<'a> Runner<'a> {
    /// Opens the run: watches for Ctrl-C, and writes the machine, which every record refers to.
    ///
    /// # Errors
    /// Ctrl-C cannot be watched for, or the machine cannot be written.
    pub(super) fn new(
        machine: &'a Machine,
        journal: &'a mut Journal,
        steps: usize,
        total: Duration,
    ) -> Result<Self, Error> {
        stop::watch()?;
        journal.add(machine.clone());
        journal.check()?;
        let progress = Progress::new(steps, total);
        Ok(Self { machine, journal, progress, run: run_name(), deadline: None })
    }

    /// The same, beginning no step after the deadline: small as budgets are, buffers are placed and
    /// bytes proved beside them, and on a busy machine that takes its time.
    pub(super) fn until(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// The machine that records are of.
    pub(super) fn machine_id(&self) -> &'a str {
        &self.machine.id
    }

    /// What was recorded so far.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.journal.records()
    }

    /// Does the steps one after the other, until one fails or somebody says stop.
    ///
    /// # Errors
    /// A record cannot be written; or a step fails, and that ends the plan.
    pub(super) fn stages(&mut self, plan: &[Stage], on_failure: OnFailure) -> Result<(), Error> {
        for (index, stage) in plan.iter().enumerate() {
            if STOP.load(Ordering::Relaxed) {
                break;
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.progress.say(&format!(
                    "haul: warning: out of time, {} steps are left out, from {} on; this machine \
                     is busy: run again when it is quiet",
                    plan.len() - index,
                    stage.what
                ));
                break;
            }
            let done = self.step(&stage.what, stage.budget, |context| stage.work.measure(context));
            match on_failure {
                OnFailure::End => done?,
                OnFailure::GoOn => {
                    self.go_on(&stage.what, done)?;
                }
            }
        }
        Ok(())
    }

    /// Turns an experiment's failure into a warning: the other steps are worth having.
    ///
    /// # Errors
    /// Every other failure.
    pub(super) fn go_on<T>(&self, what: &str, done: Result<T, Error>) -> Result<Option<T>, Error> {
        match done {
            Err(error @ Error::Experiment(_)) => {
                self.progress.say(&format!("haul: warning: {what} is left out: {error}"));
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Does one step, with its records going to the journal as they are complete.
    ///
    /// # Errors
    /// A record cannot be written, or the experiment fails.
    pub(super) fn step<T>(
        &mut self,
        what: &str,
        budget: Duration,
        measure: impl FnOnce(&mut Context<'_>) -> Result<T, haul_experiments::Error>,
    ) -> Result<T, Error> {
        self.progress.begin(what, budget);
        let (journal, progress) = (&mut *self.journal, &self.progress);
        let mut context = Context {
            run: self.run.clone(),
            machine: self.machine.id.clone(),
            stop: &STOP,
            caches: Caches::from_sizes(&self.machine.caches_bytes),
            cpus: Vec::new(),
            sink: &mut |record| journal.add(record),
            progress: &mut |step| progress.advance(&step.what),
            warn: &mut |text| progress.say(&format!("haul: warning: {text}")),
        };
        let outcome = measure(&mut context);
        self.journal.check()?;
        Ok(outcome?)
    }
}

impl Stage {
    /// A step that takes `budget`, named for what it does.
    pub(super) fn of(mut work: Work, budget: Duration) -> Self {
        let what = match &mut work {
            Work::Drawn(drawn) => {
                drawn.budget = budget;
                let sizes = match &drawn.shape {
                    Shape::Distribution(distribution) => distribution.name().to_owned(),
                    Shape::SizeClass(class) => format!("{}-{} B", class.first, class.last),
                };
                let (function, level) = (drawn.function.name(), drawn.level);
                format!("{function}, {sizes}, {level}{}", on_threads(drawn.threads))
            }
            Work::Sizes(sizes) => {
                let count = u32::try_from(sizes.sizes_bytes.len()).unwrap_or(u32::MAX).max(1);
                sizes.budget_per_size = budget / count;
                let listed: Vec<String> =
                    sizes.sizes_bytes.iter().map(|&s| Bytes(s as u64).to_string()).collect();
                let function = sizes.function.name();
                format!("{function}, {}{}", listed.join(" "), on_threads(sizes.threads))
            }
            Work::Bandwidth(bandwidth) => {
                bandwidth.budget = budget;
                format!("memory {}{}", bandwidth.operation.name(), on_threads(bandwidth.threads))
            }
            Work::Fault(fault) => {
                fault.budget = budget / KINDS_OF_PAGES;
                format!("page faults, {}", fault.touch.name())
            }
            Work::Heap(bench) => {
                bench.budget = budget;
                let heap::Shape { size, align } = bench.extent.shape;
                let (size, align) = (Bytes(size as u64), Bytes(align as u64));
                let test = bench.test.name();
                format!("heap {test}, {size} aligned to {align}{}", on_threads(bench.threads))
            }
            Work::Channel(bench) => {
                bench.budget = budget;
                let (size, target) = (Bytes(bench.size as u64), bench.target);
                let busy = if bench.is_busy { ", one processor busy" } else { "" };
                format!("transfer of {size}, {target} target{busy}")
            }
        };
        Self { what, budget, work }
    }
}

fn on_threads(threads: usize) -> String {
    if threads == 1 { String::new() } else { format!(", {threads} threads") }
}

impl Work {
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
pub(super) fn total(plan: &[Stage]) -> Duration {
    plan.iter().map(|stage| stage.budget).sum()
}

/// The second it began in and the process tell one machine's runs apart.
fn run_name() -> String {
    format!("{}-{}", haul_experiments::context::now(), std::process::id())
}
