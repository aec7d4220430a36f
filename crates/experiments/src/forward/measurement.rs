//! A flow as an experiment: its restarts, and then its records.

use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::Caches;
use haul_measure::disturbance::Watch;

use super::bench::Bench;
use super::records;
use super::run::Run;
use super::sweep;
use super::throughput;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::Experiment;

impl Experiment for Bench {
    fn name(&self) -> String {
        match self.sweep.len() {
            0 => format!("forward {}, {} B", self.flow, self.size_bytes),
            sizes => format!("forward {}, {sizes} sizes", self.flow),
        }
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    /// The time of the restarts that are made independent of the budget.
    fn overhead(&self, _caches: &Caches) -> Duration {
        self.time_of(self.restarts.0).saturating_sub(self.budget)
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut run = Run::new(self, context)?;
        let mut watch = Watch::start(Sys::new());
        if !self.sweep.is_empty() {
            return sweep::measure(&mut run, &mut watch, context);
        }
        let ended = run.repeat(&mut watch, context);
        // The restarts before the failure are valid.
        records::emit(&run, &watch.finish(), context);
        ended?;
        throughput::measure(&run, &watch, context)
    }
}
