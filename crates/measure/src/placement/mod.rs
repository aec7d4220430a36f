//! Locations of source and target in L1, L2, LLC or memory.
//!
//! A region has two halves of equal length: sources are in the first, targets in the second. The
//! level determines the size of the halves, and therefore the cache that holds them:
//!
//! - L1: both halves together are three quarters of L1, less two lines in eight for the list of
//!   operations, which passes through L1 from L2;
//! - L2: half of L2, with the list in the other half;
//! - LLC: half of the LLC, at most [`LLC_MAX_BYTES`], at least four times L2;
//! - cold: each half has twice [`COLD_LLC_MULTIPLE`] times the size of the LLC, and operations
//!   visit it page by page in a random order. Each pass shifts all addresses by a random number
//!   of pages and some lines, so that the next subject does not touch the lines that the previous
//!   one has just touched: one line in ten is still in LLC, as a test here shows;
//! - mixed: each address is drawn from one of several nested parts of the region: see
//!   [`MIXED_SHARES`].
//!
//! Source and target are misaligned independently. At the levels L1 and L2, whose lines are meant
//! to be reused, the region has another location in each round, which all subjects of the round
//! share: see [`Placement::place_bytes`], and [`resident`] for two buffers of one size.
//!
//! From the bottom up:
//!
//! - `caches`: the sizes of caches, and the size of the halves that each holds;
//! - `level`: the levels of the memory hierarchy;
//! - [`resident`]: two buffers of one size that stay in a cache.

mod caches;
mod level;
pub mod resident;

use crate::distribution::{Alignment, Overlap};
use crate::random::Random;

pub use caches::{COLD_LLC_MULTIPLE, Caches, LLC_MAX_BYTES};
pub use level::Level;

/// A cold slot in bytes, which is also the range of a pass's shift: one base page.
const SLOT_BYTES: usize = 4096;

/// The number of lines by which each pass shifts the addresses: odd, so that all 64 lines of a
/// page occur, and larger than the distance to the neighbour that a spatial prefetcher fetches
/// with a line.
const SHIFT_LINES: usize = 13;

/// A cache line, in bytes.
const LINE_BYTES: usize = 64;

/// The largest distance between the locations of different rounds, in bytes. All values of the
/// address bits 12 to 19 occur in data in L1: AMD's processors predict the L1 way from a hash of
/// such bits, and two lines of a set with the same hash evict each other (Lipp et al., "Take A
/// Way", 2020). Other data of a subject, its variables and its stack, keeps its location during
/// the whole process.
pub const PLACES_BYTES: usize = 768 << 10;

/// The shares of the mixed level's addresses that are drawn from the parts of L1, L2, LLC and
/// cold size. These shares are haul's choice, not a measurement: half of the data is hot, and a
/// tenth is cold.
pub const MIXED_SHARES: [f64; 4] = [0.5, 0.25, 0.15, 0.1];

/// One operation within a region: offsets from its start, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The offset of the source.
    pub source: usize,
    /// The offset of the target.
    pub target: usize,
    /// The length of source and target.
    pub size: usize,
}

/// Draws operations at a level.
#[derive(Clone, Debug)]
pub struct Placement {
    level: Level,
    halves_bytes: [usize; 4],
    size_max_bytes: usize,
    slot_orders: [SlotOrder; 2],
}

impl Placement {
    /// A placement at a level, for operations of up to `size_max_bytes`. A level that cannot hold
    /// two operations of that size grows until it can: see [`Placement::is_grown`].
    #[must_use]
    pub fn new(level: Level, caches: &Caches, size_max_bytes: usize, seed: u64) -> Self {
        let halves_bytes = caches.halves_bytes();
        let slots = halves_bytes[3] / SLOT_BYTES;
        let order =
            |salt| SlotOrder::new(if level_is_cold(level) { slots } else { 1 }, seed ^ salt);
        Self { level, halves_bytes, size_max_bytes, slot_orders: [order(0), order(1)] }
    }

    /// The bytes that the region needs, for every location and shift.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        2 * self.half_bytes() + self.places() * LINE_BYTES
    }

    /// Whether operations of the largest size do not fit into the level, so that the region is
    /// larger.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.size_max_bytes + LINE_BYTES > self.span_bytes()
    }

    /// The shift of all addresses in a pass over the list of operations, in bytes: 0 if the same
    /// lines are meant to be reused.
    #[must_use]
    #[inline]
    pub fn shift_bytes(&self, pass: u64) -> usize {
        match self.level {
            Level::L1 | Level::L2 | Level::Nearest => 0,
            Level::Llc | Level::Mixed => lines_of(pass),
            Level::Cold => {
                let pages = self.halves_bytes[3] / SLOT_BYTES;
                Random::new(pass).below(pages) * SLOT_BYTES + lines_of(pass)
            }
        }
    }

    /// The offset of a round's region, in bytes. The offset is drawn from the round's number, so
    /// that all subjects of a round have the same location, and the next round has a different
    /// one. In L1, the offset is anywhere within [`PLACES_BYTES`]. In L2, and if the level has
    /// grown, it is within a page, because data at other locations would come from beyond the
    /// level. The offset is 0 at the levels where each pass shifts the addresses.
    #[must_use]
    #[inline]
    pub fn place_bytes(&self, round: u64) -> usize {
        Random::new(round).below(self.places()) * LINE_BYTES
    }

    /// The number of locations, which are one line apart.
    fn places(&self) -> usize {
        let bytes = match self.level {
            Level::L1 if !self.is_grown() => PLACES_BYTES,
            Level::L1 | Level::L2 | Level::Nearest => SLOT_BYTES,
            Level::Llc | Level::Cold | Level::Mixed => LINE_BYTES,
        };
        bytes / LINE_BYTES
    }

    /// Draws an operation of this size.
    ///
    /// # Panics
    /// `size` is beyond the placement's largest.
    pub fn draw(
        &mut self,
        random: &mut Random,
        size: usize,
        alignment: Alignment,
        overlap: Overlap,
    ) -> Operation {
        assert!(
            size <= self.size_max_bytes,
            "{size} B is beyond the placement's {} B",
            self.size_max_bytes
        );
        let target = self.half_bytes() + self.offset(1, random, size, alignment);
        let source = match overlap.sample(random, size) {
            Some(distance) => self.overlapping(target, size, distance),
            None => self.offset(0, random, size, alignment),
        };
        Operation { source, target, size }
    }

    /// The offset of the source at this distance from the target. If the region ends before that
    /// offset, the source is at the same distance below the target.
    fn overlapping(&self, target: usize, size: usize, distance: isize) -> usize {
        let end = 2 * self.half_bytes() - self.shift_max_bytes();
        match target.checked_add_signed(distance) {
            Some(source) if source + size <= end => source,
            _ => target - distance.unsigned_abs(),
        }
    }

    /// An offset into a half. `size` bytes from this offset on stay inside the half under every
    /// shift.
    fn offset(
        &mut self,
        half: usize,
        random: &mut Random,
        size: usize,
        alignment: Alignment,
    ) -> usize {
        let tier = match self.level {
            Level::L1 | Level::Nearest => 0,
            Level::L2 => 1,
            Level::Llc => 2,
            Level::Cold => 3,
            Level::Mixed => mixed_tier(random),
        };
        let line = if tier == 3 {
            self.slot_orders[half].next_line(random)
        } else {
            let span = self.halves_bytes[tier].max(size + LINE_BYTES);
            random.below((span - size) / LINE_BYTES)
        };
        line * LINE_BYTES + alignment.sample(random)
    }

    fn half_bytes(&self) -> usize {
        let bytes = self.span_bytes() + self.size_max_bytes + self.shift_max_bytes() + LINE_BYTES;
        bytes.next_multiple_of(LINE_BYTES)
    }

    fn shift_max_bytes(&self) -> usize {
        match self.level {
            Level::L1 | Level::L2 | Level::Nearest => 0,
            Level::Llc | Level::Mixed => SLOT_BYTES,
            Level::Cold => self.halves_bytes[3] + SLOT_BYTES,
        }
    }

    fn span_bytes(&self) -> usize {
        match self.level {
            Level::L1 | Level::Nearest => self.halves_bytes[0],
            Level::L2 => self.halves_bytes[1],
            Level::Llc => self.halves_bytes[2],
            Level::Cold | Level::Mixed => self.halves_bytes[3],
        }
    }
}

/// The shift within a page, in bytes. All lines of the page occur in turn.
fn lines_of(pass: u64) -> usize {
    (pass as usize).wrapping_mul(SHIFT_LINES) % (SLOT_BYTES / LINE_BYTES) * LINE_BYTES
}

fn level_is_cold(level: Level) -> bool {
    matches!(level, Level::Cold | Level::Mixed)
}

fn mixed_tier(random: &mut Random) -> usize {
    let mut rest = random.unit();
    for (tier, share) in MIXED_SHARES.iter().enumerate() {
        if rest < *share {
            return tier;
        }
        rest -= share;
    }
    MIXED_SHARES.len() - 1
}

/// Slots of a page in a random order: each slot occurs once before any slot repeats.
#[derive(Clone, Debug)]
struct SlotOrder {
    slots: Vec<u32>,
    next: usize,
}

impl SlotOrder {
    fn new(slots: usize, seed: u64) -> Self {
        let mut slots: Vec<u32> = (0..slots.max(1) as u32).collect();
        Random::new(seed).shuffle(&mut slots);
        Self { slots, next: 0 }
    }

    fn next_line(&mut self, random: &mut Random) -> usize {
        let slot = self.slots[self.next] as usize;
        self.next = (self.next + 1) % self.slots.len();
        let lines = SLOT_BYTES / LINE_BYTES;
        slot * lines + random.below(lines)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    const CACHES: Caches = Caches { l1_bytes: 32 << 10, l2_bytes: 256 << 10, llc_bytes: 2 << 20 };

    /// The number of lines that operations touch in the passes of one round.
    fn lines_touched(level: Level, operations: usize, passes: u64) -> usize {
        let mut placement = Placement::new(level, &CACHES, 64, 1);
        let mut random = Random::new(9);
        let mut lines = HashSet::new();
        let list: Vec<Operation> = (0..operations)
            .map(|_| placement.draw(&mut random, 64, Alignment::default(), Overlap { share: 0.0 }))
            .collect();
        for pass in 0..passes {
            let shift = placement.shift_bytes(pass) + placement.place_bytes(5);
            for operation in &list {
                for start in [operation.source, operation.target] {
                    lines.extend([(start + shift) / 64, (start + shift).div_ceil(64)]);
                }
            }
        }
        lines.len()
    }

    #[test]
    fn operations_touch_as_many_lines_as_the_level_holds() {
        let bytes = |level| lines_touched(level, 20_000, 4) * 64;
        let (l1, l2, llc) = (bytes(Level::L1), bytes(Level::L2), bytes(Level::Llc));
        assert!(l1 < CACHES.l1_bytes * 3 / 4, "{l1}");
        assert!(l2 > 2 * CACHES.l1_bytes && l2 <= CACHES.l2_bytes * 5 / 8, "{l2}");
        assert!(llc > 2 * CACHES.l2_bytes && llc < CACHES.llc_bytes, "{llc}");
    }

    /// At the levels whose lines are reused, the locations of rounds differ in lines, and in L1
    /// also in pages. At levels with a shift per pass, all rounds have the same location.
    #[test]
    fn each_round_has_its_own_location() {
        for level in Level::ALL {
            let placement = Placement::new(level, &CACHES, 64, 1);
            let places: Vec<usize> = (0..256).map(|round| placement.place_bytes(round)).collect();
            assert!(places.iter().all(|place| place.is_multiple_of(LINE_BYTES)));
            let different = |of: &dyn Fn(usize) -> usize| {
                places.iter().map(|&place| of(place)).collect::<HashSet<_>>().len()
            };
            let within_a_page = different(&|place| place % SLOT_BYTES);
            let pages = different(&|place| place / SLOT_BYTES);
            match level {
                Level::L1 => assert!(within_a_page > 50 && pages > 100, "{within_a_page}, {pages}"),
                Level::L2 => assert!(within_a_page > 50 && pages == 1, "{within_a_page}, {pages}"),
                Level::Llc | Level::Cold | Level::Mixed => assert_eq!(different(&|place| place), 1),
                Level::Nearest => panic!("no placement is drawn there"),
            }
        }
    }

    /// Simulates a cache of LLC's size that evicts the oldest line. Of the lines that samples of
    /// a few thousand cold operations touch, few are still in this cache.
    #[test]
    fn cold_operations_miss_the_llc() {
        let mut placement = Placement::new(Level::Cold, &CACHES, 256, 1);
        let mut random = Random::new(4);
        let list: Vec<Operation> = (0..512)
            .map(|_| placement.draw(&mut random, 256, Alignment::default(), Overlap { share: 0.0 }))
            .collect();
        let (mut last_seen, mut clock, mut hits) = (HashMap::new(), 0usize, 0usize);
        for pass in 0..320 {
            for operation in &list {
                for start in [operation.source, operation.target] {
                    let first = (start + placement.shift_bytes(pass)) / 64;
                    for line in first..first + 4 {
                        let age =
                            last_seen.insert(line, clock).map_or(usize::MAX, |seen| clock - seen);
                        hits += usize::from(age < CACHES.llc_bytes / 64);
                        clock += 1;
                    }
                }
            }
        }
        let share = hits as f64 / clock as f64;
        eprintln!("{:.1}% of cold lines hit", 100.0 * share);
        assert!(share < 0.12, "{share}");
    }

    proptest! {
        /// Every operation stays inside the region on every pass, and calls without overlap do not
        /// overlap.
        #[test]
        fn operations_stay_inside(level in 0usize..5, size in 0usize..100_000, seed: u64, pass: u64, round: u64, share in 0f64..1.0) {
            let mut placement = Placement::new(Level::ALL[level], &CACHES, size.max(1), seed);
            let mut random = Random::new(seed);
            for _ in 0..50 {
                let it = placement.draw(&mut random, size, Alignment::default(), Overlap { share });
                let shift = placement.shift_bytes(pass) + placement.place_bytes(round);
                prop_assert!(it.target + size + shift <= placement.region_bytes());
                prop_assert!(it.source + size + shift <= placement.region_bytes());
                if share == 0.0 {
                    prop_assert!(it.source + size <= it.target);
                }
            }
        }
    }
}
