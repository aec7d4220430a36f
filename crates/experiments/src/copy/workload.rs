//! Memory and lists of each thread, and the subject that runs on them.
//!
//! All subjects of a run share one workload: the same memory, the same lists. Two things are at
//! odds: subjects are compared fairly on the same operations, but a branch predictor that has seen
//! a list before knows it (on a Zen 4, a list of 32 Ki calls of 17-64 B that all subjects of a round
//! shared took between 3.6 and 6.1 ns a call, as it was remembered more or less, and the baseline's
//! interval against itself was 7% wide; with lists as below it is 0.5%). Hence:
//!
//! - a sample is whole lists, each of the *same sizes* in another order at other addresses;
//! - every sample takes lists that none has taken for half a million operations.

use std::sync::atomic::{AtomicUsize, Ordering};

use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::placement::{Operation, Placement};
use haul_measure::random::Random;
use haul_measure::sys::Proc;
use haul_measure::{Caches, Distribution, Error, Level, Subject};

use super::operations::{List, READ_SLACK_BYTES};
use super::subjects::Candidate;

// The levels of a measurement and the thresholds of copies take a process to have the same.
const _: () = assert!(
    haul_measure::placement::LLC_SHARE_BYTES == haul_copy::cpu::LAST_CACHE_SHARE_BYTES,
    "haul-measure and haul-copy differ in what one process has of a last-level cache"
);

/// How long a list should take, in nanoseconds: well above the timer's precision, and short
/// against a scheduler's tick.
const LIST_NS: f64 = 120_000.0;

/// The most and the fewest operations of a list.
const OPERATIONS_MAX: usize = 32 << 10;
const OPERATIONS_MIN: usize = 64;

/// Operations of all lists of a thread together: some megabits of branch outcomes, where the largest
/// predictors known hold 64 KiB (Seznec, "TAGE-SC-L branch predictors again", 2016).
const OPERATIONS_OF_ALL_LISTS: usize = 512 << 10;

/// The most lists of a thread.
const LISTS_MAX: usize = 256;

/// From one sample's list to the next: odd, so that all come up.
const LIST_STRIDE: usize = 5;

/// Operations of a list whose branches are meant to be learnt.
const OPERATIONS_REPEATING: usize = 64;

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
    threads: Vec<Lane>,
    turn: Turn,
    is_grown: bool,
}

/// Which operations a sample starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The beginning of a list that was not used for long.
    List,
    /// One after the other, the same for all subjects of a round: there is one short list.
    Operation,
}

/// One thread's memory, lists, and place in them.
#[derive(Debug)]
struct Lane {
    region: Region,
    lists: Vec<List>,
    placement: Placement,
    /// Samples so far.
    samples: AtomicUsize,
    list: AtomicUsize,
    position: AtomicUsize,
}

impl Workload {
    /// Draws lists and touches memory for each of `threads` threads.
    ///
    /// # Errors
    /// The memory is more than the machine has to give.
    pub fn drawn(mix: &Mix<'_>, caches: &Caches, threads: usize) -> Result<Self, Error> {
        let draw = |lane: usize| {
            let seed = mix.seed.wrapping_add(lane as u64);
            let mut placement = Placement::new(mix.level, caches, mix.sizes.size_max_bytes(), seed);
            let mut random = Random::new(seed);
            let count = operations_of_a_list(mix, caches);
            let lists = match mix.branches {
                Branches::Random => (OPERATIONS_OF_ALL_LISTS / count).min(LISTS_MAX),
                Branches::Repeating => 1,
            };
            let lists = (0..lists).map(|_| list(mix, count, &mut placement, &mut random)).collect();
            (lists, placement)
        };
        Self::new(threads, Turn::List, draw)
    }

    /// One size at a time, the copy's own two buffers again and again: they lie in the nearest
    /// cache that holds both. Alignments are drawn, within a cache line and within a page.
    ///
    /// # Errors
    /// The memory is more than the machine has to give.
    pub fn resident(
        size: usize,
        alignment: Alignment,
        threads: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        // A level that holds nothing grows to two buffers and their misalignment.
        let nothing = Caches { l1_bytes: 4 * 4096, l2_bytes: 8 * 4096, llc_bytes: 16 * 4096 };
        let draw = |lane: usize| {
            let mut random = Random::new(seed.wrapping_add(lane as u64));
            let placement =
                Placement::new(Level::L1, &nothing, size.saturating_add(2 * 4096), seed);
            let half = placement.region_bytes() / 2;
            let mut one = || Operation {
                source: random.below(64) * 64 + alignment.sample(&mut random),
                target: half + random.below(64) * 64 + alignment.sample(&mut random),
                size,
            };
            let list = (0..OPERATIONS_REPEATING).map(|_| one()).collect::<Vec<_>>();
            (vec![List::pack(&list)], placement)
        };
        Self::new(threads, Turn::Operation, draw)
    }

    fn new(
        threads: usize,
        turn: Turn,
        draw: impl Fn(usize) -> (Vec<List>, Placement),
    ) -> Result<Self, Error> {
        let lanes: Vec<_> = (0..threads).map(draw).collect();
        let bytes = lanes.iter().map(|(_, placement)| placement.region_bytes() as u64).sum();
        check_available(bytes, &Proc::default())?;
        let is_grown = lanes.iter().any(|(_, placement)| placement.is_grown());
        let threads = lanes.into_iter().map(|(lists, placement)| {
            let bytes = placement.region_bytes().saturating_add(READ_SLACK_BYTES);
            let region = Region::touched(bytes, Pages::Huge)?;
            let [samples, list, position] = [const { AtomicUsize::new(0) }; 3];
            Ok(Lane { region, lists, placement, samples, list, position })
        });
        Ok(Self { threads: threads.collect::<Result<_, Error>>()?, turn, is_grown })
    }

    /// A sample has to be a multiple of so many operations, so that all samples have the same sizes.
    #[must_use]
    pub fn operations_multiple(&self) -> u64 {
        match self.turn {
            Turn::List => self.threads.first().map_or(1, |lane| lane.lists[0].len() as u64),
            Turn::Operation => 1,
        }
    }

    /// Whether the largest sizes do not fit into the level.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.is_grown
    }

    /// The first thread's memory and some of its operations, for proofs. No run may be going on.
    pub fn proof_material(&mut self, count: usize) -> (&mut [u8], Vec<Operation>) {
        let lane = &mut self.threads[0];
        let list = &lane.lists[0];
        let operations = (0..count.min(list.len())).map(|index| list.operation(index)).collect();
        (lane.region.as_mut_slice(), operations)
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
        Level::L1 | Level::L2 => 4.0 + mean_bytes / 20.0,
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
    read: bool,
}

impl<'a> OnWorkload<'a> {
    /// The candidate on this workload; with `read`, every target is read right after.
    #[must_use]
    pub fn new(candidate: Candidate, workload: &'a Workload, read: bool) -> Self {
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
        let lane = &self.workload.threads[thread];
        let sample = lane.samples.fetch_add(1, Ordering::Relaxed);
        let lead_in = (iterations / LEAD_IN_DIVISOR).min(OPERATIONS_MAX as u64);
        match self.workload.turn {
            Turn::List => {
                let list = sample.wrapping_mul(LIST_STRIDE) % lane.lists.len();
                lane.lists[list].touch(LINE_BYTES);
                lane.start((list + lane.lists.len() / 2) % lane.lists.len(), 0);
                self.run(thread, lead_in);
                lane.start(list, 0);
            }
            Turn::Operation => {
                self.run(thread, lead_in);
                lane.start(0, round as usize % lane.lists[0].len());
            }
        }
    }

    fn run(&self, thread: usize, iterations: u64) {
        let lane = &self.workload.threads[thread];
        let shift = lane.placement.shift_bytes(lane.samples.load(Ordering::Relaxed) as u64);
        let base = lane.region.pointer().wrapping_add(shift);
        let mut index = lane.list.load(Ordering::Relaxed);
        let mut position = lane.position.load(Ordering::Relaxed);
        let mut rest = iterations as usize;
        while rest > 0 {
            let list = &lane.lists[index];
            let count = rest.min(list.len() - position);
            // SAFETY: the placement drew the operations, and its region, which this lane mapped
            // with the slack behind it, holds them under every shift; only this thread uses it.
            unsafe {
                list.run(self.candidate.routine, position..position + count, base, self.read)
            };
            rest -= count;
            position += count;
            if position == list.len() {
                position = 0;
                index = (index + 1) % lane.lists.len();
            }
        }
        lane.start(index, position);
    }
}

impl Lane {
    fn start(&self, list: usize, position: usize) {
        self.list.store(list, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Function;
    use crate::copy::subjects::{Plain, available};

    /// Any number of iterations, from any round, ends where it should and writes only targets.
    #[test]
    fn iterations_wrap_around_the_list() {
        let sizes = Distribution::uniform("test", 1..=40);
        let caches = Caches { l1_bytes: 8 << 10, l2_bytes: 32 << 10, llc_bytes: 64 << 10 };
        for level in Level::ALL {
            let mix = Mix {
                sizes: &sizes,
                level,
                alignment: Alignment::default(),
                overlap: Overlap { share: 0.0 },
                branches: Branches::Random,
                seed: 1,
            };
            let workload = Workload::drawn(&mix, &caches, 1).unwrap();
            let lane = &workload.threads[0];
            let subject =
                OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, true);
            let length = workload.operations_multiple();
            subject.prepare(0, 3, 8 * length);
            let (start, lists) = (lane.list.load(Ordering::Relaxed), lane.lists.len());
            subject.run(0, 3 * length + 5);
            assert_eq!(lane.list.load(Ordering::Relaxed), (start + 3) % lists, "{level}");
            assert_eq!(lane.position.load(Ordering::Relaxed), 5, "{level}");
        }
    }

    /// All lists have the same sizes, give or take one of each, and none is another's order.
    #[test]
    fn lists_differ_in_order_and_not_in_sizes() {
        let sizes = Distribution::uniform("test", 0..=16);
        let mix = Mix {
            sizes: &sizes,
            level: Level::L1,
            alignment: Alignment::default(),
            overlap: Overlap { share: 0.0 },
            branches: Branches::Random,
            seed: 1,
        };
        let workload = Workload::drawn(&mix, &Caches::default(), 1).unwrap();
        let lists = &workload.threads[0].lists;
        assert!(lists.len() * lists[0].len() >= OPERATIONS_OF_ALL_LISTS / 2, "{}", lists.len());
        let sizes_of =
            |list: &List| (0..list.len()).map(|index| list.operation(index).size).collect();
        let (first, second): (Vec<usize>, Vec<usize>) = (sizes_of(&lists[0]), sizes_of(&lists[1]));
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(same < first.len() / 10, "{same} of {} sizes at the same place", first.len());
        for size in 0..=16 {
            let count = |sizes: &[usize]| sizes.iter().filter(|&&it| it == size).count();
            assert!(count(&first).abs_diff(count(&second)) <= 1);
        }
    }

    #[test]
    fn resident_buffers_are_no_larger_than_needed() {
        let workload = Workload::resident(2048, Alignment::default(), 1, 1).unwrap();
        let bytes = workload.threads[0].placement.region_bytes();
        assert!(bytes <= 2 * (2048 + 5 * 4096), "{bytes}");
        let list = &workload.threads[0].lists[0];
        for index in 0..list.len() {
            let it = list.operation(index);
            assert!(it.source + it.size <= bytes / 2 && it.target + it.size <= bytes);
        }
    }
}
