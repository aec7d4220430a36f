//! The tail of small requests beside large copies: one thread answers requests of 1 KiB, which
//! arrive at fixed times, and begins a copy of 10 MiB at other times.

use std::time::{Duration, Instant};

use haul_measure::Caches;
use haul_measure::rounds::{Order, Round, evaluate};
use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::statistics::quantile;

use super::copier::Copier;
use super::place::Place;
use super::subject::{Copies, Job, Subject};
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

/// How often each subject runs, in turn with the others.
const ROUNDS: u32 = 9;

/// The 99.9th percentile of the time from a request's arrival to its answer.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The subjects; the first one is the baseline.
    pub subjects: Vec<Subject>,
    /// Whether another thread keeps the last processor busy.
    pub is_busy: bool,
    /// The time of all of them.
    pub budget: Duration,
}

impl Experiment for Tail {
    fn name(&self) -> String {
        if self.is_busy { "engine tail, one processor busy" } else { "engine tail" }.into()
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
        let mut copiers = Vec::new();
        for subject in self.subjects.iter().chain(self.subjects.first()) {
            copiers.push(Copier::open(*subject)?);
        }
        let each = self.budget / ROUNDS / copiers.len() as u32;
        let (mut order, mut rounds) = (Order::new(0..copiers.len(), 1), Vec::new());
        let _place = Place::new(self.is_busy);
        for _ in 0..ROUNDS {
            if context.is_stopped() && !rounds.is_empty() {
                break;
            }
            let mut values = vec![0.0; copiers.len()];
            for entrant in order.draw() {
                values[entrant] = tail(&mut copiers[entrant], each.max(LARGE_EVERY * 3))?;
            }
            rounds.push(Round { values, hit: false });
        }
        let names: Vec<String> = self.subjects.iter().map(|it| it.name().to_owned()).collect();
        let evaluation = evaluate(&rounds, &names, 0, 1);
        let evaluated = evaluation.series.into_iter().zip(evaluation.comparisons);
        for (subject, (samples, comparison)) in names.iter().zip(evaluated) {
            let mut record = Record::new("", name::ENGINE_TAIL, subject, "p99.9", "s")
                .with(key::SIZE_BYTES, LARGE_BYTES as u64)
                .with(key::BUSY_CORE, u8::from(self.is_busy));
            (record.samples, record.comparison) = (samples, comparison);
            context.emit(record);
        }
        Ok(())
    }
}

/// The 99.9th percentile in seconds.
fn tail(copier: &mut Copier, time: Duration) -> Result<f64, Error> {
    copier.resume()?;
    let tail = match copier {
        Copier::Call(call) => tail_of(call, time),
        Copier::Queue(queue) => tail_of(queue, time),
        Copier::Thread(thread) => tail_of(thread, time),
        Copier::Library(library) => tail_of(library, time),
    };
    copier.pause();
    Ok(tail)
}

fn tail_of(subject: &mut impl Copies, time: Duration) -> f64 {
    let (request, mut answer) = (vec![3_u8; REQUEST_BYTES], vec![0_u8; REQUEST_BYTES]);
    let mut spare = Some(Job::new(vec![1; LARGE_BYTES], vec![7; LARGE_BYTES].into()));
    let mut pending = None;
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
            if subject.is_done(&started) {
                spare = Some(subject.wait(started));
            } else {
                pending = Some(started);
            }
        }
        if Instant::now() >= next_large
            && let Some(job) = spare.take()
        {
            next_large += LARGE_EVERY;
            pending = Some(subject.submit(job));
        }
    }
    if let Some(started) = pending {
        subject.watch(started);
    }
    quantile(&times, 0.999).unwrap_or(0.0)
}
