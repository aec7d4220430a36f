//! Memory and lists of each thread, and the subject that runs on them.
//!
//! All subjects of a run share one workload: the same memory, the same lists. In each round all of
//! them do the same operations, from the same place of the same list; the next round takes the
//! next list, so that no single list is the result.

use std::sync::atomic::{AtomicUsize, Ordering};

use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::placement::{Operation, Placement};
use haul_measure::random::Random;
use haul_measure::sys::Proc;
use haul_measure::{Caches, Distribution, Error, Level, Subject};

use super::operations::{List, READ_SLACK_BYTES};
use super::subjects::Candidate;

/// Lists that rounds take in turn.
const LISTS: usize = 8;

/// The most and the fewest operations of a list whose branches cannot be learnt. 32 Ki of them
/// hold some hundred kilobits of outcomes; the largest predictors known hold 64 KiB, shared by
/// everything (Seznec, "TAGE-SC-L branch predictors again", 2016).
const OPERATIONS_MAX: usize = 32 << 10;
const OPERATIONS_MIN: usize = 4 << 10;

/// Operations of a list whose branches are meant to be learnt.
const OPERATIONS_REPEATING: usize = 64;

/// Where in its list a round starts: a prime, so that rounds spread over it.
const ROUND_STRIDE: usize = 4099;

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
    is_grown: bool,
}

/// One thread's memory, lists, and place in them.
#[derive(Debug)]
struct Lane {
    region: Region,
    lists: Vec<List>,
    placement: Placement,
    list: AtomicUsize,
    position: AtomicUsize,
    pass: AtomicUsize,
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
            let mut one = || {
                let size = mix.sizes.sample(&mut random);
                placement.draw(&mut random, size, mix.alignment, mix.overlap)
            };
            let count = operations_of_a_list(mix, caches);
            let lists =
                (0..LISTS).map(|_| List::pack(&(0..count).map(|_| one()).collect::<Vec<_>>()));
            (lists.collect(), placement)
        };
        Self::new(threads, draw)
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
        Self::new(threads, draw)
    }

    fn new(threads: usize, draw: impl Fn(usize) -> (Vec<List>, Placement)) -> Result<Self, Error> {
        let lanes: Vec<_> = (0..threads).map(draw).collect();
        let bytes = lanes.iter().map(|(_, placement)| placement.region_bytes() as u64).sum();
        check_available(bytes, &Proc::default())?;
        let is_grown = lanes.iter().any(|(_, placement)| placement.is_grown());
        let threads = lanes.into_iter().map(|(lists, placement)| {
            let bytes = placement.region_bytes().saturating_add(READ_SLACK_BYTES);
            let region = Region::touched(bytes, Pages::Huge)?;
            let [list, position, pass] = [const { AtomicUsize::new(0) }; 3];
            Ok(Lane { region, lists, placement, list, position, pass })
        });
        Ok(Self { threads: threads.collect::<Result<_, Error>>()?, is_grown })
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

/// As many operations as keep the list in a quarter of L2.
fn operations_of_a_list(mix: &Mix<'_>, caches: &Caches) -> usize {
    match mix.branches {
        Branches::Repeating => OPERATIONS_REPEATING,
        Branches::Random => (caches.l2_bytes / 4 / 8).clamp(OPERATIONS_MIN, OPERATIONS_MAX),
    }
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

    /// The same place of the same list for all subjects of a round; where addresses shift, each
    /// sample shifts them anew.
    fn prepare(&self, thread: usize, round: u64) {
        let lane = &self.workload.threads[thread];
        let list = round as usize % lane.lists.len();
        let start = (round as usize).wrapping_mul(ROUND_STRIDE) % lane.lists[list].len();
        lane.list.store(list, Ordering::Relaxed);
        lane.position.store(start, Ordering::Relaxed);
        lane.pass.fetch_add(1, Ordering::Relaxed);
    }

    fn run(&self, thread: usize, iterations: u64) {
        let lane = &self.workload.threads[thread];
        let list = &lane.lists[lane.list.load(Ordering::Relaxed)];
        let mut position = lane.position.load(Ordering::Relaxed);
        let mut pass = lane.pass.load(Ordering::Relaxed);
        let mut rest = iterations as usize;
        while rest > 0 {
            let count = rest.min(list.len() - position);
            let base = lane.region.pointer().wrapping_add(lane.placement.shift_bytes(pass as u64));
            // SAFETY: the placement drew the operations, and its region, which this lane mapped
            // with the slack behind it, holds them under every shift; only this thread uses it.
            unsafe {
                list.run(self.candidate.routine, position..position + count, base, self.read)
            };
            rest -= count;
            position += count;
            if position == list.len() {
                position = 0;
                pass = pass.wrapping_add(1);
            }
        }
        lane.position.store(position, Ordering::Relaxed);
        lane.pass.store(pass, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Function;
    use crate::copy::subjects::available;

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
            let subject = OnWorkload::new(available(Function::Memcpy)[0], &workload, true);
            subject.prepare(0, 3);
            let start = workload.threads[0].position.load(Ordering::Relaxed);
            let length = workload.threads[0].lists[3].len();
            subject.run(0, 3 * length as u64 + 5);
            let end = workload.threads[0].position.load(Ordering::Relaxed);
            assert_eq!(end, (start + 5) % length, "{level}");
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
