//! The rounds of a test.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::disturbance::Watch;
use haul_measure::rounds::placed::{self, CHANGED, ENTRANTS, Placed, TAILS};
use haul_measure::rounds::{self, Limits, Next};
use haul_model::Verdict;

use super::records;
use super::trial::{Failure, Sample};
use super::{Command, Field};
use crate::context::Context;
use crate::error::Error;
use crate::remarks::Remarks;

/// The fewest rounds of a test with a budget: the fewest that have an interval.
const ROUNDS_MIN: usize = haul_model::statistics::INTERVAL_VALUES_MIN;

/// A round: the order of its runs, and the sample of each entrant.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) order: [usize; ENTRANTS],
    pub(super) samples: [Sample; ENTRANTS],
}

/// The state of a test.
pub(super) struct Test<'a> {
    pub(super) field: &'a Field,
    /// The changes as text: the subject of the records.
    pub(super) subject: String,
    /// The command of each entrant.
    commands: [Command; ENTRANTS],
    pub(super) rounds: Vec<Round>,
    /// The numbers of rounds after which the test is analysed.
    pub(super) analyses: Vec<usize>,
    /// Processes that runs left behind, once.
    left: Vec<String>,
    /// The unit of the metric, once a run has shown it.
    pub(super) unit: Option<String>,
}

/// Runs the test, and emits its records. If a run fails or the test is stopped, the records are
/// those of the complete rounds.
pub(super) fn measure(field: &Field, context: &mut Context<'_>) -> Result<(), Error> {
    let mut test = Test::new(field)?;
    let mut watch = Watch::start(Sys::new());
    let ended = test.warm_up(context).and_then(|goes_on| match goes_on {
        true => test.repeat(&mut watch, context),
        false => Ok(()),
    });
    let mut remarks = Remarks::new(&[], &watch.finish());
    if !test.left.is_empty() {
        let note = format!("runs left processes, which haul ended: {}", test.left.join(", "));
        (context.warn)(&format!("{note}; their work is not part of the figures"));
        remarks.add(note);
    }
    for record in records::of(&test) {
        context.emit(remarks.on(record));
    }
    ended
}

impl<'a> Test<'a> {
    fn new(field: &'a Field) -> Result<Self, Error> {
        let changed = field.command.changed(&field.changes);
        let changed = changed.map_err(|reason| Error::Change { reason })?;
        let analyses = match field.is_until_decided {
            true => placed::analyses(field.rounds),
            false => vec![field.rounds],
        };
        Ok(Self {
            field,
            subject: field.changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            commands: [field.command.clone(), changed, field.command.clone()],
            rounds: Vec::new(),
            analyses,
            left: Vec::new(),
            unit: None,
        })
    }

    /// Runs both commands once, so that no round pays for cold files, and a command that does not
    /// work is reported at once. Returns whether the test goes on.
    fn warm_up(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        let started = Instant::now();
        for entrant in [placed::BASELINE, CHANGED] {
            if self.sample(entrant, 0, started, context)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn repeat(&mut self, watch: &mut Watch, context: &mut Context<'_>) -> Result<(), Error> {
        let started = Instant::now();
        let least = if self.field.budget.is_some() { ROUNDS_MIN } else { self.field.rounds };
        let budget = self.field.budget.unwrap_or(Duration::MAX);
        let most = self.field.rounds;
        let limits = Limits { budget, started, least: least.min(most), most };
        let mut state = (self, context);
        let (_, ended) = rounds::repeat(
            limits,
            watch,
            &mut state,
            |(test, context), number| test.round(number as usize, started, context),
            |_, _| (),
        );
        ended
    }

    /// Runs each entrant once.
    fn round(
        &mut self,
        number: usize,
        started: Instant,
        context: &mut Context<'_>,
    ) -> Result<Next, Error> {
        let order = placed::order(number, self.field.seed);
        let mut samples = [const { None }; ENTRANTS];
        for entrant in order {
            match self.sample(entrant, number + 1, started, context)? {
                Some(sample) => samples[entrant] = Some(sample),
                None => return Ok(Next::Stopped),
            }
        }
        let [Some(baseline), Some(changed), Some(again)] = samples else {
            return Ok(Next::Stopped);
        };
        self.rounds.push(Round { order, samples: [baseline, changed, again] });
        let is_analysed = self.analyses.contains(&self.rounds.len());
        let is_decided = self.field.is_until_decided && is_analysed && self.is_decided();
        Ok(if is_decided { Next::Last } else { Next::Round })
    }

    fn is_decided(&self) -> bool {
        self.compared().is_some_and(|found| self.verdict(&found) != Verdict::CannotTell)
    }

    /// The chance of a wrong interval in one analysis.
    fn tails(&self) -> f64 {
        TAILS / self.analyses.len() as f64
    }

    /// The comparison of all rounds in cost: below 1 is better.
    pub(super) fn compared(&self) -> Option<placed::Compared> {
        self.compared_by(&|sample| match self.field.is_higher_better {
            true => 1.0 / sample.figure.value,
            false => sample.figure.value,
        })
    }

    /// The comparison by another figure of the runs.
    pub(super) fn compared_by(&self, value: &dyn Fn(&Sample) -> f64) -> Option<placed::Compared> {
        placed::compare(&self.placed(value), self.tails(), self.field.seed)
    }

    /// The rounds with a figure of each run.
    pub(super) fn placed(&self, value: &dyn Fn(&Sample) -> f64) -> Vec<Placed> {
        let of = |round: &Round| Placed {
            order: round.order,
            values: [0, 1, 2].map(|entrant| value(&round.samples[entrant])),
        };
        self.rounds.iter().map(of).collect()
    }

    pub(super) fn verdict(&self, found: &placed::Compared) -> Verdict {
        let ends = [found.low, found.high];
        Verdict::decide(found.ratio, ends, ends, found.floor, self.field.matters)
    }

    /// Runs an entrant once; `None` if the test was stopped.
    fn sample(
        &mut self,
        entrant: usize,
        round: usize,
        started: Instant,
        context: &mut Context<'_>,
    ) -> Result<Option<Sample>, Error> {
        let side = if entrant == CHANGED { "with the change" } else { "without the change" };
        let what = match round {
            0 => format!("once before the rounds, {side}"),
            round => format!("round {round} of at most {}, {side}", self.field.rounds),
        };
        let budget = self.field.budget.unwrap_or_default();
        let progress = rounds::Progress { rounds: round, elapsed: started.elapsed(), budget };
        context.report_progress(&what, progress);
        let failed = |reason: String| Error::Trial { what: what.clone(), reason };
        let stop = context.stop;
        let is_stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        if is_stopped() {
            return Ok(None);
        }
        let sample = match self.field.trial(&self.commands[entrant], &is_stopped) {
            Ok(sample) => sample,
            // A signal may also have ended the program, so that it failed.
            Err(_) if is_stopped() => return Ok(None),
            Err(Failure::Stopped) => return Ok(None),
            Err(Failure::Reason(reason)) => return Err(failed(reason)),
        };
        self.check_unit(&sample).map_err(failed)?;
        for left in &sample.left {
            let name = left.split(" (").next().unwrap_or(left);
            if !self.left.iter().any(|known| known == name) {
                self.left.push(name.to_owned());
            }
        }
        Ok(Some(sample))
    }

    /// Refuses a figure whose unit changes, such as from ms to s.
    fn check_unit(&mut self, sample: &Sample) -> Result<(), String> {
        let Some(unit) = &sample.figure.unit else { return Ok(()) };
        match &self.unit {
            None => self.unit = Some(unit.clone()),
            Some(known) if known == unit => {}
            Some(known) => {
                return Err(format!(
                    "the metric {} changed its unit from {known} to {unit}, so that its numbers are not \
                     comparable; name an expression that matches one unit, or let the program print \
                     one unit",
                    self.field.metric
                ));
            }
        }
        Ok(())
    }
}
