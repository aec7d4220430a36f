//! Whether there is a processor for each end: an estimate, from what the kernel says is running. By
//! it a mechanism is chosen; how an end waits goes by where the two of them are, see `seat`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use super::affinity::Affinity;

/// Time between two looks. A look costs three system calls.
const SAMPLE_MICROSECONDS: u64 = 10_000;
/// Each look counts a quarter, so that one moment does not decide.
const WEIGHT: u64 = 4;
/// Threads are counted in parts of a thousand.
const THREAD: u64 = 1000;

/// When it was last looked, in microseconds since the first time, and what was seen since then.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// Whether both ends share one processor wherever they run: the machine has no other, or the quota
/// of their control group is no larger. `affinity` reports where the two ends may run. If the thread
/// that asks first is pinned, a quota is not noticed, and its ends poll on the processors that they
/// have.
pub(crate) fn is_single() -> bool {
    static IS_SINGLE: OnceLock<bool> = OnceLock::new();
    *IS_SINGLE.get_or_init(|| {
        // The affinity of the thread that happens to ask first, or the quota where that is less.
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        let is_pinned = Affinity::of_this_thread().is_one();
        processors_of_all() < 2 || allowed < 2 && !is_pinned
    })
}

/// Microseconds since the first look, and a look more.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_micros() as u64 + SAMPLE_MICROSECONDS
}

/// Whether what was seen at this time is to be looked at again.
pub(crate) fn is_due(now: u64, sampled: u64) -> bool {
    now.saturating_sub(sampled) >= SAMPLE_MICROSECONDS
}

/// Whether both ends, which run while they move bytes, have a processor each, if they do not share
/// their only one.
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

/// What was seen running before, and one look more.
fn with_a_sample(before: u64, running: u64) -> u64 {
    before + running * THREAD / WEIGHT - before / WEIGHT
}

/// Whether so much running leaves the two ends, which are among those that run, a processor each:
/// up to half a thread more than there are processors.
fn has_room(running: u64, processors: usize) -> bool {
    running <= processors as u64 * THREAD + THREAD / 2
}

/// Processors of the machine, which those that run share: of how many run on the processors of this
/// process the kernel does not tell.
fn processors_of_all() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).map_or(1, |online| online.max(1))
    })
}

/// Threads that run or could, of `0.20 0.18 0.12 1/80 11206`.
fn running(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_the_fourth_word() {
        assert_eq!(running("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        for other in ["", "1 2 3", "1 2 3 x/80 9", "1 2 3 -1/80"] {
            assert_eq!(running(other), None);
        }
    }

    #[test]
    fn who_runs_for_a_while_takes_the_room_and_who_is_gone_gives_it_back() {
        let samples = |from: u64, running: u64| {
            std::iter::successors(Some(from), move |seen| Some(with_a_sample(*seen, running)))
        };
        // The two ends alone on two processors, from the first look on.
        assert!(samples(0, 2).take(64).all(|seen| has_room(seen, 2)));
        // A third thread, for one look and for long.
        let after: Vec<bool> =
            samples(2 * THREAD, 3).take(64).map(|seen| has_room(seen, 2)).collect();
        assert!(after[1], "one moment decides");
        assert!(!after[63], "a busy processor is not seen");
        assert!(
            samples(3 * THREAD, 2).take(64).any(|seen| has_room(seen, 2)),
            "it is never idle again"
        );
        assert!(has_room(4 * THREAD, 4) && !has_room(4 * THREAD, 3));
    }

    #[test]
    fn one_who_asks_looks() {
        let is_room = is_one_for_each();
        assert!(is_single() || SAMPLED.load(Relaxed) > 0, "nobody sampled");
        assert!(!(is_single() && is_room), "one processor is for one end");
    }
}
