//! What the targets of the copy functions share: two equal arenas, one changed by haul, the other
//! byte by byte; they must stay equal. What those of ports share is in [`victim`].

pub mod victim;

use haul_copy::Thresholds;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Large enough for every size class, the looked-up ones and interleaved pages among them.
pub const BYTES: usize = 96 << 10;

/// Thresholds of any value: none may make a copy wrong.
#[derive(Arbitrary, Debug)]
pub struct AnyThresholds([u32; 8]);

impl AnyThresholds {
    /// Puts them in force.
    pub fn install(&self) {
        let mut thresholds = Thresholds::defaults();
        for (name, bytes) in Thresholds::NAMES.iter().zip(self.0.iter().cycle()) {
            assert!(thresholds.set(name, *bytes as usize % (2 * BYTES)));
        }
        thresholds.install();
    }
}

/// Where a call works: taken into the arena, whatever the numbers.
#[derive(Arbitrary, Debug)]
pub struct Place {
    target: u32,
    source: u32,
    length: u32,
    /// Half of the calls get a size of at most 300 bytes, as nearly all calls have.
    is_small: bool,
}

impl Place {
    /// Target, source and length, inside the arena and overlapping in any way.
    pub fn anywhere(&self) -> (usize, usize, usize) {
        let length = self.length as usize % if self.is_small { 300 } else { BYTES };
        let spots = BYTES - length + 1;
        (self.target as usize % spots, self.source as usize % spots, length)
    }

    /// Target in the lower half, source in the upper: the two never overlap.
    pub fn apart(&self) -> (usize, usize, usize) {
        let length = self.length as usize % if self.is_small { 300 } else { BYTES / 2 };
        let spots = BYTES / 2 - length + 1;
        (self.target as usize % spots, BYTES / 2 + self.source as usize % spots, length)
    }
}

/// The two arenas.
pub struct Arenas {
    /// The one that haul changes.
    pub ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Arenas {
    /// Both hold the same bytes, which differ from one place to the next.
    pub fn new(seed: u8) -> Self {
        let bytes =
            |index: usize| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8 ^ seed);
        let ours: Vec<u8> = (0..BYTES).map(bytes).collect();
        Self { theirs: ours.clone(), ours }
    }

    /// The naive memmove: through a copy of the source, byte by byte.
    pub fn expect_copy(&mut self, target: usize, source: usize, length: usize) {
        let bytes: Vec<u8> = (0..length).map(|index| self.theirs[source + index]).collect();
        for (index, byte) in bytes.into_iter().enumerate() {
            self.theirs[target + index] = byte;
        }
    }

    /// The naive memset.
    pub fn expect_fill(&mut self, target: usize, byte: u8, length: usize) {
        for index in 0..length {
            self.theirs[target + index] = byte;
        }
    }

    /// Names the first byte that differs.
    pub fn assert_equal(&self, what: &str) {
        if self.ours != self.theirs {
            let at = self.ours.iter().zip(&self.theirs).position(|(ours, theirs)| ours != theirs);
            panic!("{what} differs from byte by byte at {at:?}");
        }
    }
}
