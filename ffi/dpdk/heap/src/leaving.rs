//! Secondary processes that leave.
//!
//! `rte_eal_cleanup` ends the thread that answers the primary process, wherever it is. If the
//! primary one grows or shrinks its memory just then, it waits for that answer for 5 s; and if the
//! thread was mapping a page, it leaves the lock of the huge pages' folder behind, for which the
//! primary one then waits while it has the lock that the leaving one needs: both hang. So no extent
//! is on its way meanwhile.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// How long leaving may take: milliseconds, but for a machine that is busy. Who dies within it
/// holds up nobody for longer.
const LEAVE: Duration = Duration::from_secs(1);

/// How long an extent may be on its way: DPDK waits up to 5 s for a process that does not answer.
const TRANSIT: Duration = Duration::from_secs(6);

const NAP: Duration = Duration::from_millis(1);

/// In memory that all processes share, and that is not DPDK's: until when somebody leaves, in
/// nanoseconds of the machine's monotonic clock; 0 for nobody.
#[repr(transparent)]
pub(crate) struct Leaving(AtomicU64);

/// A process leaves until this is dropped.
pub(crate) struct Leave<'a> {
    leaving: &'a Leaving,
    until: u64,
}

impl Leaving {
    /// Says that this process leaves, once everything `is_settled` that set out before.
    pub(crate) fn begin(&self, is_settled: impl Fn() -> bool) -> Leave<'_> {
        let start = now();
        loop {
            let until = now() + nanoseconds(LEAVE);
            // SYNC: leaving. Who sets out says so and looks here after it; here it is the other way
            // round.
            self.0.fetch_max(until, SeqCst);
            if is_settled() || now().saturating_sub(start) > nanoseconds(TRANSIT) {
                return Leave { leaving: self, until };
            }
            thread::sleep(NAP);
        }
    }

    /// Whether somebody leaves.
    pub(crate) fn is_under_way(&self) -> bool {
        // SYNC: leaving.
        let until = self.0.load(SeqCst);
        // A time far ahead is none that anybody wrote.
        until != 0 && (1..=nanoseconds(LEAVE)).contains(&until.wrapping_sub(now()))
    }

    /// Has `set_out` say that something sets out, while nobody leaves; it is taken back otherwise.
    /// After as long as leaving may take, it sets out all the same.
    pub(crate) fn wait<T>(&self, set_out: impl Fn() -> T) -> T {
        for _ in 0..LEAVE.as_millis() / NAP.as_millis() {
            let transit = set_out();
            if !self.is_under_way() {
                return transit;
            }
            drop(transit);
            thread::sleep(NAP);
        }
        set_out()
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // Where another one leaves by now, that one's time stays.
        let _ = self.leaving.0.compare_exchange(self.until, 0, SeqCst, Relaxed);
    }
}

/// The time that all processes of the machine have, in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure; this clock is on every Linux.
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
    fn nothing_is_on_its_way_while_one_leaves() {
        struct OnItsWay<'a>(&'a AtomicU32);
        impl Drop for OnItsWay<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let (leaving, on_its_way, is_over) =
            (Leaving(AtomicU64::new(0)), AtomicU32::new(0), AtomicBool::new(false));
        let set_out = || {
            on_its_way.fetch_add(1, SeqCst);
            OnItsWay(&on_its_way)
        };
        let (carried, is_left) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let transit = leaving.wait(set_out);
                    let before = is_left.load(SeqCst);
                    thread::yield_now();
                    // Who leaves for longer than that is not waited for.
                    let is_late = !leaving.is_under_way();
                    assert!(
                        !before || !is_left.load(SeqCst) || is_late,
                        "it set out while one left"
                    );
                    carried.fetch_add(1, SeqCst);
                    drop(transit);
                }
            });
            for _ in 0..200 {
                let leave = leaving.begin(|| on_its_way.load(SeqCst) == 0);
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
        assert!(!leaving.is_under_way());
    }

    #[test]
    fn who_dies_while_it_leaves_holds_up_nobody_for_long() {
        let leaving = Leaving(AtomicU64::new(0));
        let start = now();
        core::mem::forget(leaving.begin(|| true));
        assert!(leaving.is_under_way() || now() - start > nanoseconds(LEAVE));
        leaving.wait(|| ());
        thread::sleep(LEAVE);
        assert!(!leaving.is_under_way());
        leaving.0.store(u64::MAX, Relaxed);
        assert!(!leaving.is_under_way(), "nobody leaves for so long");
    }

    #[test]
    fn of_two_that_leave_the_first_to_be_gone_leaves_the_others_time() {
        let leaving = Leaving(AtomicU64::new(0));
        let first = leaving.begin(|| true);
        let start = now();
        let second = leaving.begin(|| true);
        drop(first);
        assert!(leaving.is_under_way() || now() - start > nanoseconds(LEAVE));
        drop(second);
        assert!(!leaving.is_under_way());
    }
}
