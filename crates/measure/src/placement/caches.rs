//! The sizes of caches, and the size of the halves of a region that each cache holds.

use haul_copy::cpu::LAST_CACHE_SHARE_BYTES;

/// The largest part of a shared last-level cache on which one guest can rely, in bytes.
/// Hypervisors report the whole size (one reported an L3 of 1 TiB), which other guests share.
pub const LLC_MAX_BYTES: usize = 16 << 20;

/// The multiple of the LLC's size over which the unshifted addresses of a cold half spread. The
/// shift has the same range.
pub const COLD_LLC_MULTIPLE: usize = 3;

/// Cache sizes of one core, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First-level data cache.
    pub l1_bytes: usize,
    /// Second-level cache.
    pub l2_bytes: usize,
    /// Last-level cache as the machine reports it, shared or not.
    pub llc_bytes: usize,
}

impl Default for Caches {
    /// The smallest caches of servers of the last ten years: 32 KiB and 256 KiB (Intel Broadwell),
    /// and 8 MiB of a shared cache.
    fn default() -> Self {
        Self { l1_bytes: 32 << 10, l2_bytes: 256 << 10, llc_bytes: 8 << 20 }
    }
}

impl Caches {
    /// Creates cache sizes from the sizes that a machine reports, nearest cache first
    /// (`Machine::caches_bytes`). Missing or implausible values are replaced: each level is
    /// larger than the previous one, L1 is within 4 KiB..=1 MiB, L2 at most 64 MiB, LLC at most
    /// [`LAST_CACHE_SHARE_BYTES`], as for copies. The limits also bound the memory and the time
    /// of the level "cold": on an idle machine with a larger cache, some of the level's data is
    /// in L3.
    #[must_use]
    pub fn from_sizes(sizes_bytes: &[u64]) -> Self {
        let default = Self::default();
        let reported = |index: usize, fallback: usize| match sizes_bytes.get(index) {
            Some(&bytes) if bytes > 0 => usize::try_from(bytes).unwrap_or(usize::MAX),
            _ => fallback,
        };
        let l1_bytes = reported(0, default.l1_bytes).clamp(4 << 10, 1 << 20);
        let l2_bytes = reported(1, default.l2_bytes).clamp(2 * l1_bytes, 64 << 20);
        let llc_bytes = reported(2, default.llc_bytes)
            .clamp(2 * l2_bytes, LAST_CACHE_SHARE_BYTES.max(2 * l2_bytes));
        Self { l1_bytes, l2_bytes, llc_bytes }
    }

    /// The size of the source half at the levels L1, L2, LLC and cold, in bytes.
    pub(super) fn halves_bytes(&self) -> [usize; 4] {
        let l2 = (self.l2_bytes / 4).max(self.l1_bytes);
        let llc = (self.llc_bytes / 2).min(LLC_MAX_BYTES).max(4 * self.l2_bytes) / 2;
        [self.l1_bytes * 9 / 32, l2, llc, self.llc_bytes * COLD_LLC_MULTIPLE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_cache_sizes_are_replaced() {
        let caches = Caches::from_sizes(&[32 << 10, 1 << 20, 1 << 40]);
        assert_eq!(caches.llc_bytes, 96 << 20);
        assert_eq!(Caches::from_sizes(&[]), Caches::default());
        let absurd = Caches::from_sizes(&[0, u64::MAX, 0]);
        assert!(absurd.l1_bytes < absurd.l2_bytes && absurd.l2_bytes < absurd.llc_bytes);
    }
}
