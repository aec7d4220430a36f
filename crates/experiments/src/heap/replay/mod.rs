//! A recorded history on every heap: the time of its operations and the memory of the heap, over
//! the course of the history.
//!
//! From the bottom up:
//!
//! - `entrant`: a heap in a replay, and its results;
//! - `emit`: turns the results into records.

mod emit;
mod entrant;

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::Caches;
use haul_measure::disturbance::Watch;
use haul_measure::memory::check_available;
use haul_measure::rounds::{self, Limits, Next, Order};
use haul_measure::sys;
use haul_model::trace::History;

use super::child::Running;
use super::peers::{Found, Peer};
use super::protocol::{Start, Task};
use super::script::Script;
use super::trace::{Trace, live_bytes};
use crate::context::Context;
use crate::drive::Program;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::leave_out::or_leave_out;
use crate::remarks::Remarks;
use entrant::{Course, Entrant};

/// The number of points in the course: as many as fit into a figure.
const POINTS: usize = 50;

/// The smallest number of repetitions, independent of the budget, and the largest number. Each
/// repetition has a separate process, so that it begins with an empty heap.
const REPETITIONS_MIN: usize = 3;
const REPETITIONS_MAX: usize = 200;

/// The largest number of threads of a replay. If the recording has more threads, they are
/// distributed over these threads.
pub const THREADS_MAX: usize = 64;

/// The largest ratio of a heap's memory to the requested bytes: DPDK gets three times the
/// requested bytes.
const MEMORY_FACTOR: u64 = 3;

/// The least memory for which a heap is built, in bytes.
const MEMORY_LEAST: u64 = 64 << 20;

const MIB: f64 = 1_048_576.0;

/// A replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The replayed trace.
    pub trace: Trace,
    /// Whether one thread performs all operations in order, instead of as many threads as were
    /// recorded.
    pub is_merged: bool,
    /// The measured heaps. The first is the baseline.
    pub heaps: Vec<Found>,
    /// The command that starts the heaps' drivers.
    pub driver: Program,
    /// The longest time of the replay.
    pub budget: Duration,
    /// The seed of the order of heaps.
    pub seed: u64,
    /// The command that repeats this replay.
    pub rerun: String,
}

/// The points of the history at which figures are emitted.
struct Points {
    /// The ends of the points, in operations.
    ends: Vec<usize>,
    /// The requested bytes that are live at the end of each point.
    live: Vec<u64>,
}

impl Points {
    /// Distributes the points evenly over the history, except for one point at the largest number
    /// of live bytes.
    fn of(history: &History) -> Self {
        let live: Vec<u64> = live_bytes(history).collect();
        let points = POINTS.min(live.len());
        let mut ends: Vec<usize> = (1..=points).map(|point| live.len() * point / points).collect();
        let most = live.iter().copied().max().unwrap_or(0);
        let peak = live.iter().position(|bytes| *bytes == most).map_or(live.len(), |at| at + 1);
        // The last point stays, because the figures cover the history up to its end.
        let before = ends.len().saturating_sub(1);
        let nearest = (0..before).min_by_key(|index| ends[*index].abs_diff(peak));
        if let Some(nearest) = nearest.filter(|_| !ends.contains(&peak)) {
            ends[nearest] = peak;
        }
        let live = ends.iter().map(|end| live[end - 1]).collect();
        Self { ends, live }
    }
}

impl Experiment for Replay {
    fn name(&self) -> String {
        format!("replay of {}", self.trace.name())
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    /// The time is not known before the trace is replayed once.
    fn overhead(&self, _: &Caches) -> Duration {
        Duration::ZERO
    }

    fn check_memory(&self) -> Result<(), Error> {
        let wanted = self.peak_bytes().saturating_mul(MEMORY_FACTOR);
        Ok(check_available(wanted, &Sys::new())?)
    }

    /// For each heap, emits a record of its time and a record of its largest footprint, and both
    /// at each point of the history. Also emits the requested bytes of the trace itself. A heap
    /// that fails is left out and reported to the context as a warning. If the baseline fails,
    /// all heaps have the repetitions before it.
    ///
    /// # Errors
    /// haul's own heap or the baseline fails; the records of the other heaps are emitted first.
    /// It is also an error if there is not enough memory.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        self.check_memory()?;
        let start = self.start(context);
        let script = Script::write(&self.trace.history)?;
        let points = Points::of(&self.trace.history);
        let mut entrants: Vec<Entrant<'_>> = self.heaps.iter().map(Entrant::new).collect();
        // The baseline again, to compare it with itself.
        entrants.push(Entrant::new(&self.heaps[0]));
        let mut order = Order::new(0..entrants.len(), self.seed);
        let mut watch = Watch::start(Sys::new());
        let limits = Limits {
            budget: self.budget,
            started: Instant::now(),
            least: REPETITIONS_MIN,
            most: REPETITIONS_MAX,
        };
        let round = |context: &mut Context<'_>, _| {
            self.repetition((&start, &script, &points), &mut entrants, &mut order, context)
        };
        let what = self.name();
        let after = |context: &mut Context<'_>, progress| context.report_progress(&what, progress);
        let (done, ended) = rounds::repeat(limits, &mut watch, context, round, after);
        for entrant in &mut entrants {
            entrant.courses.truncate(done);
        }
        if done > 0 {
            let mut remarks = Remarks::new(&self.trace.remarks(), &watch.finish());
            let (threads, cpus) = (start.threads, start.cpus.len());
            if threads > cpus {
                remarks.add(format!(
                    "{threads} threads share {cpus} CPUs: times include their waiting"
                ));
            }
            self.emit(&start, &points, &entrants, &remarks, context);
        }
        ended?;
        let own = entrants.into_iter().find(|entrant| entrant.found.peer == Peer::Haul);
        own.and_then(|haul| haul.failure).map_or(Ok(()), Err)
    }
}

impl Replay {
    /// The number of threads that replay.
    #[must_use]
    pub fn threads(&self) -> usize {
        if self.is_merged { 1 } else { self.trace.history.threads.len().clamp(1, THREADS_MAX) }
    }

    /// The largest memory of all blocks together.
    fn peak_bytes(&self) -> u64 {
        self.trace.history.peak_bytes.max(MEMORY_LEAST)
    }

    fn start(&self, context: &Context<'_>) -> Start {
        let cpus = if context.cpus.is_empty() { sys::affinity() } else { context.cpus.clone() };
        Start {
            peer: Peer::Haul,
            library: None,
            threads: self.threads(),
            cpus,
            memory_bytes: usize::try_from(self.peak_bytes()).unwrap_or(usize::MAX),
            blocks_max: 0,
            pool: true,
            shared: false,
            grow_ahead_bytes: 0,
            ready_bytes: 0,
            engine: String::new(),
        }
    }

    /// Replays every point with every heap, in a new random order. Each heap has a separate
    /// process.
    fn repetition(
        &self,
        (start, script, points): (&Start, &Script, &Points),
        entrants: &mut [Entrant<'_>],
        order: &mut Order,
        context: &mut Context<'_>,
    ) -> Result<Next, Error> {
        let mut running: Vec<Option<(Running, f64)>> = Vec::new();
        for entrant in entrants.iter_mut() {
            let begun = match entrant.failure {
                Some(_) => None,
                None => {
                    let begun = entrant.begin(&self.driver, start, script);
                    self.or_leave_out(entrant, begun, context)?
                }
            };
            running.push(begun);
            entrant.courses.push(Course::default());
        }
        let mut first = 0;
        for (&end, &live) in points.ends.iter().zip(&points.live) {
            for index in order.draw() {
                if context.is_stopped() {
                    return Ok(Next::Stopped);
                }
                let Some((driver, resident)) = &mut running[index] else { continue };
                let figures = driver.perform(&Task::Replay { first, end });
                let resident = *resident;
                let entrant = &mut entrants[index];
                let added =
                    figures.and_then(|figures| entrant.add(&figures, resident, end - first, live));
                if self.or_leave_out(entrant, added, context)?.is_none() {
                    running[index] = None;
                }
            }
            first = end;
        }
        Ok(Next::Round)
    }

    /// Removes a heap that failed from the run. Without the baseline, nothing can be compared.
    fn or_leave_out<T>(
        &self,
        entrant: &mut Entrant<'_>,
        done: Result<T, Error>,
        context: &mut Context<'_>,
    ) -> Result<Option<T>, Error> {
        let is_needed = *entrant.found == self.heaps[0];
        let name = entrant.found.peer.name();
        or_leave_out(done, name, is_needed, &mut entrant.failure, context)
    }
}
