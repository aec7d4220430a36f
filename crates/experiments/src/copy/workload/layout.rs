//! The layout of the memory of a thread's lists.

use haul_machine::sys::Sys;
use haul_measure::Error;
use haul_measure::memory::{Pages, Region, check_available};
use haul_measure::placement::resident::{Place, Resident};
use haul_measure::placement::{Operation, Placement};
use haul_measure::random::Random;

use super::LINE_BYTES;
use crate::copy::operations::READ_SLACK_BYTES;

/// The layout of the memory that the lists refer to.
#[derive(Debug)]
pub(super) enum Layout {
    Level(Placement),
    /// The offsets in the lists include the location.
    Resident(Resident),
    /// The offsets in the lists are relative to the location of the round, which is one of these.
    Moved(Resident, Vec<Place>),
    Apart(Pair),
}

/// The distance from a source to the target above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The distance contains the smallest multiple of this many bytes that keeps the two buffers
    /// from overlapping.
    pub multiple_of: usize,
    /// Bytes that are added to this multiple.
    pub and: usize,
}

/// The location of operations whose offsets include it, and of operations that are drawn relative
/// to a later one.
pub(super) const WITHIN: Place = Place { source: 0, target: 0 };

/// Two buffers at one distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    size_bytes: usize,
    distance_bytes: usize,
}

impl Pair {
    /// The number of bytes by which both buffers may be shifted.
    const ROOM_BYTES: usize = 64 << 10;

    pub(super) fn new(size_bytes: usize, apart: Apart) -> Self {
        let least = size_bytes + Self::ROOM_BYTES;
        let distance_bytes = least.next_multiple_of(apart.multiple_of) + apart.and;
        Self { size_bytes, distance_bytes }
    }

    pub(super) fn draw(self, random: &mut Random) -> Operation {
        let source = random.below(Self::ROOM_BYTES / LINE_BYTES) * LINE_BYTES;
        Operation { source, target: source + self.distance_bytes, size: self.size_bytes }
    }

    pub(super) fn region_bytes(self) -> usize {
        self.distance_bytes + Self::ROOM_BYTES + self.size_bytes + READ_SLACK_BYTES
    }

    /// The memory, in which only the pages of the buffers are touched. The addresses between two
    /// buffers that are far apart are not mapped.
    pub(super) fn region(self) -> Result<Region, Error> {
        let used = Self::ROOM_BYTES + self.size_bytes + READ_SLACK_BYTES;
        check_available(2 * used as u64, &Sys::new())?;
        let mut region = Region::unasked(self.region_bytes(), Pages::Base)?;
        let bytes = region.as_mut_slice();
        for start in [0, self.distance_bytes] {
            bytes[start..start + used].fill(1);
        }
        Ok(region)
    }
}

impl Layout {
    pub(super) fn region_bytes(&self) -> usize {
        match self {
            Self::Level(placement) => placement.region_bytes(),
            Self::Resident(resident) | Self::Moved(resident, _) => resident.region_bytes(),
            Self::Apart(pair) => pair.region_bytes(),
        }
    }

    /// The offsets of a round's sources and targets, in bytes.
    pub(super) fn location(&self, round: u64) -> Place {
        match self {
            Self::Level(placement) => {
                let both = placement.place_bytes(round);
                Place { source: both, target: both }
            }
            Self::Resident(_) | Self::Apart(_) => WITHIN,
            Self::Moved(_, places) => places[(round % places.len() as u64) as usize],
        }
    }

    pub(super) fn shift_bytes(&self, pass: u64) -> usize {
        match self {
            Self::Level(placement) => placement.shift_bytes(pass),
            Self::Resident(_) | Self::Moved(..) | Self::Apart(_) => 0,
        }
    }
}
