//! Pseudo-random numbers. The same seed gives the same numbers.

/// A small generator: splitmix64, by Sebastiano Vigna.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random word.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    /// An index below `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// The size of a request, with a distribution like in programs: few are large.
    pub(crate) fn size(&mut self) -> usize {
        match self.index(20) {
            0 => 1 + self.index(600_000),
            1 | 2 => 1 + self.index(40_000),
            _ => 1 + self.index(2000),
        }
    }
}
