//! Memory and lists of each thread, and the subject that runs on them.
//!
//! All subjects of a run share one workload: the same memory, the same lists. Two things are at
//! odds: subjects are compared fairly on the same operations, but a branch predictor that has seen
//! a list before knows it (on a Zen 4, a list of 32 Ki calls of 17-64 B that all subjects of a
//! round shared took between 3.6 and 6.1 ns a call, as it was remembered more or less, and the
//! baseline's interval against itself was 7% wide; with lists as below it is 0.5%). Hence:
//!
//! - a sample is whole lists, each of the *same sizes* in another order at other addresses;
//! - every sample takes lists that none has taken for half a million operations.
//!
//! Where the bytes lie is drawn anew each round, the same for all its subjects: a place that a
//! process drew once would be luck that no number of rounds averages out
//! ([`haul_measure::placement`]).

mod ground;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use haul::sys::Sys;
use haul_copy::cpu::LAST_CACHE_SHARE_BYTES;
use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::memory::{HUGE_PAGE_BYTES, Pages, Region, check_available};
use haul_measure::placement::resident::Resident;
use haul_measure::placement::{Operation, Placement};
use haul_measure::random::Random;
use haul_measure::{Caches, Distribution, Error, Level, Subject};

use self::ground::{Ground, Pair};
use super::operations::{List, READ_SLACK_BYTES};
use super::subjects::Candidate;
use super::then_read::ThenRead;

pub use ground::Apart;

/// How long a list should take, in nanoseconds: well above the timer's precision, and short
/// against a scheduler's tick.
const LIST_NS: f64 = 120_000.0;

/// The most and the fewest operations of a list.
const OPERATIONS_MAX: usize = 32 << 10;
const OPERATIONS_MIN: usize = 64;

/// Operations of all lists of a thread together: some megabits of branch outcomes, where the
/// largest predictors known hold 64 KiB (Seznec, "TAGE-SC-L branch predictors again", 2016).
const OPERATIONS_OF_ALL_LISTS: usize = 512 << 10;

/// The most lists of a thread.
const LISTS_MAX: usize = 256;

/// From one sample's list to the next: odd, so that all come up.
const LIST_STRIDE: usize = 5;

/// Operations of a list whose branches are meant to be learnt.
const OPERATIONS_REPEATING: usize = 64;

/// Places of a resident pair, after which the first comes again.
const PLACES: usize = 256;

/// The line that caches move, in bytes.
const LINE_BYTES: usize = 64;

/// What the branches of a call see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Branches {
    /// Sizes and alignments that no predictor has seen before.
    #[default]
    Random,
    /// A short list again and again, which predictors learn.
    Repeating,
}

impl Branches {
    /// As the record parameter `branches` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Repeating => "repeating",
        }
    }
}

/// Which operations a workload consists of.
#[derive(Clone, Debug)]
pub struct Mix<'a> {
    /// Sizes and how often each occurs.
    pub sizes: &'a Distribution,
    /// Where they lie.
    pub level: Level,
    /// How addresses are aligned.
    pub alignment: Alignment,
    /// How often source and target overlap; 0 for memcpy.
    pub overlap: Overlap,
    /// Whether branches can be learnt.
    pub branches: Branches,
    /// What everything is drawn from.
    pub seed: u64,
}

/// Memory and lists for each thread.
#[derive(Debug)]
pub struct Workload {
    threads: Vec<PerThread>,
    turn: Turn,
    /// Operations that a subject does untimed before each sample at least.
    lead_in_min: u64,
}

/// Which operations a sample starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The beginning of a list that was not used for long.
    List,
    /// The short list of the round, the same for all its subjects, again and again.
    Round,
}

/// One thread's memory, lists, and place in them.
#[derive(Debug)]
struct PerThread {
    region: Region,
    lists: Vec<List>,
    ground: Ground,
    /// Samples so far.
    samples: AtomicUsize,
    /// Where the addresses of the round begin.
    place: AtomicUsize,
    list: AtomicUsize,
    position: AtomicUsize,
}

impl Workload {
    /// Draws lists and touches memory for each of `threads` threads.
    ///
    /// # Errors
    /// The memory is more than the machine has to give.
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
            (lists, Ground::Level(placement))
        };
        Self::new(threads, Turn::List, 0, draw)
    }

    /// One size at a time, the copy's own two buffers again and again: they lie in the nearest
    /// cache that holds both, at a place that is drawn for each round. Alignments are drawn for
    /// each call, within a cache line and within a page.
    ///
    /// # Errors
    /// The memory is more than the machine has to give.
    pub fn resident(
        size: usize,
        alignment: Alignment,
        threads: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let resident = Resident::new(size);
        let draw = |thread: usize| {
            let mut random = Random::new(seed.wrapping_add(thread as u64));
            let mut list = || {
                let place = resident.place(&mut random);
                let one = |_| resident.draw(place, &mut random, alignment);
                List::pack(&(0..OPERATIONS_REPEATING).map(one).collect::<Vec<_>>())
            };
            ((0..PLACES).map(|_| list()).collect(), Ground::Resident(resident))
        };
        // What no cache holds is where it was. What one may hold is brought there by the subject
        // itself, because it lay elsewhere in the round before, and another subject may have left
        // it in memory.
        let lead_in_min = u64::from(size.saturating_mul(2) <= LAST_CACHE_SHARE_BYTES);
        Self::new(threads, Turn::Round, lead_in_min, draw)
    }

    /// One size at one distance of target and source, both in whatever cache holds them, on one
    /// thread.
    ///
    /// # Errors
    /// The memory, or the address space between the two, is more than the machine has to give.
    pub fn apart(size: usize, apart: Apart, seed: u64) -> Result<Self, Error> {
        let pair = Pair::new(size, apart);
        let mut random = Random::new(seed);
        let mut list = || {
            let operation = pair.draw(&mut random);
            List::pack(&[operation; OPERATIONS_REPEATING])
        };
        let lists = (0..PLACES).map(|_| list()).collect();
        let own = PerThread::new(pair.region()?, lists, Ground::Apart(pair));
        Ok(Self { threads: vec![own], turn: Turn::Round, lead_in_min: 1 })
    }

    fn new(
        threads: usize,
        turn: Turn,
        lead_in_min: u64,
        draw: impl Fn(usize) -> (Vec<List>, Ground),
    ) -> Result<Self, Error> {
        let drawn: Vec<_> = (0..threads).map(draw).collect();
        let bytes = drawn.iter().map(|(_, ground)| ground.region_bytes() as u64);
        check_available(bytes.fold(0, u64::saturating_add), &Sys::new())?;
        let threads = drawn.into_iter().map(|(lists, ground)| {
            // Whole huge pages: the kernel gives none for a part, and base pages lie where they
            // fall in L2.
            let bytes = ground.region_bytes().saturating_add(READ_SLACK_BYTES);
            let bytes = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).unwrap_or(bytes);
            let region = Region::touched(bytes, Pages::Huge)?;
            Ok(PerThread::new(region, lists, ground))
        });
        Ok(Self { threads: threads.collect::<Result<_, Error>>()?, turn, lead_in_min })
    }

    /// A sample has to be a multiple of so many operations, so that all samples have the same
    /// sizes.
    #[must_use]
    pub fn operations_multiple(&self) -> u64 {
        match self.turn {
            Turn::List => self.threads.first().map_or(1, |own| own.lists[0].len() as u64),
            Turn::Round => 1,
        }
    }

    /// Whether the largest sizes do not fit into the level.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        let grown = |own: &PerThread| matches!(&own.ground, Ground::Level(it) if it.is_grown());
        self.threads.iter().any(grown)
    }

    /// The first thread's memory and some of its operations, for proofs. No run may be going on.
    pub fn proof_material(&mut self, count: usize) -> (&mut [u8], Vec<Operation>) {
        let own = &mut self.threads[0];
        let list = &own.lists[0];
        let operations = (0..count.min(list.len())).map(|index| list.operation(index)).collect();
        (own.region.as_mut_slice(), operations)
    }
}

/// A list of the mix's sizes, each as often as it should occur, in a random order.
fn list(mix: &Mix<'_>, count: usize, placement: &mut Placement, random: &mut Random) -> List {
    let mut sizes = mix.sizes.systematic(count, random);
    random.shuffle(&mut sizes);
    let operations: Vec<Operation> = sizes
        .into_iter()
        .map(|size| placement.draw(random, size, mix.alignment, mix.overlap))
        .collect();
    List::pack(&operations)
}

/// As many operations as take about [`LIST_NS`], and keep the list in a quarter of L2. The cost of
/// a call is guessed here, roughly: 4 ns and 20 B a ns in a cache, 40 ns and 5 B a ns in memory.
fn operations_of_a_list(mix: &Mix<'_>, caches: &Caches) -> usize {
    let mean_bytes = mix.sizes.mean_bytes();
    let guess_ns = match mix.level {
        _ if mix.branches == Branches::Repeating => return OPERATIONS_REPEATING,
        Level::L1 | Level::L2 | Level::Nearest => 4.0 + mean_bytes / 20.0,
        Level::Llc | Level::Mixed => 15.0 + mean_bytes / 10.0,
        Level::Cold => 40.0 + mean_bytes / 5.0,
    };
    let most = OPERATIONS_MAX.min(caches.l2_bytes / 4 / 8).max(OPERATIONS_MIN);
    ((LIST_NS / guess_ns) as usize).clamp(OPERATIONS_MIN, most)
}

/// A candidate on a workload.
#[derive(Debug)]
pub struct OnWorkload<'a> {
    candidate: Candidate,
    workload: &'a Workload,
    read: ThenRead,
}

impl<'a> OnWorkload<'a> {
    /// The candidate on this workload, with the reader of every target right after it.
    #[must_use]
    pub fn new(candidate: Candidate, workload: &'a Workload, read: ThenRead) -> Self {
        Self { candidate, workload, read }
    }
}

impl Subject for OnWorkload<'_> {
    fn name(&self) -> &str {
        self.candidate.name
    }

    /// Takes a list that was not used for long into the cache where lists lie, has the subject do
    /// an eighth of a sample of another one, and starts at the beginning of the first.
    fn prepare(&self, thread: usize, round: u64, iterations: u64) {
        let own = &self.workload.threads[thread];
        let sample = own.samples.fetch_add(1, Ordering::Relaxed);
        let lead_in = (iterations / LEAD_IN_DIVISOR).min(OPERATIONS_MAX as u64);
        own.place.store(own.ground.place_bytes(round), Ordering::Relaxed);
        match self.workload.turn {
            Turn::List => {
                let list = sample.wrapping_mul(LIST_STRIDE) % own.lists.len();
                own.lists[list].touch(LINE_BYTES);
                own.start((list + own.lists.len() / 2) % own.lists.len(), 0);
                self.run(thread, lead_in);
                own.start(list, 0);
            }
            Turn::Round => {
                let list = (round % own.lists.len() as u64) as usize;
                own.start(list, 0);
                self.run(thread, lead_in.max(self.workload.lead_in_min));
                own.start(list, 0);
            }
        }
    }

    fn run(&self, thread: usize, iterations: u64) {
        let own = &self.workload.threads[thread];
        let shift = own.ground.shift_bytes(own.samples.load(Ordering::Relaxed) as u64);
        let place = own.place.load(Ordering::Relaxed);
        let base = own.region.pointer().wrapping_add(place + shift);
        let mut index = own.list.load(Ordering::Relaxed);
        let mut position = own.position.load(Ordering::Relaxed);
        let mut rest = iterations as usize;
        while rest > 0 {
            let list = &own.lists[index];
            let count = rest.min(list.len() - position);
            // SAFETY: the ground drew the operations, and its region, which was mapped for this
            // thread with the slack behind it, holds them at every place and under every shift;
            // only this thread uses it.
            unsafe {
                list.run(self.candidate.routine, position..position + count, base, self.read)
            };
            rest -= count;
            position += count;
            if position == list.len() {
                position = 0;
                index = match self.workload.turn {
                    Turn::List => (index + 1) % own.lists.len(),
                    Turn::Round => index,
                };
            }
        }
        own.start(index, position);
    }
}

impl PerThread {
    fn new(region: Region, lists: Vec<List>, ground: Ground) -> Self {
        let [samples, place, list, position] = [const { AtomicUsize::new(0) }; 4];
        Self { region, lists, ground, samples, place, list, position }
    }

    fn start(&self, list: usize, position: usize) {
        self.list.store(list, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
    }
}
