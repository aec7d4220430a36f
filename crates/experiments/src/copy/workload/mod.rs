//! Memory and lists of each thread, and the subject that runs on them.
//!
//! All subjects of a run share one workload: the same memory and the same lists. Two requirements
//! conflict. Subjects must be compared on the same operations, but a branch predictor recognises
//! a list that it has seen before. On a Zen 4, a list of 32 Ki calls of 17-64 B that all subjects
//! of a round shared took between 3.6 and 6.1 ns per call, depending on how well it was
//! predicted, and the baseline's interval against itself was 7% wide. With the lists described
//! below, that interval is 0.5% wide. Hence:
//!
//! - a sample is whole lists, each with the *same sizes* in another order at other addresses;
//! - every sample uses lists that no sample has used for half a million operations.
//!
//! The location of the bytes is random in each round, and all subjects of the round share it.
//! With one location for the whole process, chance would decide the result, and no number of
//! rounds averages this effect out ([`haul_measure::placement`]).

mod layout;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use haul_copy::cpu::LAST_CACHE_SHARE_BYTES;
use haul_machine::sys::Sys;
use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::memory::{HUGE_PAGE_BYTES, Pages, Region, check_available};
use haul_measure::placement::resident::{Place, Resident};
use haul_measure::placement::{Operation, Placement};
use haul_measure::random::Random;
use haul_measure::{Caches, Distribution, Error, Level, Subject};

use self::layout::{Layout, Pair, WITHIN};
use super::operations::{Bases, List, READ_SLACK_BYTES};
use super::subjects::Candidate;
use super::then_read::ThenRead;

pub use layout::Apart;

/// The intended time of a list, in nanoseconds: well above the timer's precision, and short
/// compared with a scheduler's tick.
const LIST_NS: f64 = 120_000.0;

/// The largest and the smallest number of operations per list.
const OPERATIONS_MAX: usize = 32 << 10;
const OPERATIONS_MIN: usize = 64;

/// The number of operations in all lists of a thread together, which have some megabits of branch
/// outcomes. The largest known predictors hold 64 KiB (Seznec, "TAGE-SC-L branch predictors
/// again", 2016).
const OPERATIONS_OF_ALL_LISTS: usize = 512 << 10;

/// The largest number of lists per thread.
const LISTS_MAX: usize = 256;

/// The distance from the list of one sample to the list of the next sample. The distance is odd,
/// so that all lists are used.
const LIST_STRIDE: usize = 5;

/// The number of operations in a list whose branches predictors should learn.
const OPERATIONS_REPEATING: usize = 64;

/// The number of locations of a resident pair. After the last one, the first is used again.
const PLACES: usize = 256;

/// The size of a cache line, in bytes.
const LINE_BYTES: usize = 64;

/// The branches of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Branches {
    /// Sizes and alignments that no predictor has seen before.
    #[default]
    Random,
    /// A short list again and again, which predictors learn.
    Repeating,
}

impl Branches {
    /// The name of the value in the record parameter `branches`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Repeating => "repeating",
        }
    }
}

/// The operations of a workload.
#[derive(Clone, Debug)]
pub struct Mix<'a> {
    /// The sizes and the share of each size.
    pub sizes: &'a Distribution,
    /// The cache level or memory that holds the operations' bytes.
    pub level: Level,
    /// The alignment of addresses.
    pub alignment: Alignment,
    /// The share of operations whose source and target overlap; 0 for memcpy.
    pub overlap: Overlap,
    /// Whether predictors can learn the branches.
    pub branches: Branches,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Memory and lists for each thread.
#[derive(Debug)]
pub struct Workload {
    threads: Vec<PerThread>,
    turn: Turn,
    /// The least number of operations that a subject performs before each sample, outside of the
    /// timed part.
    lead_in_min: u64,
}

/// The operations at the beginning of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The beginning of a list that was not used recently.
    List,
    /// Like `List`, but all operations have one size, so that a sample may be a part of a list.
    Part,
    /// The short list of the round, repeated, which is the same for all subjects of the round.
    Round,
}

/// One thread's memory and lists, and the thread's position in the lists.
#[derive(Debug)]
struct PerThread {
    region: Region,
    lists: Vec<List>,
    layout: Layout,
    /// The number of samples so far.
    samples: AtomicUsize,
    /// The location of the round's sources and of its targets.
    sources: AtomicUsize,
    targets: AtomicUsize,
    list: AtomicUsize,
    position: AtomicUsize,
}

impl Workload {
    /// Makes random lists and touches memory for each of `threads` threads.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    pub fn drawn(mix: &Mix<'_>, caches: &Caches, threads: usize) -> Result<Self, Error> {
        let draw = |thread: usize| {
            let seed = mix.seed.wrapping_add(thread as u64);
            let mut placement = Placement::new(mix.level, caches, mix.sizes.size_max_bytes(), seed);
            let mut random = Random::new(seed);
            let count = operations_of_a_list(mix, caches);
            let lists = match mix.branches {
                Branches::Random => (OPERATIONS_OF_ALL_LISTS / count).min(LISTS_MAX),
                Branches::Repeating => 1,
            };
            let lists = (0..lists).map(|_| list(mix, count, &mut placement, &mut random)).collect();
            (lists, Layout::Level(placement))
        };
        Self::new(threads, Turn::List, 0, draw)
    }

    /// One size at a time, with the copy's own two buffers again and again. They lie in the nearest
    /// cache that holds both, at a random location for each round. Alignments are random for each
    /// call, within a cache line and within a page. With [`Branches::Repeating`], a round repeats
    /// the alignments of 64 calls; with [`Branches::Random`], no sequence of alignments repeats.
    ///
    /// # Errors
    /// The machine does not have enough memory.
    pub fn resident(
        size: usize,
        alignment: Alignment,
        branches: Branches,
        threads: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let resident = Resident::new(size);
        let draw = |thread: usize| {
            let mut random = Random::new(seed.wrapping_add(thread as u64));
            match branches {
                Branches::Repeating => resident_repeating(resident, alignment, &mut random),
                Branches::Random => resident_random(resident, size, alignment, &mut random),
            }
        };
        let turn = match branches {
            Branches::Repeating => Turn::Round,
            Branches::Random => Turn::Part,
        };
        // Bytes that fit into no cache are in memory in any case. If a cache may hold them, the
        // subject itself loads them first: they were at another location in the previous round,
        // and another subject may have left them in memory.
        let lead_in_min = u64::from(size.saturating_mul(2) <= LAST_CACHE_SHARE_BYTES);
        Self::new(threads, turn, lead_in_min, draw)
    }

    /// One size at one distance between target and source, both in the nearest cache that holds
    /// them, on one thread.
    ///
    /// # Errors
    /// The machine does not have enough memory, or not enough address space between source and
    /// target.
    pub fn apart(size: usize, apart: Apart, seed: u64) -> Result<Self, Error> {
        let pair = Pair::new(size, apart);
        let mut random = Random::new(seed);
        let mut list = || {
            let operation = pair.draw(&mut random);
            List::pack(&[operation; OPERATIONS_REPEATING])
        };
        let lists = (0..PLACES).map(|_| list()).collect();
        let own = PerThread::new(pair.region()?, lists, Layout::Apart(pair));
        Ok(Self { threads: vec![own], turn: Turn::Round, lead_in_min: 1 })
    }

    fn new(
        threads: usize,
        turn: Turn,
        lead_in_min: u64,
        draw: impl Fn(usize) -> (Vec<List>, Layout),
    ) -> Result<Self, Error> {
        let drawn: Vec<_> = (0..threads).map(draw).collect();
        let bytes = drawn.iter().map(|(_, layout)| layout.region_bytes() as u64);
        check_available(bytes.fold(0, u64::saturating_add), &Sys::new())?;
        let threads = drawn.into_iter().map(|(lists, layout)| {
            // The region consists of whole huge pages. The kernel does not provide a huge page
            // for a part of a huge page, and the location of base pages in L2 is random.
            let bytes = layout.region_bytes().saturating_add(READ_SLACK_BYTES);
            let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(bytes);
            let region = Region::touched(bytes, Pages::Huge)?;
            Ok(PerThread::new(region, lists, layout))
        });
        Ok(Self { threads: threads.collect::<Result<_, Error>>()?, turn, lead_in_min })
    }

    /// A sample must be a multiple of this many operations, so that all samples have the same
    /// sizes.
    #[must_use]
    pub fn operations_multiple(&self) -> u64 {
        match self.turn {
            Turn::List => self.threads.first().map_or(1, |own| own.lists[0].len() as u64),
            Turn::Part | Turn::Round => 1,
        }
    }

    /// Whether the largest sizes do not fit into the level.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        let grown = |own: &PerThread| matches!(&own.layout, Layout::Level(it) if it.is_grown());
        self.threads.iter().any(grown)
    }

    /// The first thread's memory and some of its operations, for proofs. No run may be in progress.
    pub fn proof_material(&mut self, count: usize) -> (&mut [u8], Vec<Operation>) {
        let own = &mut self.threads[0];
        let (list, location) = (&own.lists[0], own.layout.location(0));
        let at = |index: usize| {
            let it = list.operation(index);
            let (source, target) = (it.source + location.source, it.target + location.target);
            Operation { source, target, ..it }
        };
        let operations = (0..count.min(list.len())).map(at).collect();
        (own.region.as_mut_slice(), operations)
    }
}

/// A list of 64 operations for each location.
fn resident_repeating(
    resident: Resident,
    alignment: Alignment,
    random: &mut Random,
) -> (Vec<List>, Layout) {
    let mut list = || {
        let location = resident.place(random);
        let one = |_| resident.draw(location, random, alignment);
        List::pack(&(0..OPERATIONS_REPEATING).map(one).collect::<Vec<_>>())
    };
    ((0..PLACES).map(|_| list()).collect(), Layout::Resident(resident))
}

/// Long lists without a location, so that the subjects of a round use different ones at the same
/// location.
fn resident_random(
    resident: Resident,
    size: usize,
    alignment: Alignment,
    random: &mut Random,
) -> (Vec<List>, Layout) {
    let places = (0..PLACES).map(|_| resident.place(random)).collect();
    let count = operations_in((LIST_NS / near_ns(size as f64)) as usize, OPERATIONS_MAX);
    let mut list = || {
        let one = |_| resident.draw(WITHIN, random, alignment);
        List::pack(&(0..count).map(one).collect::<Vec<_>>())
    };
    // A sample of a small size uses several lists, so that there are twice as many.
    let lists = (2 * OPERATIONS_OF_ALL_LISTS / count).min(LISTS_MAX);
    ((0..lists).map(|_| list()).collect(), Layout::Moved(resident, places))
}

/// A list of the mix's sizes in a random order, with the right share of each.
fn list(mix: &Mix<'_>, count: usize, placement: &mut Placement, random: &mut Random) -> List {
    let mut sizes = mix.sizes.systematic(count, random);
    random.shuffle(&mut sizes);
    let operations: Vec<Operation> = sizes
        .into_iter()
        .map(|size| placement.draw(random, size, mix.alignment, mix.overlap))
        .collect();
    List::pack(&operations)
}

/// The number of operations that take about [`LIST_NS`] and keep the list within a quarter of L2.
/// The cost of a call is a rough estimate: 4 ns and 20 B per ns in a cache, 40 ns and 5 B per ns in
/// memory.
fn operations_of_a_list(mix: &Mix<'_>, caches: &Caches) -> usize {
    let mean_bytes = mix.sizes.mean_bytes();
    let guess_ns = match mix.level {
        _ if mix.branches == Branches::Repeating => return OPERATIONS_REPEATING,
        Level::L1 | Level::L2 | Level::Nearest => near_ns(mean_bytes),
        Level::Llc | Level::Mixed => 15.0 + mean_bytes / 10.0,
        Level::Cold => 40.0 + mean_bytes / 5.0,
    };
    operations_in((LIST_NS / guess_ns) as usize, caches.l2_bytes / 4 / 8)
}

/// The estimated time of a call in a near cache, in nanoseconds.
fn near_ns(mean_bytes: f64) -> f64 {
    4.0 + mean_bytes / 20.0
}

/// The number of operations in a list, if `wanted` take long enough and `room` fit into the cache.
fn operations_in(wanted: usize, room: usize) -> usize {
    wanted.clamp(OPERATIONS_MIN, OPERATIONS_MAX.min(room).max(OPERATIONS_MIN))
}

/// A candidate on a workload.
#[derive(Debug)]
pub struct OnWorkload<'a> {
    candidate: Candidate,
    workload: &'a Workload,
    read: ThenRead,
}

impl<'a> OnWorkload<'a> {
    /// The candidate on this workload. The reader reads every target right after its operation.
    #[must_use]
    pub fn new(candidate: Candidate, workload: &'a Workload, read: ThenRead) -> Self {
        Self { candidate, workload, read }
    }
}

impl Subject for OnWorkload<'_> {
    fn name(&self) -> &str {
        self.candidate.name
    }

    /// Loads a list that was not used recently into the cache, makes the subject perform an
    /// eighth of a sample of another list, and then starts at the beginning of the first list.
    fn prepare(&self, thread: usize, round: u64, iterations: u64) {
        let own = &self.workload.threads[thread];
        let sample = own.samples.fetch_add(1, Ordering::Relaxed);
        let lead_in = (iterations / LEAD_IN_DIVISOR).min(OPERATIONS_MAX as u64);
        let Place { source, target } = own.layout.location(round);
        own.sources.store(source, Ordering::Relaxed);
        own.targets.store(target, Ordering::Relaxed);
        let lead_in = lead_in.max(self.workload.lead_in_min);
        match self.workload.turn {
            Turn::List | Turn::Part => {
                let list = sample.wrapping_mul(LIST_STRIDE) % own.lists.len();
                own.lists[list].touch(LINE_BYTES);
                own.start((list + own.lists.len() / 2) % own.lists.len(), 0);
                self.run(thread, lead_in);
                own.start(list, 0);
            }
            Turn::Round => {
                let list = (round % own.lists.len() as u64) as usize;
                own.start(list, 0);
                self.run(thread, lead_in);
                own.start(list, 0);
            }
        }
    }

    fn run(&self, thread: usize, iterations: u64) {
        let own = &self.workload.threads[thread];
        let shift = own.layout.shift_bytes(own.samples.load(Ordering::Relaxed) as u64);
        let base = |of: &AtomicUsize| {
            own.region.pointer().wrapping_add(of.load(Ordering::Relaxed) + shift)
        };
        let bases = Bases { source: base(&own.sources), target: base(&own.targets) };
        let mut index = own.list.load(Ordering::Relaxed);
        let mut position = own.position.load(Ordering::Relaxed);
        let mut rest = iterations as usize;
        while rest > 0 {
            let list = &own.lists[index];
            let count = rest.min(list.len() - position);
            // SAFETY: the layout drew the operations. Its region, which was mapped for this
            // thread with the slack after it, contains them at every location and under every
            // shift. Only this thread uses the region.
            unsafe {
                list.run(self.candidate.routine, position..position + count, bases, self.read)
            };
            rest -= count;
            position += count;
            if position == list.len() {
                position = 0;
                index = match self.workload.turn {
                    Turn::List | Turn::Part => (index + 1) % own.lists.len(),
                    Turn::Round => index,
                };
            }
        }
        own.start(index, position);
    }
}

impl PerThread {
    fn new(region: Region, lists: Vec<List>, layout: Layout) -> Self {
        let [samples, sources, targets, list, position] = [const { AtomicUsize::new(0) }; 5];
        Self { region, lists, layout, samples, sources, targets, list, position }
    }

    fn start(&self, list: usize, position: usize) {
        self.list.store(list, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
    }
}
