//! The distributions of sizes, alignments and overlaps of calls.
//!
//! A size distribution is one line of probabilities separated by commas; the index of an entry is
//! its size in bytes. [`mod@file`] reads and checks a file, [`built_in`] holds the distributions
//! that haul ships, and [`Distribution::sample`] draws a size in constant time by the alias method
//! (Walker 1977, in the construction of Vose 1991).
//!
//! From the bottom up:
//!
//! - `file`: reads a size distribution from an untrusted file;
//! - `built_in`: the size distributions that haul ships.

pub mod built_in;
pub mod file;

use std::path::{Path, PathBuf};

use crate::error::{DistributionFault, Error};
use crate::random::Random;

/// The largest size that a distribution may hold, in bytes.
pub const SIZE_MAX_BYTES: usize = 1 << 20;

/// The accepted distance of the probabilities' sum from 1: ten times the largest distance of a
/// known file (sums of 4,096 entries of eight digits, up to 9e-7 from 1). The distance is small
/// because a truncated file loses few calls but many bytes: the last half of `service` is 0.1% of
/// its calls and 69% of its bytes.
pub const SUM_TOLERANCE: f64 = 1e-5;

/// The accepted distance if a file's entries have so few digits that rounding alone explains it:
/// 4,096 entries of six decimals are off by up to 2 in a thousand if all are rounded in the same
/// direction, but in practice they are off by far less.
pub const SUM_TOLERANCE_ROUNDED: f64 = 1e-3;

/// Sizes of calls with their probabilities.
#[derive(Clone, Debug)]
pub struct Distribution {
    name: String,
    /// The path of its file; `None` for a built-in distribution.
    file: Option<PathBuf>,
    /// Sizes that occur, ascending, each with its probability. The probabilities sum to 1.
    shares: Vec<(usize, f64)>,
    /// For each of `shares`: the probability of this size, and the index of the alternative.
    alias: Vec<(f64, u32)>,
}

impl Distribution {
    /// The built-in distribution of this name, or else the file at this path.
    ///
    /// # Errors
    /// [`Error::UnknownDistribution`] if neither exists; [`Error::Distribution`] if the file is
    /// invalid.
    pub fn find(name_or_path: &str) -> Result<Self, Error> {
        if let Some(found) = built_in::get(name_or_path) {
            return Ok(found);
        }
        let path = Path::new(name_or_path);
        // If the path's existence cannot be determined (a link to itself, for example), reading
        // the file reports the reason.
        let is_absent = !path.try_exists().unwrap_or(true);
        if is_absent && !name_or_path.contains(std::path::MAIN_SEPARATOR) {
            let known = built_in::names().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownDistribution { name: name_or_path.into(), known });
        }
        file::read(path)
    }

    /// Creates a distribution from probabilities by size: index = size in bytes. The
    /// probabilities are scaled so that their sum is exactly 1.
    ///
    /// # Errors
    /// There are no or too many probabilities, one is negative or not finite, or their sum is
    /// further than [`SUM_TOLERANCE`] from 1.
    pub fn from_probabilities(name: &str, probabilities: &[f64]) -> Result<Self, Error> {
        Self::from_rounded(name, probabilities, SUM_TOLERANCE)
    }

    /// Like [`Self::from_probabilities`], with this tolerance for the sum.
    fn from_rounded(name: &str, probabilities: &[f64], tolerance: f64) -> Result<Self, Error> {
        let fail = |fault| Err(Error::Distribution { name: name.into(), fault });
        let entries = probabilities.len();
        if entries > SIZE_MAX_BYTES + 1 {
            return fail(DistributionFault::TooLong { entries, limit: SIZE_MAX_BYTES + 1 });
        }
        for (index, &value) in probabilities.iter().enumerate() {
            if !value.is_finite() {
                return fail(DistributionFault::NotFinite { index, value });
            }
            if value < 0.0 {
                return fail(DistributionFault::Negative { index, value });
            }
        }
        if entries == 0 {
            return fail(DistributionFault::Empty);
        }
        let sum: f64 = probabilities.iter().sum();
        if (sum - 1.0).abs() > tolerance {
            return fail(DistributionFault::Sum { entries, sum, tolerance });
        }
        let shares = probabilities.iter().enumerate().filter(|&(_, &p)| p > 0.0);
        Ok(Self::from_shares(name, shares.map(|(size, &p)| (size, p / sum)).collect()))
    }

    /// Every size of the range with equal probability.
    ///
    /// # Panics
    /// The range is empty or reaches beyond [`SIZE_MAX_BYTES`].
    #[must_use]
    pub fn uniform(name: &str, sizes: std::ops::RangeInclusive<usize>) -> Self {
        assert!(!sizes.is_empty() && *sizes.end() <= SIZE_MAX_BYTES, "no sizes in {sizes:?}");
        let count = sizes.end() - sizes.start() + 1;
        Self::from_shares(name, sizes.map(|size| (size, 1.0 / count as f64)).collect())
    }

    /// The built-in name, or the file's name without folder and extension.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its file, as given; `None` for a built-in distribution, or a distribution
    /// created from numbers, independent of its name.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// One size in bytes, drawn at random. Constant time.
    #[must_use]
    #[inline]
    pub fn sample(&self, random: &mut Random) -> usize {
        let slot = random.below(self.alias.len());
        let (stay, other) = self.alias[slot];
        let chosen = if random.chance(stay) { slot } else { other as usize };
        self.shares[chosen].0
    }

    /// `count` sizes in ascending order that represent the distribution better than `count`
    /// draws: the probability is divided into `count` equal parts, and one size is taken at the
    /// same random position of each part (systematic sampling). Each size occurs as often as
    /// expected, plus or minus one.
    #[must_use]
    pub fn systematic(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let place = random.unit();
        let mut shares = self.shares.iter();
        let (mut size, mut below) = shares.next().copied().unwrap_or((0, 1.0));
        let take = |index| {
            let wanted = (index as f64 + place) / count as f64;
            while below <= wanted {
                // Rounding may leave the sum slightly below 1: the last size gets the remainder.
                let Some(&(next, share)) = shares.next() else { break };
                (size, below) = (next, below + share);
            }
            size
        };
        (0..count).map(take).collect()
    }

    /// The sizes that occur, ascending, each with its probability.
    #[must_use]
    pub fn shares(&self) -> &[(usize, f64)] {
        &self.shares
    }

    /// The largest size that occurs, in bytes.
    #[must_use]
    pub fn size_max_bytes(&self) -> usize {
        self.shares.last().map_or(0, |&(size, _)| size)
    }

    /// The mean size in bytes.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.shares.iter().map(|&(size, p)| size as f64 * p).sum()
    }

    /// The share of calls of at most this many bytes.
    #[must_use]
    pub fn share_at_most(&self, size_bytes: usize) -> f64 {
        self.shares.iter().filter(|&&(size, _)| size <= size_bytes).map(|&(_, p)| p).sum()
    }

    /// The share of the copied bytes in calls of more than this many bytes.
    #[must_use]
    pub fn bytes_share_above(&self, size_bytes: usize) -> f64 {
        let above = self.shares.iter().filter(|&&(size, _)| size > size_bytes);
        above.map(|&(size, p)| size as f64 * p).sum::<f64>()
            / self.mean_bytes().max(f64::MIN_POSITIVE)
    }

    fn from_shares(name: &str, shares: Vec<(usize, f64)>) -> Self {
        let alias = alias_table(&shares);
        Self { name: name.into(), file: None, shares, alias }
    }
}

/// Vose's construction: columns of equal width, each with at most two sizes.
fn alias_table(shares: &[(usize, f64)]) -> Vec<(f64, u32)> {
    let count = shares.len();
    let mut scaled: Vec<f64> = shares.iter().map(|&(_, p)| p * count as f64).collect();
    let mut table: Vec<(f64, u32)> = (0..count).map(|slot| (1.0, slot as u32)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..count).partition(|&slot| scaled[slot] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        table[poor] = (scaled[poor], rich as u32);
        scaled[rich] -= 1.0 - scaled[poor];
        if scaled[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    // The remaining columns are 1 except for rounding, and need no alternative.
    table
}

/// The misalignment of the addresses of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alignment {
    /// The share of addresses that are aligned only to a byte.
    pub odd_share: f64,
}

impl Default for Alignment {
    /// 27% of the calls of a large fleet are only byte-aligned (google/fleetbench's sample). The
    /// alignment of the other calls was not published; haul assumes multiples of 8 within a cache
    /// line, the usual alignment of allocators and structure fields.
    fn default() -> Self {
        Self { odd_share: 0.27 }
    }
}

impl Alignment {
    /// An offset within a cache line of 64 bytes.
    #[must_use]
    #[inline]
    pub fn sample(&self, random: &mut Random) -> usize {
        if random.chance(self.odd_share) { random.below(32) * 2 + 1 } else { random.below(8) * 8 }
    }
}

/// How often source and target of a memmove overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// The share of calls that overlap.
    pub share: f64,
}

impl Default for Overlap {
    /// 0.8% of the memmove calls of a large fleet overlap (google/fleetbench's sample).
    fn default() -> Self {
        Self { share: 0.008 }
    }
}

impl Overlap {
    /// The distance from target to source of an overlapping call of this size, uniform over all
    /// overlapping distances except 0; `None` for a call that does not overlap.
    #[must_use]
    #[inline]
    pub fn sample(&self, random: &mut Random, size_bytes: usize) -> Option<isize> {
        if size_bytes < 2 || !random.chance(self.share) {
            return None;
        }
        let distance = 1 + random.below(size_bytes - 1) as isize;
        Some(if random.chance(0.5) { distance } else { -distance })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Draws match the probabilities: chi-squared over the sizes that occur.
    #[test]
    fn samples_match_probabilities() {
        let mut probabilities = vec![0.0; 101];
        for (size, p) in [(0, 0.3), (1, 0.2), (7, 0.05), (16, 0.4), (100, 0.05)] {
            probabilities[size] = p;
        }
        let distribution = Distribution::from_probabilities("test", &probabilities).unwrap();
        let (mut random, draws) = (Random::new(11), 100_000);
        let mut counts = vec![0.0; 101];
        for _ in 0..draws {
            counts[distribution.sample(&mut random)] += 1.0;
        }
        let chi_squared: f64 = distribution
            .shares()
            .iter()
            .map(|&(size, p)| {
                (counts[size] - p * f64::from(draws)).powi(2) / (p * f64::from(draws))
            })
            .sum();
        eprintln!("chi squared {chi_squared:.2} with 4 degrees of freedom");
        assert!(chi_squared < 18.5, "{chi_squared}");
        assert_eq!(counts.iter().sum::<f64>(), f64::from(draws));
    }

    proptest! {
        /// Every size occurs as often as expected, plus or minus one.
        #[test]
        fn systematic_samples_are_representative(
            weights in prop::collection::vec(0.0f64..1.0, 1..50),
            count in 1usize..2000,
            seed: u64,
        ) {
            let sum: f64 = weights.iter().sum();
            prop_assume!(sum > 0.01);
            let probabilities: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            let distribution = Distribution::from_probabilities("test", &probabilities).unwrap();
            let drawn = distribution.systematic(count, &mut Random::new(seed));
            prop_assert_eq!(drawn.len(), count);
            for (size, p) in probabilities.iter().enumerate() {
                let found = drawn.iter().filter(|&&drawn| drawn == size).count() as f64;
                prop_assert!((found - p * count as f64).abs() < 1.0 + 1e-6);
            }
        }

        /// The alias table represents exactly the given probabilities.
        #[test]
        fn alias_table_is_exact(weights in prop::collection::vec(0.0f64..1.0, 1..200)) {
            let sum: f64 = weights.iter().sum();
            prop_assume!(sum > 0.01);
            let probabilities: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            let distribution = Distribution::from_probabilities("test", &probabilities).unwrap();
            let columns = distribution.alias.len() as f64;
            let mut found = vec![0.0; distribution.shares.len()];
            for (slot, &(stay, other)) in distribution.alias.iter().enumerate() {
                found[slot] += stay / columns;
                found[other as usize] += (1.0 - stay) / columns;
            }
            for (&(_, expected), found) in distribution.shares.iter().zip(found) {
                prop_assert!((expected - found).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn uniform_distribution_has_expected_figures() {
        let distribution = Distribution::uniform("class", 0..=16);
        assert!((distribution.mean_bytes() - 8.0).abs() < 1e-12);
        assert!((distribution.share_at_most(7) - 8.0 / 17.0).abs() < 1e-12);
        assert!((distribution.bytes_share_above(15) - 16.0 / 136.0).abs() < 1e-12);
        assert_eq!(distribution.size_max_bytes(), 16);
    }

    #[test]
    fn alignment_and_overlap_match_published_shares() {
        let mut random = Random::new(2);
        let draws = 100_000;
        let odd = (0..draws).filter(|_| Alignment::default().sample(&mut random) % 2 == 1).count();
        assert!((odd as f64 / draws as f64 - 0.27).abs() < 0.01, "{odd}");
        let overlaps: Vec<isize> =
            (0..draws).filter_map(|_| Overlap::default().sample(&mut random, 100)).collect();
        assert!((overlaps.len() as f64 / draws as f64 - 0.008).abs() < 0.002, "{}", overlaps.len());
        assert!(overlaps.iter().all(|&distance| distance != 0 && distance.abs() < 100));
        assert!(overlaps.iter().any(|&d| d < 0) && overlaps.iter().any(|&d| d > 0));
        assert_eq!(Overlap { share: 1.0 }.sample(&mut random, 1), None);
    }
}
