//! Two buffers of one size that are reused, at another location in each round.
//!
//! The buffers are in the nearest cache that holds both. The speed of one subject relative to
//! another depends on the location of the buffers: on the distance of target and source modulo a
//! page, and on other data of the process that is in the same sets of L1. With one location for a
//! whole process, each process would measure a different location (docs/measure.md has figures).
//! Each round therefore has a new location, which all its subjects share.

use super::{LINE_BYTES, Operation, PLACES_BYTES, SLOT_BYTES};
use crate::distribution::Alignment;
use crate::random::Random;

/// The possible locations of two buffers of one size in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    size_bytes: usize,
}

/// The location of two buffers: offsets from the start of the region, in bytes, multiples of a
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The offset of the source's page of lines.
    pub source: usize,
    /// The offset of the target's page of lines.
    pub target: usize,
}

impl Resident {
    /// Two buffers of `size_bytes` each.
    #[must_use]
    pub fn new(size_bytes: usize) -> Self {
        Self { size_bytes }
    }

    /// The bytes that the region needs: both buffers, room to move each by [`PLACES_BYTES`], and
    /// a page and a line for alignments. On overflow, the size is `usize::MAX`, which no machine
    /// can provide.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        self.half_bytes().saturating_mul(2)
    }

    /// Draws a location, independently for source and target.
    #[must_use]
    pub fn place(&self, random: &mut Random) -> Place {
        let mut line = || random.below(PLACES_BYTES / LINE_BYTES) * LINE_BYTES;
        Place { source: line(), target: self.half_bytes() + line() }
    }

    /// Draws an operation at a location: the line within a page and the byte within a line,
    /// independently for source and target.
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

    /// Distances of target and source modulo a page, and their pages, differ between locations.
    #[test]
    fn locations_differ_in_distance_and_pages() {
        let resident = Resident::new(2048);
        let mut random = Random::new(1);
        let places: Vec<Place> = (0..256).map(|_| resident.place(&mut random)).collect();
        let different =
            |of: &dyn Fn(&Place) -> usize| places.iter().map(of).collect::<HashSet<_>>().len();
        // On average, 63 of 64 equally likely distances occur in 256 draws, and 141 of 192 pages.
        assert!(different(&|place| (place.target - place.source) % SLOT_BYTES) > 50);
        assert!(different(&|place| place.source / SLOT_BYTES) > 100);
        assert!(different(&|place| place.target / SLOT_BYTES) > 100);
    }

    #[test]
    fn size_beyond_memory_does_not_overflow() {
        assert_eq!(Resident::new(usize::MAX).region_bytes(), usize::MAX);
    }

    proptest! {
        /// Every operation is inside the region, and source and target do not overlap.
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
