//! The time in which an exhausted heap is not asked again.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time for refusals is at most the whole time divided by this number. Before a heap refuses,
/// it searches all of its slots, which takes milliseconds if there are many, and DPDK may have
/// the memory.
const REFUSAL_SHARE: u32 = 20;

/// The longest refusal that counts. A longer refusal was interrupted, and memory may have become
/// free since.
const REFUSAL_MAX: Duration = Duration::from_millis(100);

/// The origin of all times.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// The number of kinds of requests. Requests with the same rounded-up binary logarithm of size or
/// alignment, 1 B to 2 MiB, are of one kind.
const KINDS: usize = 22;

/// The back-offs of a heap, by the kind of a request.
#[derive(Default)]
pub(crate) struct Backoffs([Backoff; KINDS]);

impl Backoffs {
    /// The back-off for blocks of this size and alignment, a power of two.
    #[inline]
    pub(crate) fn of(&self, bytes: usize, align: usize) -> &Backoff {
        let kind = usize::BITS - (bytes.max(align).saturating_sub(1)).leading_zeros();
        &self.0[(kind as usize).min(KINDS - 1)]
    }

    /// Ends all back-offs.
    pub(crate) fn end(&self) {
        self.0.iter().for_each(Backoff::end);
    }
}

/// The back-off of one kind of request.
#[derive(Default)]
pub(crate) struct Backoff {
    /// The end of the back-off in nanoseconds from [`EPOCH`]; 0 if there is none.
    until: AtomicU64,
}

impl Backoff {
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

    /// Begins a back-off after a refusal that lasted for `refusal`.
    pub(crate) fn begin(&self, refusal: Duration) {
        let backoff = refusal.min(REFUSAL_MAX).saturating_mul(REFUSAL_SHARE - 1).as_nanos();
        let backoff = u64::try_from(backoff).unwrap_or(u64::MAX);
        self.until.store(now().saturating_add(backoff).max(1), Relaxed);
    }

    /// Ends the back-off.
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
    fn sizes_have_separate_backoffs() {
        let backoffs = Backoffs::default();
        backoffs.of(256 << 10, 64).until.store(u64::MAX, Relaxed);
        assert!(
            !backoffs.of((128 << 10) + 1, 64).is_over() && !backoffs.of(64, 256 << 10).is_over()
        );
        assert!(backoffs.of(64, 64).is_over() && backoffs.of(128 << 10, 64).is_over());
        assert!(backoffs.of(0, 0).is_over() && backoffs.of(usize::MAX, 64).is_over());
    }

    #[test]
    fn backoff_is_longer_than_refusal() {
        let backoff = Backoff::default();
        assert!(backoff.is_over());
        let range = |refusal: u32| {
            let before = now();
            backoff.begin(Duration::from_millis(refusal.into()));
            (backoff.until.load(Relaxed) - before, now() - before)
        };
        // The back-off is 19 times as long as the refusal, plus the time that passed meanwhile.
        // An interruption of hours does not count as a refusal.
        for (refusal, expected) in
            [(10, 190_000_000), (100, 1_900_000_000), (u32::MAX, 1_900_000_000)]
        {
            let (until, passed) = range(refusal);
            assert!((expected..=expected + passed).contains(&until), "{refusal} ms: {until}");
        }
        backoff.until.store(u64::MAX, Relaxed);
        assert!(!backoff.is_over() && !backoff.is_over());
        backoff.end();
        assert!(backoff.is_over());
        backoff.begin(Duration::ZERO);
        assert!(backoff.is_over());
    }
}
