//! The run: every heap in turn, each in a separate process, and the baseline twice.

use std::time::{Duration, Instant};

use haul_machine::sys::Sys;
use haul_measure::Caches;
use haul_measure::disturbance::Watch;
use haul_measure::memory::{available_bytes, check_available};
use haul_measure::rounds::{self, Limits, Next, Order};
use haul_measure::sys;
use haul_model::Bytes;

use super::child::{Figures, Running};
use super::peers::{Found, Peer};
use super::protocol::{Shape, Start, Task};
use super::test::{Extent, Test};
use crate::context::Context;
use crate::drive::Program;
use crate::error::Error;
use crate::experiment::{Experiment, on_threads};
use crate::leave_out::or_leave_out;
use crate::remarks::Remarks;

/// The time of a test in addition to its rounds, per heap. For growth, this is the time of three
/// repetitions, each in a new process, per 1000 blocks of a round. For any other test, it is the
/// time of one process.
const GROWING_HEAP: Duration = Duration::from_millis(400);
const HEAP: Duration = Duration::from_millis(70);

/// The time of a repeated sample: long compared with the conversation with a driver, and short
/// compared with the whole test.
const SAMPLE: Duration = Duration::from_millis(1);

/// `SAMPLE` if threads share CPUs: many time slices of a scheduler (some ms each) for each
/// thread.
const SAMPLE_CROWDED: Duration = Duration::from_millis(60);

/// The number of samples for the estimate of a heap's cost, at each length.
const CALIBRATIONS: usize = 3;

/// A slower heap repeats the operation as often as the fastest heap, but fewer times if its
/// sample would take more than this many times as long.
const SLOWEST_SAMPLE_MULTIPLE: f64 = 4.0;

/// The smallest number of repetitions per test, independent of the budget, and the largest
/// number.
const REPETITIONS_MIN: usize = 5;
const REPETITIONS_MIN_FRESH: usize = 3;
const REPETITIONS_MAX: usize = 1000;

/// The largest ratio of the memory of ByteDance's growth test to its payload. DPDK uses 2.05
/// times the payload, and one heap may still hold memory while the pages of the next heap are
/// touched.
const FRESH_MEMORY_FACTOR: usize = 3;

/// The number of bytes in which a driver notes a block's address, its size and a time.
const LIST_BYTES: usize = 24;

/// The largest block, in bytes: no machine has memory for two such blocks.
const BLOCK_BYTES_MAX: usize = 1 << 40;

/// One test of several heaps.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The test.
    pub test: Test,
    /// The extent of the test.
    pub extent: Extent,
    /// The number of threads that perform the test at the same time, each on separate blocks.
    pub threads: usize,
    /// Whether other processes can share haul's heap.
    pub shared: bool,
    /// Whether heaps may use huge pages from the kernel's pool.
    pub pool: bool,
    /// The bytes that a thread of haul's heap keeps ready for future allocations; 0: none.
    pub grow_ahead_bytes: usize,
    /// The bytes of haul's heap that have memory before the first allocation; 0: none.
    pub ready_bytes: usize,
    /// The name of the engine of [`Test::Zeroed`].
    pub engine: String,
    /// The measured heaps. The first is the baseline.
    pub heaps: Vec<Found>,
    /// The command that starts the heaps' drivers.
    pub driver: Program,
    /// The longest time of the test.
    pub budget: Duration,
    /// The seed of the order of heaps, and of sizes and lifetimes.
    pub seed: u64,
}

/// A heap in a run.
pub(super) struct Entrant<'a> {
    pub(super) found: &'a Found,
    pub(super) start: Start,
    running: Option<Running>,
    pub(super) iterations: u64,
    pub(super) version: String,
    pub(super) pages: Option<String>,
    /// The reason for which the heap was removed from the run.
    pub(super) failure: Option<Error>,
    /// The results of the heap's tasks, by repetition.
    pub(super) given: Vec<Vec<Figures>>,
}

/// The heaps in the order that comparisons need: `libc` first, if it is one of the heaps.
#[must_use]
pub fn baseline_first(mut heaps: Vec<Found>) -> Vec<Found> {
    heaps.sort_by_key(|found| found.peer != Peer::Libc);
    heaps
}

/// Checks a shape that a user requested.
///
/// # Errors
/// [`Error::BlockSize`] or [`Error::BlockAlign`].
pub fn check_shape(size: u64, align: u64) -> Result<Shape, Error> {
    let limit = Bytes(BLOCK_BYTES_MAX as u64);
    if size == 0 || size > limit.0 {
        return Err(Error::BlockSize { asked: Bytes(size), limit });
    }
    if !align.is_power_of_two() || align > limit.0 {
        return Err(Error::BlockAlign { asked: Bytes(align), limit });
    }
    Ok(Shape { size: size as usize, align: align as usize })
}

impl Experiment for Bench {
    fn name(&self) -> String {
        let Shape { size, align } = self.extent.shape;
        let (size, align) = (Bytes(size as u64), Bytes(align as u64));
        let threads = on_threads(self.threads);
        format!("heap {}, {size} aligned to {align}{threads}", self.test.name())
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    /// The baseline is measured twice.
    fn overhead(&self, _: &Caches) -> Duration {
        let heaps = u32::try_from(self.heaps.len() + 1).unwrap_or(u32::MAX);
        match self.test {
            Test::Growth | Test::Mixed | Test::Regrow => {
                GROWING_HEAP.mul_f64(self.extent.count as f64 / 1000.0) * heaps
            }
            _ => HEAP * heaps,
        }
    }

    fn check_memory(&self) -> Result<(), Error> {
        let proc = Sys::new();
        let heaps = self.heaps.len() + 1;
        let at_once = if self.test.is_fresh() { FRESH_MEMORY_FACTOR } else { heaps };
        let blocks = self.test.blocks_max(&self.extent).saturating_mul(self.threads);
        let lists = blocks.saturating_mul(LIST_BYTES).saturating_mul(heaps);
        let wanted = self.memory_bytes().saturating_mul(at_once).saturating_add(lists) as u64;
        check_available(wanted, &proc)?;
        // The baseline runs twice, unless only one heap exists at a time.
        let twice = self.heaps.iter().chain(self.heaps.first());
        let own = twice.filter(|found| found.peer == Peer::Haul).count();
        let own = if self.test.is_fresh() { own.min(1) } else { own };
        let early = self.grow_ahead_bytes.saturating_add(self.ready_bytes);
        let ahead = early.saturating_mul(own) as u64;
        let left = available_bytes(&proc).saturating_sub(wanted);
        if ahead > left {
            let asked = Bytes(early as u64);
            return Err(Error::GrowAhead { asked, available: Bytes(left) });
        }
        Ok(())
    }

    /// Emits a record for each heap and figure. A heap that fails has no records and is reported
    /// to the context as a warning; the other heaps continue. If the baseline fails, all heaps
    /// have the earlier repetitions.
    ///
    /// # Errors
    /// haul's own heap or the baseline fails; the records of the other heaps are emitted first.
    /// It is also an error if the test needs more memory than is available.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let starts = self.check(context)?;
        let mut entrants: Vec<Entrant<'_>> =
            self.heaps.iter().map(|found| Entrant::new(found, &starts)).collect();
        // The baseline again, to compare it with itself. Like the other heaps, it has a separate
        // process.
        entrants.push(Entrant::new(&self.heaps[0], &starts));
        let mut watch = Watch::start(Sys::new());
        self.calibrate(&mut entrants, context)?;
        let (repetitions, ended) = self.repeat(&mut entrants, &mut watch, context);
        if repetitions > 0 {
            let remarks = Remarks::new(&[], &watch.finish());
            self.emit(&mut entrants, &remarks, context);
        }
        ended?;
        let own = entrants.into_iter().find(|entrant| entrant.found.peer == Peer::Haul);
        own.and_then(|haul| haul.failure).map_or(Ok(()), Err)
    }
}

impl Bench {
    /// The settings of the drivers, if there is enough memory.
    fn check(&self, context: &Context<'_>) -> Result<Start, Error> {
        let Extent { shape, .. } = self.extent;
        check_shape(shape.size as u64, shape.align as u64)?;
        for (what, value) in [
            ("rounds", self.extent.rounds),
            ("count", self.extent.count),
            ("threads", self.threads),
        ] {
            if value == 0 {
                return Err(haul_measure::Error::Sampling { what, value: 0, limit: 1 }.into());
            }
        }
        self.test.threads(Some(self.threads))?;
        self.check_memory()?;
        let cpus = if context.cpus.is_empty() { sys::affinity() } else { context.cpus.clone() };
        Ok(Start {
            peer: Peer::Haul,
            library: None,
            threads: self.threads,
            cpus,
            memory_bytes: self.memory_bytes(),
            blocks_max: self.test.blocks_max(&self.extent),
            pool: self.pool,
            shared: self.shared,
            grow_ahead_bytes: self.grow_ahead_bytes,
            ready_bytes: self.ready_bytes,
            engine: if self.test == Test::Zeroed { self.engine.clone() } else { String::new() },
        })
    }

    /// The memory of all blocks together.
    fn memory_bytes(&self) -> usize {
        let blocks = self.test.blocks_max(&self.extent).saturating_mul(self.threads);
        self.test.block_bytes_max(&self.extent).saturating_mul(blocks)
    }

    pub(super) fn is_crowded(&self, entrants: &[Entrant<'_>]) -> bool {
        entrants.first().is_some_and(|entrant| self.threads > entrant.start.cpus.len())
    }

    /// The number of repetitions of each heap in a sample, if the test repeats.
    fn calibrate(
        &self,
        entrants: &mut [Entrant<'_>],
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        if self.test.repeated(&self.extent).is_none() {
            return Ok(());
        }
        let sample = if self.is_crowded(entrants) { SAMPLE_CROWDED } else { SAMPLE };
        let share = self.threads.div_ceil(entrants[0].start.cpus.len().max(1));
        // The intended time that one thread spends in a sample. If threads share CPUs, they share
        // the time of the sample.
        let target_ns = sample.as_nanos() as f64 / share as f64;
        let mut costs_ns = Vec::new();
        for entrant in entrants.iter_mut() {
            let cost_ns = self.cost_ns(entrant, target_ns);
            costs_ns.push(self.or_leave_out(entrant, cost_ns, context)?.unwrap_or(f64::INFINITY));
        }
        let fastest = costs_ns.iter().copied().fold(f64::INFINITY, f64::min);
        for (entrant, cost_ns) in entrants.iter_mut().zip(&costs_ns) {
            let affordable = SLOWEST_SAMPLE_MULTIPLE * target_ns / cost_ns;
            entrant.iterations = (target_ns / fastest).min(affordable).max(1.0) as u64;
        }
        Ok(())
    }

    /// The nanoseconds that a thread spends per operation, from samples of at least a quarter of
    /// the target. The result is the fastest of a few samples, because another process may have
    /// run during any of them.
    fn cost_ns(&self, entrant: &mut Entrant<'_>, target_ns: f64) -> Result<f64, Error> {
        let mut iterations = 1;
        loop {
            let mut each_ns = f64::INFINITY;
            for _ in 0..CALIBRATIONS {
                let tasks = self.test.tasks(&self.extent, iterations, self.seed);
                each_ns = each_ns.min(entrant.perform(&self.driver, &tasks[0])?.values[0]);
            }
            let ns = each_ns * iterations as f64;
            if ns >= target_ns / 4.0 {
                return Ok(each_ns);
            }
            let factor = (target_ns / 2.0 / ns.max(1.0)).clamp(2.0, 16.0);
            iterations = (iterations as f64 * factor) as u64;
        }
    }

    /// Repeats the test until the budget is spent or the baseline fails. Returns the number of
    /// completed repetitions.
    fn repeat(
        &self,
        entrants: &mut [Entrant<'_>],
        watch: &mut Watch,
        context: &mut Context<'_>,
    ) -> (usize, Result<(), Error>) {
        let mut order = Order::new(0..entrants.len(), self.seed);
        let least = if self.test.is_fresh() { REPETITIONS_MIN_FRESH } else { REPETITIONS_MIN };
        let (budget, started, most) = (self.budget, Instant::now(), REPETITIONS_MAX);
        let round = |context: &mut Context<'_>, number| {
            for entrant in entrants.iter_mut() {
                entrant.given.push(Vec::new());
            }
            self.repetition(number, entrants, &mut order, context)
        };
        let after = |context: &mut Context<'_>, progress| {
            context.report_progress(self.test.experiment(), progress);
        };
        let limits = Limits { budget, started, least, most };
        let (done, ended) = rounds::repeat(limits, watch, context, round, after);
        for entrant in entrants.iter_mut() {
            entrant.given.truncate(done);
        }
        (done, ended)
    }

    /// Makes one repetition of the test with every heap, in a new random order. If a heap serves
    /// all repetitions, the heaps alternate task by task. If each repetition begins with a fresh
    /// heap, the tasks of one heap follow each other, as in a program: tasks of other heaps
    /// between them would empty the caches, and put seconds between the first round and the last.
    fn repetition(
        &self,
        number: u64,
        entrants: &mut [Entrant<'_>],
        order: &mut Order,
        context: &mut Context<'_>,
    ) -> Result<Next, Error> {
        let count = self.test.tasks(&self.extent, 1, self.seed).len();
        let (turns, row) = if self.test.is_fresh() { (1, count) } else { (count, 1) };
        for turn in 0..turns {
            for index in order.draw() {
                for place in turn * row..(turn + 1) * row {
                    if context.is_stopped() {
                        return Ok(Next::Stopped);
                    }
                    self.task(number, place, &mut entrants[index], context)?;
                }
                if self.test.is_fresh() {
                    entrants[index].running = None;
                }
            }
        }
        Ok(Next::Round)
    }

    /// One task of a repetition with one heap, unless the heap was removed from the run.
    fn task(
        &self,
        number: u64,
        place: usize,
        entrant: &mut Entrant<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        if entrant.failure.is_some() {
            return Ok(());
        }
        let seed = self.seed.wrapping_add(number);
        let tasks = self.test.tasks(&self.extent, entrant.iterations, seed);
        let figures = entrant.perform(&self.driver, &tasks[place]);
        if let Some(figures) = self.or_leave_out(entrant, figures, context)? {
            entrant.given.last_mut().expect("pushed for each repetition").push(figures);
        }
        Ok(())
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
        let done = or_leave_out(done, name, is_needed, &mut entrant.failure, context)?;
        if done.is_none() {
            entrant.running = None;
        }
        Ok(done)
    }
}

impl<'a> Entrant<'a> {
    fn new(found: &'a Found, start: &Start) -> Self {
        let start = Start { peer: found.peer, library: found.library.clone(), ..start.clone() };
        Self {
            found,
            start,
            running: None,
            iterations: 1,
            version: String::new(),
            pages: None,
            failure: None,
            given: Vec::new(),
        }
    }

    /// Makes the heap's driver perform a task. If no driver runs, it starts one first.
    fn perform(&mut self, driver: &Program, task: &Task) -> Result<Figures, Error> {
        let running = match &mut self.running {
            Some(running) => running,
            none => {
                let running = Running::start(driver, self.found, &self.start)?;
                self.version.clone_from(&running.version);
                self.pages.clone_from(&running.pages);
                none.insert(running)
            }
        };
        running.perform(task)
    }
}
