//! Operations that follow each other so soon that a helper thread would not sleep between them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use crate::sys;

/// The largest factor of the limit, as a power of two.
const UNUSED_MAX: u32 = 6;

/// The time without a wake after which the factor is 1 again. A stated default: the six wakes
/// without an operation that it then takes to reach the largest factor, some 14 us each, take 1% of
/// it.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(10);

/// Operations that the CPU does because the helper thread sleeps, as long as the thread would have
/// been awake for each of them. It is woken when their bytes reach a limit: so its sleep costs a
/// program with many short operations little. The limit doubles with each wake after which the
/// thread slept again without an operation, for a while, so that a program whose operations come in
/// bursts pays for few wakes.
///
/// Two threads that note operations at the same time may lose one of them.
#[derive(Debug)]
pub(crate) struct Series {
    /// How long the thread is awake after an operation.
    gap: Duration,
    bytes: AtomicU64,
    /// When the series ends, in nanoseconds of [`sys::clock`].
    until: AtomicU64,
    /// Whether the engine has got an operation since the last wake.
    is_used: AtomicBool,
    /// The limit's factor, as a power of two.
    unused: AtomicU32,
    /// When the thread was woken last, in nanoseconds of [`sys::clock`].
    woken_at: AtomicU64,
}

impl Series {
    /// A series ends when no operation follows the end of the last one for `gap`. Without a gap,
    /// none reaches a limit.
    pub(crate) fn new(gap: Duration) -> Self {
        Self {
            gap,
            bytes: AtomicU64::new(0),
            until: AtomicU64::new(0),
            is_used: AtomicBool::new(true),
            unused: AtomicU32::new(0),
            woken_at: AtomicU64::new(0),
        }
    }

    /// Notes that the engine gets an operation.
    #[inline]
    pub(crate) fn note_use(&self) {
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    /// Notes an operation of this many bytes that begins now. Returns true if the series has
    /// reached its limit with it, at least `limit` bytes, and begins a new one: the caller wakes
    /// the thread, and [notes](Self::note_wake) that. Cost: reads the clock.
    pub(crate) fn reaches(&self, bytes: usize, limit: usize) -> bool {
        !self.gap.is_zero() && self.reaches_at(sys::clock(), bytes, limit)
    }

    fn reaches_at(&self, now: Duration, bytes: usize, limit: usize) -> bool {
        let (now, bytes) = (now.as_nanos() as u64, bytes as u64);
        let before = if now <= self.until.load(Relaxed) { self.bytes.load(Relaxed) } else { 0 };
        let sum = before.saturating_add(bytes);
        let has_reached = sum >= (limit as u64).saturating_mul(1 << self.unused_at(now));
        // A stated default: the CPU does 8 bytes in a nanosecond.
        let until = now.saturating_add(self.gap.as_nanos() as u64).saturating_add(bytes / 8);
        self.until.store(until, Relaxed);
        self.bytes.store(if has_reached { 0 } else { sum }, Relaxed);
        has_reached
    }

    /// Notes that the thread was woken. Cost: reads the clock.
    pub(crate) fn note_wake(&self) {
        self.note_wake_at(sys::clock());
    }

    fn note_wake_at(&self, now: Duration) {
        let now = now.as_nanos() as u64;
        let unused = self.unused_at(now);
        let was_used = self.is_used.swap(false, Relaxed);
        let unused = if was_used { unused.saturating_sub(1) } else { unused + 1 };
        self.unused.store(unused.min(UNUSED_MAX), Relaxed);
        self.woken_at.store(now, Relaxed);
    }

    /// The limit's factor at a time, as a power of two.
    fn unused_at(&self, now: u64) -> u32 {
        let since = now.saturating_sub(self.woken_at.load(Relaxed));
        if since < FORGOTTEN_AFTER.as_nanos() as u64 { self.unused.load(Relaxed) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        Series::new(Duration::from_micros(50))
    }

    /// After which of the operations that begin at these times, in microseconds, with these KiB
    /// each, 1 MiB is reached, if each wake is used.
    fn reached(begins: impl IntoIterator<Item = u64>, kib: usize) -> Vec<usize> {
        let (series, mut reached) = (series(), Vec::new());
        for (number, begin) in begins.into_iter().enumerate() {
            if series.reaches_at(Duration::from_micros(begin), kib << 10, 1 << 20) {
                reached.push(number);
                series.note_wake_at(Duration::from_micros(begin));
                series.note_use();
            }
        }
        reached
    }

    #[test]
    fn operations_in_succession_reach_limit_each_time() {
        assert_eq!(reached((0..33).map(|number| 50 * number), 64), [15, 31]);
        assert_eq!(reached((0..9).map(|number| 70 * number), 256), [3, 7]);
        assert_eq!(reached([0, 1, 2], 1024), [0, 1, 2]);
    }

    #[test]
    fn pause_begins_a_new_series() {
        assert_eq!(reached((0..100).map(|number| 60 * number), 64), []);
        let bursts = (0..10).flat_map(|burst| (0..15).map(move |number| 1000 * burst + number));
        assert_eq!(reached(bursts, 64), []);
        assert!(!Series::new(Duration::ZERO).reaches(usize::MAX, 1));
    }

    #[test]
    fn unused_wakes_become_rare_until_one_is_used() {
        let series = series();
        let is_woken = |micros, bytes| {
            let time = Duration::from_micros(micros);
            let has_reached = series.reaches_at(time, bytes, 1 << 20);
            if has_reached {
                series.note_wake_at(time);
            }
            has_reached
        };
        // Bursts of 2 MiB, after which the woken thread gets no operation.
        let wakes = |begin| (begin..begin + 32).filter(|at| is_woken(*at, 64 << 10)).count();
        // 1 MiB, then 1, then 2; 4 do not come together.
        assert_eq!([0, 200, 400, 600].map(wakes), [2, 1, 0, 0]);
        let forgotten = 1000 + FORGOTTEN_AFTER.as_micros() as u64;
        assert_eq!([0, 200, 400].map(|begin| wakes(forgotten + begin)), [1, 1, 0]);
        let later = forgotten + 600;
        assert!(is_woken(later, 4 << 20), "the factor is 4");
        series.note_use();
        assert!(!is_woken(later, 7 << 20), "the factor is 8");
        assert!(is_woken(later, 1 << 20));
        assert!(is_woken(later, 4 << 20), "the wake was used");
    }

    #[test]
    fn enormous_operation_does_not_overflow() {
        let series = Series::new(Duration::MAX);
        assert!(!series.reaches_at(Duration::ZERO, usize::MAX - 1, usize::MAX));
        assert!(series.reaches_at(Duration::MAX, usize::MAX, usize::MAX));
    }
}
