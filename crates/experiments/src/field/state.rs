//! The state of a test: its commands, its complete rounds, and their comparison.

use haul_measure::rounds::placed::{self, ENTRANTS, Placed, TAILS};
use haul_model::Verdict;

use super::trial::Sample;
use super::{Command, Field};
use crate::error::Error;

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
    pub(super) commands: [Command; ENTRANTS],
    pub(super) rounds: Vec<Round>,
    /// The numbers of rounds after which the test is analysed.
    pub(super) analyses: Vec<usize>,
    /// Processes that runs left behind, once.
    pub(super) left: Vec<String>,
    /// The unit of the metric, once a run has shown it.
    pub(super) unit: Option<String>,
}

impl<'a> Test<'a> {
    /// A test before its first round.
    pub(super) fn new(field: &'a Field) -> Result<Self, Error> {
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

    /// Whether the rounds so far have a verdict.
    pub(super) fn is_decided(&self) -> bool {
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

    /// Refuses a figure whose unit changes, such as from ms to s.
    pub(super) fn check_unit(&mut self, sample: &Sample) -> Result<(), String> {
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
