//! The tail of small requests beside large copies: one thread answers requests of 1 KiB, which
//! arrive at fixed times, and begins a copy of 10 MiB at other times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_measure::Caches;
use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::statistics::quantile;

use super::subject::Subject;
use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL};

/// The size of a request.
const REQUEST_BYTES: usize = 1 << 10;
/// The size of a large copy.
const LARGE_BYTES: usize = 10 << 20;
/// The time between two requests.
const REQUEST_EVERY: Duration = Duration::from_micros(20);
/// The time between two large copies.
const LARGE_EVERY: Duration = Duration::from_millis(10);

/// The 99.9th percentile of the time from a request's arrival to its answer.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// The time of all of them.
    pub budget: Duration,
}

impl Experiment for Tail {
    fn name(&self) -> String {
        "engine tail".into()
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        /// Each subject runs this often, in turn with the others.
        const ROUNDS: u32 = 5;
        let each = self.budget / ROUNDS / self.subjects.len().max(1) as u32;
        let mut tails = vec![Vec::new(); self.subjects.len()];
        for _ in 0..ROUNDS {
            for (subject, tails) in self.subjects.iter().zip(&mut tails) {
                if context.is_stopped() {
                    break;
                }
                tails.push(tail(*subject, each.max(LARGE_EVERY * 3))?);
            }
        }
        for (subject, samples) in self.subjects.iter().zip(tails) {
            let mut record = Record::new("", name::ENGINE_TAIL, subject.name(), "p99.9", "s")
                .with(key::SIZE_BYTES, LARGE_BYTES as u64);
            record.samples = samples;
            context.emit(record);
        }
        Ok(())
    }
}

/// The 99.9th percentile in seconds.
fn tail(subject: Subject, time: Duration) -> Result<f64, Error> {
    let mut copier = subject.open()?;
    let large: Arc<[u8]> = vec![7; LARGE_BYTES].into();
    let (request, mut answer) = (vec![3_u8; REQUEST_BYTES], vec![0_u8; REQUEST_BYTES]);
    let (mut spare, mut pending) = (Some(vec![1; LARGE_BYTES]), None);
    let mut times = Vec::new();
    let begun = Instant::now();
    let (mut arrival, mut next_large) = (begun, begun + LARGE_EVERY / 2);
    while begun.elapsed() < time {
        while Instant::now() < arrival {
            std::hint::spin_loop();
        }
        haul_copy::copy(&mut answer, &request);
        std::hint::black_box(&mut answer);
        times.push(arrival.elapsed().as_secs_f64());
        arrival += REQUEST_EVERY;
        if let Some(started) = pending.take() {
            if copier.is_done(&started) {
                spare = Some(copier.wait(started));
            } else {
                pending = Some(started);
            }
        }
        if Instant::now() >= next_large
            && let Some(target) = spare.take()
        {
            next_large += LARGE_EVERY;
            pending = Some(copier.submit(target, &large));
        }
    }
    Ok(quantile(&times, 0.999).unwrap_or(0.0))
}
