//! A recorded history on every heap: the time of its operations and the memory of the heap, over
//! the course of the history.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::Caches;
use haul_measure::disturbance::Watch;
use haul_measure::memory::{HUGE_PAGE_BYTES, check_available};
use haul_measure::rounds::{self, Limits, Next, Order, Round, evaluate};
use haul_measure::sys;
use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::trace::History;

use super::child::{Figures, Running};
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

/// The number of bytes by which the live blocks may exceed the growth of a process. Live blocks
/// may use memory that was free but resident before the first operation, although the heap was
/// asked to return it: some 100 KiB of glibc, and the rest of the first huge pages of other
/// heaps.
const FREE_BEFORE_BYTES: u64 = 512 << 10;
const FREE_BEFORE_BYTES_HUGE: u64 = 2 * HUGE_PAGE_BYTES as u64;

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

/// A heap in a run.
struct Entrant<'a> {
    found: &'a Found,
    version: String,
    pages: Option<String>,
    failure: Option<Error>,
    courses: Vec<Course>,
}

/// The result of one repetition.
#[derive(Clone, Debug, Default)]
struct Course {
    /// Nanoseconds per operation, by point.
    time_ns: Vec<f64>,
    /// Operations of each point.
    operations: Vec<usize>,
    /// The growth of the resident MiB since the first operation, at each point's end.
    footprint_mib: Vec<f64>,
    hit: bool,
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

    fn emit(
        &self,
        start: &Start,
        points: &Points,
        entrants: &[Entrant<'_>],
        remarks: &Remarks,
        context: &mut Context<'_>,
    ) {
        let (again, subjects) = entrants.split_last().expect("the baseline is measured twice");
        let subjects: Vec<&Entrant<'_>> =
            subjects.iter().filter(|entrant| entrant.failure.is_none()).collect();
        let record = |entrant: &Entrant<'_>, metric: &str, unit: &str| {
            let mut record = self.record(start, entrant.found.peer.name(), metric, unit);
            record = record.with(key::VERSION, entrant.version.clone());
            if let Some(pages) = &entrant.pages {
                record = record.with(key::PAGES, pages.clone());
            }
            remarks.on(record)
        };
        self.emit_whole(&subjects, again, start.threads > start.cpus.len(), &record, context);
        self.emit_asked_for(start, points, context);
        for entrant in &subjects {
            for (point, &end) in points.ends.iter().enumerate() {
                let at = |record: Record| self.at(record, end);
                let samples = |of: fn(&Course) -> &Vec<f64>| {
                    entrant.courses.iter().map(|course| of(course)[point]).collect()
                };
                let mut footprint = at(record(entrant, "footprint", "MiB"));
                footprint.samples = samples(|course| &course.footprint_mib);
                context.emit(footprint);
                let mut time = at(record(entrant, "time", "ns"));
                time.samples = samples(|course| &course.time_ns);
                context.emit(time);
            }
        }
    }

    /// Emits two figures for the whole history, compared with the baseline.
    fn emit_whole(
        &self,
        subjects: &[&Entrant<'_>],
        again: &Entrant<'_>,
        crowded: bool,
        record: &dyn Fn(&Entrant<'_>, &str, &str) -> Record,
        context: &mut Context<'_>,
    ) {
        let names: Vec<String> =
            subjects.iter().map(|entrant| entrant.found.peer.name().to_owned()).collect();
        for (metric, unit) in [("time", "ns"), ("footprint_peak", "MiB")] {
            let of = if unit == "ns" { Course::mean_ns } else { Course::peak_mib };
            let round = |index: usize| Round {
                values: subjects
                    .iter()
                    .copied()
                    .chain([again])
                    .map(|entrant| of(&entrant.courses[index]))
                    .collect(),
                // Threads that share CPUs do not count as other processes.
                hit: !crowded && subjects.iter().any(|entrant| entrant.courses[index].hit),
            };
            let rounds: Vec<Round> = (0..again.courses.len()).map(round).collect();
            let found = evaluate(&rounds, &names, 0, self.seed);
            for (index, subject) in subjects.iter().enumerate() {
                let mut whole = record(subject, metric, unit);
                whole.samples.clone_from(&found.series[index]);
                whole.comparison = found.comparisons[index].clone();
                context.emit(whole);
            }
        }
    }

    /// Emits the bytes that the recorded program had requested, which is the least footprint that
    /// a heap can have.
    fn emit_asked_for(&self, start: &Start, points: &Points, context: &mut Context<'_>) {
        for (&end, &live) in points.ends.iter().zip(&points.live) {
            let record = self.record(start, "asked for", "footprint", "MiB");
            let mut record = self.at(record, end);
            record.samples = vec![live as f64 / MIB];
            context.emit(record);
        }
    }

    /// The parameters that all records share.
    fn record(&self, start: &Start, subject: &str, metric: &str, unit: &str) -> Record {
        Record::new("", name::HEAP_REPLAY, subject, metric, unit)
            .with(key::TRACE, self.trace.name())
            .with(key::PROGRAM, self.trace.header.program_name())
            .with(key::OPERATIONS, self.trace.history.operations.len())
            .with(key::THREADS, start.threads)
            .with(key::CPUS, start.cpus.len())
            .with(key::THREADS_RECORDED, self.trace.history.threads.len())
            .with(key::RERUN, self.rerun.clone())
    }

    /// The record of a point: the number of operations before it, and their time in the recording.
    fn at(&self, record: Record, end: usize) -> Record {
        let time_ns = self.trace.history.operations[end - 1].time_ns;
        let at_ms = (time_ns as f64 / 1e3).round() / 1e3;
        record.with(key::OPERATIONS_DONE, end).with(key::AT_MS, at_ms)
    }
}

impl<'a> Entrant<'a> {
    fn new(found: &'a Found) -> Self {
        Self { found, version: String::new(), pages: None, failure: None, courses: Vec::new() }
    }

    /// Starts a process for one repetition. Returns the resident bytes of the process after it
    /// has read the steps.
    fn begin(
        &mut self,
        driver: &Program,
        start: &Start,
        script: &Script,
    ) -> Result<(Running, f64), Error> {
        let start =
            Start { peer: self.found.peer, library: self.found.library.clone(), ..start.clone() };
        let mut running = Running::start(driver, self.found, &start)?;
        self.version.clone_from(&running.version);
        self.pages.clone_from(&running.pages);
        let figures = running.perform(&Task::Load { path: script.path().into() })?;
        Ok((running, figures.values.first().copied().unwrap_or(0.0)))
    }

    /// Adds a point of this many operations, with this many live bytes at its end.
    ///
    /// # Errors
    /// The resident bytes are fewer than the live bytes, although every page of the live blocks
    /// was written to. The resident bytes are therefore not the footprint.
    fn add(
        &mut self,
        figures: &Figures,
        resident: f64,
        operations: usize,
        live: u64,
    ) -> Result<(), Error> {
        let [time_ns, bytes] = figures.values[..] else { return Ok(()) };
        let (grown, live) = (bytes - resident, live as f64);
        let free_before = match self.found.peer {
            Peer::Haul | Peer::Dpdk => FREE_BEFORE_BYTES_HUGE,
            _ => FREE_BEFORE_BYTES,
        };
        if grown + (free_before as f64) < live {
            return Err(Error::Driver {
                peer: self.found.peer.name().to_owned(),
                attempt: "report its footprint".to_owned(),
                reason: format!(
                    "its memory grew by {:.2} MiB, but {:.2} MiB are live and were written to: the \
                     machine swaps, or merges pages; replay it with more free memory",
                    grown / MIB,
                    live / MIB
                ),
            });
        }
        let course = self.courses.last_mut().expect("pushed for each repetition");
        course.time_ns.push(time_ns);
        course.operations.push(operations);
        // The live bytes are resident. If the process has grown by less, some of the live bytes
        // are on pages that the heap had before.
        course.footprint_mib.push(grown.max(live) / MIB);
        course.hit |= figures.hit;
        Ok(())
    }
}

impl Course {
    /// The mean over the operations of all points.
    fn mean_ns(&self) -> f64 {
        let all: usize = self.operations.iter().sum();
        let of_points = self.time_ns.iter().zip(&self.operations);
        let sum: f64 = of_points.map(|(time_ns, count)| time_ns * *count as f64).sum();
        sum / all.max(1) as f64
    }

    fn peak_mib(&self) -> f64 {
        self.footprint_mib.iter().copied().fold(0.0, f64::max)
    }
}
