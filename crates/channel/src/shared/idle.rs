//! Whether there is a processor for each end: an estimate from the number of threads that the
//! kernel reports as running. The choice of a mechanism uses this estimate. How an end waits
//! depends on the processors of the two ends instead, see `cpu`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use super::affinity::Affinity;

/// The time between two samples. A sample costs three system calls.
const SAMPLE_MICROSECONDS: u64 = 10_000;
/// Each sample has a weight of one quarter, so that one moment does not decide.
const WEIGHT: u64 = 4;
/// The number of threads is counted in thousandths.
const THREAD: u64 = 1000;

/// The time of the last sample, in microseconds since the first one, and the average so far.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// Whether both ends share one processor wherever they run: the machine has only one processor,
/// or the quota of their control group is at most one. `affinity` holds the processors of the two
/// ends. If the thread that asks first is pinned, a quota is not noticed, and the ends poll on
/// their processors.
pub(crate) fn is_single() -> bool {
    static IS_SINGLE: OnceLock<bool> = OnceLock::new();
    *IS_SINGLE.get_or_init(|| {
        // The number of processors of the first thread that asks, or the quota if that is less.
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        let is_pinned = Affinity::of_this_thread().is_one();
        processors_of_all() < 2 || allowed < 2 && !is_pinned
    })
}

/// Microseconds since the first call, plus the time between two samples.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_micros() as u64 + SAMPLE_MICROSECONDS
}

/// Whether a value that was sampled at `sampled` is too old.
pub(crate) fn is_due(now: u64, sampled: u64) -> bool {
    now.saturating_sub(sampled) >= SAMPLE_MICROSECONDS
}

/// Whether each of the two ends, which run while they move bytes, has a processor. False if the
/// ends share their only processor.
pub(crate) fn is_one_for_each() -> bool {
    if is_single() {
        return false;
    }
    let now = now();
    let sampled = SAMPLED.load(Relaxed);
    if is_due(now, sampled) && SAMPLED.compare_exchange(sampled, now, Relaxed, Relaxed).is_ok() {
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        if let Some(running) = running(&text) {
            RUNNING.store(with_a_sample(RUNNING.load(Relaxed), running), Relaxed);
        }
    }
    has_room(RUNNING.load(Relaxed), processors_of_all())
}

/// The average number of running threads after one more sample.
fn with_a_sample(before: u64, running: u64) -> u64 {
    before + running * THREAD / WEIGHT - before / WEIGHT
}

/// Whether the two ends, which are among the running threads, have a processor each: the running
/// threads outnumber the processors by at most half a thread.
fn has_room(running: u64, processors: usize) -> bool {
    running <= processors as u64 * THREAD + THREAD / 2
}

/// The number of processors of the machine. The kernel does not report how many threads run on
/// the processors of this process alone.
fn processors_of_all() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).map_or(1, |online| online.max(1))
    })
}

/// The number of runnable threads in a text like `0.20 0.18 0.12 1/80 11206`.
fn running(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_reads_fourth_word() {
        assert_eq!(running("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        for other in ["", "1 2 3", "1 2 3 x/80 9", "1 2 3 -1/80"] {
            assert_eq!(running(other), None);
        }
    }

    #[test]
    fn long_running_thread_takes_room_and_gives_it_back() {
        let samples = |from: u64, running: u64| {
            std::iter::successors(Some(from), move |seen| Some(with_a_sample(*seen, running)))
        };
        // The two ends run alone on two processors, from the first sample on.
        assert!(samples(0, 2).take(64).all(|seen| has_room(seen, 2)));
        // A third thread runs, for one sample and for a long time.
        let after: Vec<bool> =
            samples(2 * THREAD, 3).take(64).map(|seen| has_room(seen, 2)).collect();
        assert!(after[1], "one moment decides");
        assert!(!after[63], "a busy processor is never noticed");
        assert!(
            samples(3 * THREAD, 2).take(64).any(|seen| has_room(seen, 2)),
            "it is never idle again"
        );
        assert!(has_room(4 * THREAD, 4) && !has_room(4 * THREAD, 3));
    }

    #[test]
    fn is_one_for_each_takes_sample() {
        let is_room = is_one_for_each();
        assert!(is_single() || SAMPLED.load(Relaxed) > 0, "no sample was taken");
        assert!(!(is_single() && is_room), "a single processor cannot serve both ends");
    }
}
