//! Determines the number of iterations per sample.

use std::sync::atomic::{AtomicBool, Ordering};

use haul_machine::sys::Sys;

use super::{Command, PRECISION_MULTIPLE, Run, mean_ns};
use crate::error::Error;

/// A slower subject gets as many iterations as the fastest one, so that both process the same
/// inputs. But its sample lasts at most this many times the planned length, because a longer
/// sample would use the time of the other subjects.
const SLOWEST_SAMPLE_MULTIPLE: f64 = 4.0;

/// The intended length of a sample as a multiple of the limit below which a sample is refused.
const ABOVE_REFUSAL: f64 = 2.0;

impl Run<'_> {
    /// Sets the iterations of every entrant. Returns false if the run is stopped.
    ///
    /// # Errors
    /// A sample remains too short, or a subject panics.
    pub(super) fn calibrate(&mut self, stop: &AtomicBool) -> Result<bool, Error> {
        let limit_ns = self.clock.precision_ns() * PRECISION_MULTIPLE;
        let target_ns = (self.sampling.sample.as_nanos() as f64).max(limit_ns * ABOVE_REFUSAL);
        let last = self.names.len() - 1;
        let mut costs_ns = Vec::new();
        for entrant in 0..last {
            match self.cost_ns(entrant, target_ns, stop)? {
                Some(cost_ns) => costs_ns.push(cost_ns),
                None => return Ok(false),
            }
        }
        let fastest = costs_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let common = self.at_most((target_ns / fastest).ceil());
        for (entrant, cost_ns) in costs_ns.iter().enumerate() {
            let affordable = self.at_most(SLOWEST_SAMPLE_MULTIPLE * target_ns / cost_ns);
            self.iterations[entrant] = common.min(affordable);
        }
        for entrant in 0..last {
            self.confirm(entrant, limit_ns)?;
        }
        // The second entrant of the baseline has the same iterations as the first.
        self.iterations[last] = self.iterations[self.baseline];
        Ok(true)
    }

    /// Nanoseconds per operation, from a sample of at least a quarter of the target.
    fn cost_ns(
        &self,
        entrant: usize,
        target_ns: f64,
        stop: &AtomicBool,
    ) -> Result<Option<f64>, Error> {
        let mut iterations = self.at_most(1.0);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let command = Command { entrant, iterations, round: 0 };
            let mut ns = mean_ns(&self.sample(command)?);
            if ns >= target_ns / 4.0 || iterations >= self.at_most(f64::INFINITY) {
                // Cold caches or another process may have slowed the first sample, so this
                // function uses the faster of two samples.
                ns = ns.min(mean_ns(&self.sample(command)?));
            }
            if ns >= target_ns / 4.0 || iterations >= self.at_most(f64::INFINITY) {
                return Ok(Some((ns / iterations as f64).max(f64::MIN_POSITIVE)));
            }
            let factor = (target_ns / 2.0 / ns.max(1.0)).clamp(2.0, 16.0);
            iterations = self.at_most(iterations as f64 * factor);
        }
    }

    /// Takes one sample in the same way as the run, to check its length and measure the subject's
    /// peak memory. A subject that has become faster since its calibration gets more iterations,
    /// up to the sampling's limit.
    fn confirm(&mut self, entrant: usize, limit_ns: f64) -> Result<(), Error> {
        let machine = Sys::new();
        loop {
            let reset = machine.reset_peak();
            let iterations = self.iterations[entrant];
            let elapsed_ns = mean_ns(&self.sample(Command { entrant, iterations, round: 0 })?);
            if reset {
                self.accounts[entrant].peak_bytes = machine.peak_bytes();
            }
            if elapsed_ns >= limit_ns {
                return Ok(());
            }
            if iterations >= self.at_most(f64::INFINITY) {
                return Err(Error::SampleTooShort {
                    subject: self.names[entrant].clone(),
                    iterations,
                    elapsed_ns,
                    precision_ns: self.clock.precision_ns(),
                    limit_ns,
                });
            }
            self.iterations[entrant] = self.at_most(iterations as f64 * 2.0);
        }
    }

    /// The next multiple that the sampling allows, at least one.
    fn at_most(&self, iterations: f64) -> u64 {
        let multiple = self.sampling.iterations_multiple.max(1);
        let most = (self.sampling.iterations_max / multiple).max(1);
        (iterations / multiple as f64).ceil().clamp(1.0, most as f64) as u64 * multiple
    }
}
