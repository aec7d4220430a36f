//! When a heap that has nothing left of a size is not asked for it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Of the time, one part in so many at most goes into refusals: before a heap says no it looks at
/// all of its slots, milliseconds where there are many, and DPDK may have what is asked for.
const REFUSAL_SHARE: u32 = 20;

/// The longest refusal that counts: what takes longer was interrupted, and memory may have come
/// free since.
const REFUSAL_MAX: Duration = Duration::from_millis(100);

/// What times are counted from.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// Sizes and alignments whose logarithms to the base of 2 are the same when rounded up: 1 B to 2
/// MiB.
const KINDS: usize = 22;

/// Until when a heap is not asked, by how much.
#[derive(Default)]
pub(crate) struct Rests([Rest; KINDS]);

impl Rests {
    /// For blocks of so many bytes at this alignment, a power of two.
    #[inline]
    pub(crate) fn of(&self, bytes: usize, align: usize) -> &Rest {
        let kind = usize::BITS - (bytes.max(align).saturating_sub(1)).leading_zeros();
        &self.0[(kind as usize).min(KINDS - 1)]
    }

    /// Has the heap asked again for blocks of any size.
    pub(crate) fn end(&self) {
        self.0.iter().for_each(Rest::end);
    }
}

/// Until when a heap is not asked.
#[derive(Default)]
pub(crate) struct Rest {
    /// In nanoseconds from [`EPOCH`]; 0 while it does not rest.
    until: AtomicU64,
}

impl Rest {
    /// Whether the heap may be asked.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.until.load(Relaxed) == 0 || self.is_over_now()
    }

    #[cold]
    fn is_over_now(&self) -> bool {
        let is_over = self.until.load(Relaxed) <= now();
        if is_over {
            self.end();
        }
        is_over
    }

    /// Lets the heap rest after a refusal that took so long.
    pub(crate) fn begin(&self, took: Duration) {
        let rest = took.min(REFUSAL_MAX).saturating_mul(REFUSAL_SHARE - 1).as_nanos();
        let rest = u64::try_from(rest).unwrap_or(u64::MAX);
        self.until.store(now().saturating_add(rest).max(1), Relaxed);
    }

    /// Has the heap asked again.
    pub(crate) fn end(&self) {
        self.until.store(0, Relaxed);
    }
}

fn now() -> u64 {
    u64::try_from(EPOCH.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rest_apart() {
        let rests = Rests::default();
        rests.of(256 << 10, 64).until.store(u64::MAX, Relaxed);
        assert!(!rests.of((128 << 10) + 1, 64).is_over() && !rests.of(64, 256 << 10).is_over());
        assert!(rests.of(64, 64).is_over() && rests.of(128 << 10, 64).is_over());
        assert!(rests.of(0, 0).is_over() && rests.of(usize::MAX, 64).is_over());
    }

    #[test]
    fn a_heap_rests_longer_than_it_refused() {
        let rest = Rest::default();
        assert!(rest.is_over());
        let range = |took: u32| {
            let before = now();
            rest.begin(Duration::from_millis(took.into()));
            (rest.until.load(Relaxed) - before, now() - before)
        };
        // 19 times as long, and what passed meanwhile; an interruption of hours is none of the
        // heap's.
        for (took, rests) in [(10, 190_000_000), (100, 1_900_000_000), (u32::MAX, 1_900_000_000)] {
            let (until, passed) = range(took);
            assert!((rests..=rests + passed).contains(&until), "{took} ms: {until}");
        }
        rest.until.store(u64::MAX, Relaxed);
        assert!(!rest.is_over() && !rest.is_over());
        rest.end();
        assert!(rest.is_over());
        rest.begin(Duration::ZERO);
        assert!(rest.is_over());
    }
}
