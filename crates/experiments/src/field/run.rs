//! The rounds of a test.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::disturbance::Watch;
use haul_measure::rounds::placed::{self, CHANGED, ENTRANTS};
use haul_measure::rounds::{self, Limits, Next};

use super::Field;
use super::state::{Round, Test};
use super::trial::{Failure, Sample};
use super::{copies, records};
use crate::context::Context;
use crate::error::Error;
use crate::remarks::Remarks;

/// The fewest rounds of a test with a budget: the fewest that have an interval.
const ROUNDS_MIN: usize = haul_model::statistics::INTERVAL_VALUES_MIN;

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
    let copies = ended.as_ref().map_or(Ok(None), |()| copies::measure(&test, context));
    let (copies, ended) = match copies {
        Ok(copies) => (copies, ended),
        Err(error) => (None, Err(error)),
    };
    for record in records::of(&test, copies) {
        context.emit(remarks.on(record));
    }
    ended
}

impl Test<'_> {
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
}
