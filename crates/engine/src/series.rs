//! Operations that follow each other so soon that a helper thread would not sleep between them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The operations that the CPU has done since the helper thread fell asleep, as long as the thread
/// would have been awake for each of them. It is woken when their bytes reach a limit: so its sleep
/// costs a program with many short operations little, and one with few is not charged for wakes.
///
/// Two threads that note operations at the same time may lose one of them.
#[derive(Debug)]
pub(crate) struct Series {
    gap: Duration,
    bytes: AtomicU64,
    /// When the series ends, in nanoseconds since the first operation of the process.
    until: AtomicU64,
}

impl Series {
    /// A series ends when no operation follows the end of the last one for `gap`.
    pub(crate) fn new(gap: Duration) -> Self {
        Self { gap, bytes: AtomicU64::new(0), until: AtomicU64::new(0) }
    }

    /// Notes an operation of this many bytes that begins now. Returns true if the series has
    /// reached `limit` bytes with it, and begins a new one. Cost: reads the clock.
    pub(crate) fn reaches(&self, bytes: usize, limit: usize) -> bool {
        static START: OnceLock<Instant> = OnceLock::new();
        self.reaches_at(START.get_or_init(Instant::now).elapsed(), bytes, limit)
    }

    fn reaches_at(&self, now: Duration, bytes: usize, limit: usize) -> bool {
        let bytes = bytes as u64;
        let now = now.as_nanos() as u64;
        let before = if now <= self.until.load(Relaxed) { self.bytes.load(Relaxed) } else { 0 };
        let sum = before.saturating_add(bytes);
        let has_reached = sum >= limit as u64;
        // A stated default: the CPU does 8 bytes in a nanosecond.
        let until = now.saturating_add(self.gap.as_nanos() as u64).saturating_add(bytes / 8);
        self.until.store(until, Relaxed);
        self.bytes.store(if has_reached { 0 } else { sum }, Relaxed);
        has_reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After which of the operations that begin at these times, in microseconds, with these KiB
    /// each, 1 MiB is reached.
    fn reached(begins: impl IntoIterator<Item = u64>, kib: usize) -> Vec<usize> {
        let series = Series::new(Duration::from_micros(50));
        let mut reached = Vec::new();
        for (number, begin) in begins.into_iter().enumerate() {
            if series.reaches_at(Duration::from_micros(begin), kib << 10, 1 << 20) {
                reached.push(number);
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
    }

    #[test]
    fn enormous_operation_does_not_overflow() {
        let series = Series::new(Duration::MAX);
        assert!(!series.reaches_at(Duration::ZERO, usize::MAX - 1, usize::MAX));
        assert!(series.reaches_at(Duration::MAX, usize::MAX, usize::MAX));
    }
}
