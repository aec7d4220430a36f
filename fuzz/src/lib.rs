//! The common part of the targets for copy functions: two equal arenas. haul changes one arena,
//! and a loop over bytes changes the other. Both must stay equal. [`victim`] is the common part
//! of the targets for ports.

pub mod victim;

use haul_copy::Thresholds;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Bytes of an arena: enough for every size class, including the classes for large copies.
pub const BYTES: usize = 96 << 10;

/// Thresholds with any values. No value may make a copy wrong.
#[derive(Arbitrary, Debug)]
pub struct AnyThresholds([u32; 8]);

impl AnyThresholds {
    /// Applies the thresholds.
    pub fn install(&self) {
        let mut thresholds = Thresholds::defaults();
        for (name, bytes) in Thresholds::NAMES.iter().zip(self.0.iter().cycle()) {
            assert!(thresholds.set(name, *bytes as usize % (2 * BYTES)));
        }
        thresholds.install();
    }
}

/// The ranges for a call. Any numbers are mapped to ranges in the arena.
#[derive(Arbitrary, Debug)]
pub struct Ranges {
    target: u32,
    source: u32,
    length: u32,
    /// Whether the size is below 300 bytes. This is so in half of the calls.
    is_small: bool,
}

impl Ranges {
    /// The target, the source and the length. The ranges are inside the arena and may overlap.
    pub fn anywhere(&self) -> (usize, usize, usize) {
        let length = self.length as usize % if self.is_small { 300 } else { BYTES };
        let spots = BYTES - length + 1;
        (self.target as usize % spots, self.source as usize % spots, length)
    }

    /// The target, the source and the length. The ranges do not overlap: the target is in the
    /// lower half, the source in the upper half.
    pub fn apart(&self) -> (usize, usize, usize) {
        let length = self.length as usize % if self.is_small { 300 } else { BYTES / 2 };
        let spots = BYTES / 2 - length + 1;
        (self.target as usize % spots, BYTES / 2 + self.source as usize % spots, length)
    }
}

/// The two arenas.
pub struct Arenas {
    /// The arena that haul changes.
    pub ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Arenas {
    /// Two arenas with the same bytes. Consecutive bytes differ.
    pub fn new(seed: u8) -> Self {
        let bytes =
            |index: usize| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8 ^ seed);
        let ours: Vec<u8> = (0..BYTES).map(bytes).collect();
        Self { theirs: ours.clone(), ours }
    }

    /// Performs a naive memmove on the other arena: byte by byte, from a copy of the source.
    pub fn expect_copy(&mut self, target: usize, source: usize, length: usize) {
        let bytes: Vec<u8> = (0..length).map(|index| self.theirs[source + index]).collect();
        for (index, byte) in bytes.into_iter().enumerate() {
            self.theirs[target + index] = byte;
        }
    }

    /// Performs a naive memset on the other arena.
    pub fn expect_fill(&mut self, target: usize, byte: u8, length: usize) {
        for index in 0..length {
            self.theirs[target + index] = byte;
        }
    }

    /// Panics with the index of the first byte that differs.
    pub fn assert_equal(&self, what: &str) {
        if self.ours != self.theirs {
            let at = self.ours.iter().zip(&self.theirs).position(|(ours, theirs)| ours != theirs);
            panic!("{what} differs from a loop over bytes at {at:?}");
        }
    }
}
