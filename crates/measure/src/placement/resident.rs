//! Two buffers of one size that are used again and again, at another place each round.
//!
//! They lie in the nearest cache that holds both. How fast one subject is beside another depends on
//! where they lie: on the distance of target and source modulo a page, and on what else of the
//! process comes into the same sets of L1. A place that is drawn once would have one process find
//! what the next does not (docs/measure.md has figures); so each round has its own, the same for
//! all its subjects.

use super::{LINE_BYTES, Operation, PLACES_BYTES, SLOT_BYTES};
use crate::distribution::Alignment;
use crate::random::Random;

/// Where pairs of buffers of one size can lie in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    size_bytes: usize,
}

/// Where one pair lies: offsets from the start of the region, in bytes, multiples of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where the source's page of lines begins.
    pub source: usize,
    /// Where the target's page of lines begins.
    pub target: usize,
}

impl Resident {
    /// Pairs of buffers of `size_bytes` each.
    #[must_use]
    pub fn new(size_bytes: usize) -> Self {
        Self { size_bytes }
    }

    /// How many bytes the region needs: both buffers, room to move each by [`PLACES_BYTES`], and a
    /// page and a line for alignments. `usize::MAX` where that is beyond it, which no machine has.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        self.half_bytes().saturating_mul(2)
    }

    /// A place, drawn for source and target independently.
    #[must_use]
    pub fn place(&self, random: &mut Random) -> Place {
        let mut line = || random.below(PLACES_BYTES / LINE_BYTES) * LINE_BYTES;
        Place { source: line(), target: self.half_bytes() + line() }
    }

    /// An operation at a place: the lines of a page and the bytes of a line, drawn for source and
    /// target independently.
    #[must_use]
    pub fn draw(&self, place: Place, random: &mut Random, alignment: Alignment) -> Operation {
        let mut within =
            || random.below(SLOT_BYTES / LINE_BYTES) * LINE_BYTES + alignment.sample(random);
        let (source, target) = (place.source + within(), place.target + within());
        Operation { source, target, size: self.size_bytes }
    }

    fn half_bytes(&self) -> usize {
        let bytes = self.size_bytes.saturating_add(PLACES_BYTES + SLOT_BYTES + 2 * LINE_BYTES);
        bytes / LINE_BYTES * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Distances of target and source modulo a page, and their pages, differ from place to place.
    #[test]
    fn places_differ_in_every_way_that_matters() {
        let resident = Resident::new(2048);
        let mut random = Random::new(1);
        let places: Vec<Place> = (0..256).map(|_| resident.place(&mut random)).collect();
        let different =
            |of: &dyn Fn(&Place) -> usize| places.iter().map(of).collect::<HashSet<_>>().len();
        // Of 64 equally likely distances 63 come up in 256 draws on average, of 192 pages 141.
        assert!(different(&|place| (place.target - place.source) % SLOT_BYTES) > 50);
        assert!(different(&|place| place.source / SLOT_BYTES) > 100);
        assert!(different(&|place| place.target / SLOT_BYTES) > 100);
    }

    #[test]
    fn a_size_beyond_memory_is_no_overflow() {
        assert_eq!(Resident::new(usize::MAX).region_bytes(), usize::MAX);
    }

    proptest! {
        /// Whatever is drawn lies inside the region, and source and target apart.
        #[test]
        fn operations_stay_inside(size in 0usize..5_000_000, seed: u64) {
            let resident = Resident::new(size);
            let mut random = Random::new(seed);
            for _ in 0..20 {
                let place = resident.place(&mut random);
                for _ in 0..8 {
                    let it = resident.draw(place, &mut random, Alignment::default());
                    prop_assert_eq!((it.size, place.target % LINE_BYTES), (size, 0));
                    prop_assert!(it.source + size <= it.target);
                    prop_assert!(it.target + size <= resident.region_bytes());
                    prop_assert!((it.source - place.source).max(it.target - place.target) < SLOT_BYTES + LINE_BYTES);
                }
            }
        }
    }
}
