//! Measures the time until a heap is intact again after the death of a process.

use std::mem::zeroed;
use std::time::{Duration, Instant};

use haul_heap::{Heap, Reaped};

/// The longest time that a recovery may take.
const PROMISE: Duration = Duration::from_millis(10);

/// One in this many recoveries may take longer, because a hypervisor may stop the processor
/// without a report.
const IN: usize = 100;

/// The longest elapsed time of a recovery on a loaded machine. One that waits for another process
/// would never end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One recovery.
#[derive(Clone, Copy)]
struct Recovery {
    elapsed: Duration,
    /// The CPU time of the thread that reaped.
    own: Duration,
    /// Whether another thread got the processor meanwhile.
    is_interrupted: bool,
    /// Whether a hypervisor reported that it had stopped a processor meanwhile.
    is_stolen: bool,
}

impl Recovery {
    /// The duration of the recovery: the elapsed time including waits, or the CPU time if another
    /// thread got the processor meanwhile.
    fn duration(&self) -> Duration {
        if self.is_interrupted { self.own } else { self.elapsed }
    }
}

/// All recoveries of a run.
#[derive(Default)]
pub(crate) struct Recoveries(Vec<Recovery>);

impl Recoveries {
    /// Reaps, and records the duration.
    pub(crate) fn reap(&mut self, heap: &Heap) -> Reaped {
        let (stolen, interruptions) = (self::stolen(), self::interruptions());
        let (own, start) = (own_time(), Instant::now());
        let reaped = heap.reap();
        let elapsed = start.elapsed();
        let own = own_time() - own;
        let is_interrupted = self::interruptions() != interruptions;
        let is_stolen = self::stolen() != stolen;
        self.0.push(Recovery { elapsed, own, is_interrupted, is_stolen });
        reaped
    }

    /// Asserts the promised time, and prints the durations.
    pub(crate) fn assert_fast(&self) {
        let undisturbed = self.0.iter().filter(|recovery| !recovery.is_stolen);
        let durations = sorted(undisturbed.map(Recovery::duration));
        let elapsed = sorted(self.0.iter().map(|recovery| recovery.elapsed));
        let interrupted = self.0.iter().filter(|recovery| recovery.is_interrupted).count();
        let long = durations.iter().filter(|&&duration| duration > PROMISE).count();
        eprintln!(
            "{} undisturbed recoveries, {long} of more than {PROMISE:?}: {}; with {interrupted} interruptions by others: {}",
            durations.len(),
            summary(&durations),
            summary(&elapsed)
        );
        assert!(!durations.is_empty(), "a hypervisor disturbed every recovery");
        assert!(elapsed.last().is_some_and(|slowest| *slowest < PATIENCE), "{}", summary(&elapsed));
        assert!(
            long * IN <= durations.len(),
            "{long} of {} took more than {PROMISE:?}",
            durations.len()
        );
    }
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

/// The median, the 99th percentile, and the longest duration.
fn summary(sorted: &[Duration]) -> String {
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).or(sorted.last());
    let [median, most, slowest] =
        [at(0.5), at(0.99), at(1.0)].map(|time| *time.unwrap_or(&Duration::ZERO));
    format!("median {median:?}, p99 {most:?}, slowest {slowest:?}")
}

/// The CPU time that this thread has used.
fn own_time() -> Duration {
    // SAFETY: all zeros are a valid timespec.
    let mut time = unsafe { zeroed() };
    // SAFETY: `time` is a local timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time for which a hypervisor has stopped the processors, in ticks of 10 ms.
fn stolen() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    text.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

/// How often another thread got this thread's processor while this thread was ready to run.
fn interruptions() -> i64 {
    // SAFETY: all zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: `usage` is a local rusage.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(failed, 0);
    usage.ru_nivcsw
}
