//! The state that all steps of a command share: the run, its progress, its schedule.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haul_experiments::drive::Program;
use haul_experiments::experiment::Time;
use haul_experiments::{Context, Experiment};
use haul_measure::Caches;
use haul_model::{Machine, Record};

use super::schedule::Schedule;
use crate::command::this_machine;
use crate::error::Error;
use crate::journal::Journal;
use crate::progress::Progress;
use crate::stop::STOP;
use crate::terminal;

/// A command says so first if it needs longer than its budget plus this time.
const OVERRUN: Duration = Duration::from_secs(2);

/// The experiments of a command, in order.
pub(in crate::command) type Steps = Vec<Box<dyn Experiment>>;

/// What happens to a plan if one of its steps fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum OnFailure {
    /// The plan ends, because the user asked for this step.
    End,
    /// The plan continues with a warning, because the other steps are still useful.
    GoOn,
}

/// The state that all steps of a command share.
pub(in crate::command) struct Runner<'a> {
    machine: &'a Machine,
    caches: Caches,
    journal: &'a mut Journal,
    progress: Progress,
    run: String,
    schedule: Schedule,
    /// Whether the deadline has passed and a warning was printed.
    is_over: bool,
}

impl<'a> Runner<'a> {
    /// Opens the run: writes the machine, to which every record refers.
    ///
    /// # Errors
    /// The machine cannot be written.
    pub(in crate::command) fn new(
        machine: &'a Machine,
        journal: &'a mut Journal,
        steps: usize,
        total: Duration,
    ) -> Result<Self, Error> {
        journal.add(machine.clone());
        journal.check()?;
        let progress = Progress::new(steps, total);
        let schedule = Schedule::endless();
        let (run, caches) = (run_name(), Caches::from_sizes(&machine.caches_bytes));
        Ok(Self { machine, caches, journal, progress, run, schedule, is_over: false })
    }

    /// The same runner with a deadline: its steps, which need `total`, are shortened to meet it. No
    /// step begins after the deadline.
    pub(in crate::command) fn until(self, deadline: Instant, total: Time) -> Self {
        Self { schedule: Schedule::until(deadline, total), ..self }
    }

    /// The id of the machine in the records.
    pub(in crate::command) fn machine_id(&self) -> &'a str {
        &self.machine.id
    }

    /// The records made until now.
    pub(in crate::command) fn records(&self) -> impl Iterator<Item = &Record> {
        self.journal.records()
    }

    /// Runs the steps one after the other, until one fails or a signal stops them.
    ///
    /// # Errors
    /// A record cannot be written; or a step fails and `failing` ends the plan.
    pub(in crate::command) fn steps(
        &mut self,
        steps: &mut Steps,
        failing: OnFailure,
    ) -> Result<(), Error> {
        for step in steps {
            if STOP.load(Ordering::Relaxed) {
                break;
            }
            let (what, time) = (step.name(), step.time(&self.caches));
            let Some(budget) = self.allot(&**step) else { break };
            step.set_budget(budget);
            let done = self.step(&what, time.whole(), |context| step.measure(context));
            match failing {
                OnFailure::End => done?,
                OnFailure::GoOn => {
                    self.go_on(&what, done)?;
                }
            }
        }
        Ok(())
    }

    /// Turns an experiment's failure into a warning, because the other steps are still useful.
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

    /// The time for the rounds of the next step. `None` if the plan is out of time; the first time,
    /// a warning names the steps that are left out.
    pub(in crate::command) fn allot(&mut self, step: &dyn Experiment) -> Option<Duration> {
        let rounds = self.schedule.next(step.time(&self.caches), Instant::now());
        if rounds.is_none() && !self.is_over {
            self.is_over = true;
            self.progress.say(&format!(
                "haul: warning: out of time, {} steps are left out, from {} on; this machine is \
                 busy: run again when it is quiet",
                self.progress.steps_left(),
                step.name()
            ));
        }
        rounds
    }

    /// Runs one step, which needs `time`. The step's records go to the journal as soon as they
    /// are complete.
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
            caches: self.caches,
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

/// Gives each step a budget: a share of `budget`, or of `each` per step. Large sizes, whose
/// rounds are long, get a larger share than small ones.
pub(in crate::command) fn evenly(
    mut steps: Steps,
    budget: Option<Duration>,
    each: Duration,
) -> Steps {
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let whole = budget.unwrap_or(each * count);
    let weights: f64 = steps.iter().map(|step| step.weight()).sum();
    for step in &mut steps {
        let share = step.weight() / weights;
        step.set_budget(whole.mul_f64(share));
    }
    steps
}

/// Measures the steps until one fails, within `budget` if there is one. If the run needs much
/// longer, a message says so before it begins.
///
/// # Errors
/// There is not enough memory for one of the steps, or [`Runner::new`] or [`Runner::steps`]
/// fails.
pub(in crate::command) fn measure(
    steps: &mut Steps,
    budget: Option<Duration>,
    journal: &mut Journal,
) -> Result<(), Error> {
    for step in steps.iter() {
        step.check_memory()?;
    }
    let machine = this_machine();
    let caches = Caches::from_sizes(&machine.caches_bytes);
    let time: Time = steps.iter().map(|step| step.time(&caches)).sum();
    if budget.is_some() && time.overhead > OVERRUN.max(time.rounds / 4) {
        terminal::say(&format!(
            "haul: this needs about {:.0} s: the {:.0} s of --budget are for rounds; preparation, proofs \
             and the fewest rounds of each measurement need the rest",
            time.whole().as_secs_f64(),
            time.rounds.as_secs_f64()
        ));
    }
    let mut runner = Runner::new(&machine, journal, steps.len(), time.whole())?;
    runner.steps(steps, OnFailure::End)
}

/// This program and the arguments of one of its commands, for a child process.
pub(in crate::command) fn this_program(command: [&str; 2]) -> Program {
    // Without /proc: the path that the kernel received when it started this process.
    let started = || OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()).into();
    let path = std::env::current_exe().unwrap_or_else(|_| started());
    Program::new(path).with(command.map(OsString::from).into())
}

/// The start second and the process ID distinguish the runs of one machine.
fn run_name() -> String {
    format!("{}-{}", haul_experiments::context::now(), std::process::id())
}
