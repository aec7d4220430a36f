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

use std::sync::atomic::{AtomicUsize, Ordering};

use haul_measure::distribution::{Alignment, Overlap};
use haul_measure::interleave::LEAD_IN_DIVISOR;
use haul_measure::memory::{HUGE_PAGE_BYTES, Pages, Region, check_available};
use haul_measure::placement::resident::Resident;
use haul_measure::placement::{LLC_SHARE_BYTES, Operation, Placement};
use haul_measure::random::Random;
use haul_measure::sys::Proc;
use haul_measure::{Caches, Distribution, Error, Level, Subject};

use super::operations::{List, READ_SLACK_BYTES};
use super::subjects::Candidate;
use super::then_read::ThenRead;

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

/// What lists were drawn for.
#[derive(Debug)]
enum Ground {
    Level(Placement),
    Resident(Resident),
    Apart(Pair),
}

/// How far a target lies above its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Bytes: the least multiple of so many that keeps the two from overlapping ...
    pub multiple_of: usize,
    /// ... and so many bytes beyond it.
    pub and: usize,
}

/// Two buffers at one distance.
#[derive(Clone, Copy, Debug)]
struct Pair {
    size_bytes: usize,
    distance_bytes: usize,
}

impl Pair {
    /// Room to move both by.
    const ROOM_BYTES: usize = 64 << 10;

    fn new(size_bytes: usize, apart: Apart) -> Self {
        let least = size_bytes + Self::ROOM_BYTES;
        let distance_bytes = least.next_multiple_of(apart.multiple_of) + apart.and;
        Self { size_bytes, distance_bytes }
    }

    fn draw(self, random: &mut Random) -> Operation {
        let source = random.below(Self::ROOM_BYTES / LINE_BYTES) * LINE_BYTES;
        Operation { source, target: source + self.distance_bytes, size: self.size_bytes }
    }

    fn region_bytes(self) -> usize {
        self.distance_bytes + Self::ROOM_BYTES + self.size_bytes + READ_SLACK_BYTES
    }

    /// The memory, touched where buffers lie: between two that are far apart there is none.
    fn region(self) -> Result<Region, Error> {
        let used = Self::ROOM_BYTES + self.size_bytes + READ_SLACK_BYTES;
        check_available(2 * used as u64, &Proc::default())?;
        let mut region = Region::unasked(self.region_bytes(), Pages::Base)?;
        let bytes = region.as_mut_slice();
        for start in [0, self.distance_bytes] {
            bytes[start..start + used].fill(1);
        }
        Ok(region)
    }
}

impl Ground {
    fn region_bytes(&self) -> usize {
        match self {
            Self::Level(placement) => placement.region_bytes(),
            Self::Resident(resident) => resident.region_bytes(),
            Self::Apart(pair) => pair.region_bytes(),
        }
    }

    /// Where a round's addresses begin. The lists of resident pairs hold their own places.
    fn place_bytes(&self, round: u64) -> usize {
        match self {
            Self::Level(placement) => placement.place_bytes(round),
            Self::Resident(_) | Self::Apart(_) => 0,
        }
    }

    fn shift_bytes(&self, pass: u64) -> usize {
        match self {
            Self::Level(placement) => placement.shift_bytes(pass),
            Self::Resident(_) | Self::Apart(_) => 0,
        }
    }
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
        let lead_in_min = u64::from(size.saturating_mul(2) <= LLC_SHARE_BYTES);
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
        check_available(bytes.fold(0, u64::saturating_add), &Proc::default())?;
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::copy::Function;
    use crate::copy::subjects::{Plain, available};

    /// Sizes at a level, nothing overlapping.
    fn mix(sizes: &Distribution, level: Level) -> Mix<'_> {
        Mix {
            sizes,
            level,
            alignment: Alignment::default(),
            overlap: Overlap { share: 0.0 },
            branches: Branches::Random,
            seed: 1,
        }
    }

    /// Any number of iterations, from any round, ends where it should and writes only targets.
    #[test]
    fn iterations_wrap_around_the_list() {
        let sizes = Distribution::uniform("test", 1..=40);
        let caches = Caches { l1_bytes: 8 << 10, l2_bytes: 32 << 10, llc_bytes: 64 << 10 };
        for level in Level::ALL {
            let workload = Workload::drawn(&mix(&sizes, level), &caches, 1).unwrap();
            let own = &workload.threads[0];
            let subject =
                OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::All);
            let length = workload.operations_multiple();
            subject.prepare(0, 3, 8 * length);
            let (start, lists) = (own.list.load(Ordering::Relaxed), own.lists.len());
            subject.run(0, 3 * length + 5);
            assert_eq!(own.list.load(Ordering::Relaxed), (start + 3) % lists, "{level}");
            assert_eq!(own.position.load(Ordering::Relaxed), 5, "{level}");
        }
    }

    /// All lists have the same sizes, give or take one of each, and none is another's order.
    #[test]
    fn lists_differ_in_order_and_not_in_sizes() {
        let sizes = Distribution::uniform("test", 0..=16);
        let workload = Workload::drawn(&mix(&sizes, Level::L1), &Caches::default(), 1).unwrap();
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

    /// All subjects of a round, in whatever order, copy between the same addresses, in L1 and L2
    /// and where the pair is resident; those of the next round between others.
    #[test]
    fn a_round_has_one_place_and_the_next_another() {
        let sizes = Distribution::uniform("test", 64..=64);
        let level = |level| Workload::drawn(&mix(&sizes, level), &Caches::default(), 1).unwrap();
        let resident = Workload::resident(2048, Alignment::default(), 1, 1).unwrap();
        for workload in [level(Level::L1), level(Level::L2), resident] {
            let candidates = &available(Function::Memcpy, Plain::C)[..3];
            let start = |candidate: &Candidate, round| {
                OnWorkload::new(*candidate, &workload, ThenRead::Nothing).prepare(0, round, 64);
                let own = &workload.threads[0];
                assert_eq!(own.position.load(Ordering::Relaxed), 0);
                let place = own.place.load(Ordering::Relaxed);
                // Of drawn sizes the list is each sample's own, and the place is the round's.
                let list = match workload.turn {
                    Turn::List => 0,
                    Turn::Round => own.list.load(Ordering::Relaxed),
                };
                let first = own.lists[list].operation(0);
                (place + first.source, place + first.target)
            };
            let mut rounds = HashSet::new();
            for round in 0..16 {
                let found: Vec<_> = candidates.iter().map(|it| start(it, round)).collect();
                assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
                rounds.insert(found[0]);
            }
            // Of the 64 places of L2 14 different ones come up in 16 draws on average.
            assert!(rounds.len() >= 12, "{rounds:?}");
        }
    }

    /// A sample stays at its round's place, however many operations it has.
    #[test]
    fn a_resident_sample_stays_on_its_list() {
        let workload = Workload::resident(100, Alignment::default(), 1, 1).unwrap();
        let subject =
            OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::Nothing);
        subject.prepare(0, 7, 1);
        subject.run(0, 3 * OPERATIONS_REPEATING as u64 + 5);
        let own = &workload.threads[0];
        assert_eq!(own.list.load(Ordering::Relaxed), 7);
        assert_eq!(own.position.load(Ordering::Relaxed), 5);
    }

    /// Where two buffers are to lie badly to each other, they do, and 4 GiB apart too, in memory
    /// for both alone.
    #[test]
    fn a_pair_lies_as_far_apart_as_it_should() {
        for (multiple_of, and) in [(4096, 1), (4096, 4064), (4 << 30, 33)] {
            let mut workload = Workload::apart(10_000, Apart { multiple_of, and }, 1).unwrap();
            let (_, operations) = workload.proof_material(10);
            for it in operations {
                assert!(it.target >= it.source + it.size);
                assert_eq!((it.target - it.source) % multiple_of, and);
            }
            let subject =
                OnWorkload::new(available(Function::Memcpy, Plain::C)[0], &workload, ThenRead::All);
            subject.prepare(0, 3, 100);
            subject.run(0, 100);
        }
    }
}
