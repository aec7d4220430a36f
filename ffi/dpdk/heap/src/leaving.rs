//! Secondary processes that leave.
//!
//! `rte_eal_cleanup` ends the thread that answers the primary process, no matter what the thread
//! does at that time. If the primary process then grows or shrinks its memory, it waits 5 s for
//! the answer. If the thread was mapping a page, the huge pages' folder stays locked. The primary
//! process then waits for that lock while it holds the lock that the leaving process needs, and
//! both hang. Therefore no extent may be in transit while a process leaves.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// How long leaving may take. Leaving takes milliseconds unless the machine is busy. A process
/// that dies while it leaves delays no other process for longer than this.
const LEAVE: Duration = Duration::from_secs(1);

/// How long an extent may be in transit: DPDK waits up to 5 s for a process that does not answer.
const TRANSIT: Duration = Duration::from_secs(6);

const PAUSE: Duration = Duration::from_millis(1);

/// The time until which a process leaves, in nanoseconds of the machine's monotonic clock; 0 if no
/// process leaves. The word is in memory that all processes share, outside of DPDK's memory.
#[repr(transparent)]
pub(crate) struct Leaving(AtomicU64);

/// While this lives, the process leaves.
pub(crate) struct Leave<'a> {
    leaving: &'a Leaving,
    until: u64,
}

impl Leaving {
    /// Announces that this process leaves, and waits until `is_quiet` returns that no extent is
    /// in transit.
    pub(crate) fn begin(&self, is_quiet: impl Fn() -> bool) -> Leave<'_> {
        let start = now();
        loop {
            let until = now() + nanoseconds(LEAVE);
            // SYNC: leaving. A thread that moves an extent announces the transit first and reads
            // this word afterwards; here the order is reversed.
            self.0.fetch_max(until, SeqCst);
            if is_quiet() || now().saturating_sub(start) > nanoseconds(TRANSIT) {
                return Leave { leaving: self, until };
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether a process leaves.
    pub(crate) fn is_active(&self) -> bool {
        // SYNC: leaving.
        let until = self.0.load(SeqCst);
        // No process writes a time that is further ahead, so a time beyond that means that the
        // word is damaged.
        until != 0 && (1..=nanoseconds(LEAVE)).contains(&until.wrapping_sub(now()))
    }

    /// Calls `begin_transit` and returns its guard if no process leaves. Otherwise drops the
    /// guard and tries again. After the time that leaving may take, returns the guard anyway.
    pub(crate) fn wait<T>(&self, begin_transit: impl Fn() -> T) -> T {
        for _ in 0..LEAVE.as_millis() / PAUSE.as_millis() {
            let transit = begin_transit();
            if !self.is_active() {
                return transit;
            }
            drop(transit);
            thread::sleep(PAUSE);
        }
        begin_transit()
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // If another process has begun to leave, its time stays.
        let _ = self.leaving.0.compare_exchange(self.until, 0, SeqCst, Relaxed);
    }
}

/// The time of a clock that all processes of the machine share, in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

const fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    #[test]
    fn no_transit_runs_while_process_leaves() {
        struct InTransit<'a>(&'a AtomicU32);
        impl Drop for InTransit<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let (leaving, in_transit, is_over) =
            (Leaving(AtomicU64::new(0)), AtomicU32::new(0), AtomicBool::new(false));
        let begin_transit = || {
            in_transit.fetch_add(1, SeqCst);
            InTransit(&in_transit)
        };
        let (carried, is_left) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let transit = leaving.wait(begin_transit);
                    let before = is_left.load(SeqCst);
                    thread::yield_now();
                    // After that time, a transit no longer waits for the leaving process.
                    let is_late = !leaving.is_active();
                    assert!(
                        !before || !is_left.load(SeqCst) || is_late,
                        "a transit began while a process left"
                    );
                    carried.fetch_add(1, SeqCst);
                    drop(transit);
                }
            });
            for _ in 0..200 {
                let leave = leaving.begin(|| in_transit.load(SeqCst) == 0);
                is_left.store(true, SeqCst);
                thread::yield_now();
                is_left.store(false, SeqCst);
                drop(leave);
                let seen = carried.load(SeqCst);
                while carried.load(SeqCst) == seen {
                    thread::yield_now();
                }
            }
            is_over.store(true, SeqCst);
        });
        assert!(!leaving.is_active());
    }

    #[test]
    fn dead_leaver_delays_transit_for_limited_time() {
        let leaving = Leaving(AtomicU64::new(0));
        let start = now();
        core::mem::forget(leaving.begin(|| true));
        assert!(leaving.is_active() || now() - start > nanoseconds(LEAVE));
        leaving.wait(|| ());
        thread::sleep(LEAVE);
        assert!(!leaving.is_active());
        leaving.0.store(u64::MAX, Relaxed);
        assert!(!leaving.is_active(), "no process leaves for so long");
    }

    #[test]
    fn first_of_two_leavers_keeps_time_of_second() {
        let leaving = Leaving(AtomicU64::new(0));
        let first = leaving.begin(|| true);
        let start = now();
        let second = leaving.begin(|| true);
        drop(first);
        assert!(leaving.is_active() || now() - start > nanoseconds(LEAVE));
        drop(second);
        assert!(!leaving.is_active());
    }
}
