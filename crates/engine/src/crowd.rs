//! Where a helper thread runs, and what it does without a processor of its own.
//!
//! Kernels like to wake a thread on the processor of its waker, and those of virtual machines may
//! do so while another processor is idle. There, the thread would take its caller's time instead of
//! adding another processor's, or wait for some milliseconds behind a caller that does not sleep.
//! So it avoids the processor of the thread that woke it last. If it may run on no other one, it
//! does not poll, and a queue with a `wake_min` lets the CPU do the next operations. That queue
//! does likewise after another thread has had the helper thread's processor for a while, perhaps in
//! the middle of a piece that the caller waits for; and the helper thread may then run everywhere
//! until it is woken again.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sync::{AtomicU32, AtomicUsize, Relaxed};
use crate::sys;

/// How many operations of 1 MiB the CPU does after the first trouble. A stated default: a failed
/// attempt costs about as much as one of them, so it costs 2%. A shorter operation counts as one.
const SKIPS_MIN: u32 = 64;
const SKIP_BYTES: usize = 1 << 20;
/// The largest number, after repeated trouble.
const SKIPS_MAX: u32 = 1 << 16;

/// The shortest time between two moves. A stated default: a move costs some 10 us, and callers on
/// every processor would cause one for each submission.
const MOVE_AFTER: Duration = Duration::from_millis(10);

/// From this loss on, if it is also an eighth of the time, another thread wants the processor. A
/// stated default: kernel threads take it for some 10 us, and for 1 ms at most; a program that
/// computes takes it for 3 ms.
const LOSS_MIN: Duration = Duration::from_millis(1);
const LOSS_SHARE: u32 = 8;

/// What callers and helper thread tell each other.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The processor of the thread that woke the helper thread last.
    woken_from: AtomicUsize,
    /// The number of operations of 1 MiB that the CPU should do yet.
    skips: AtomicU32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { woken_from: AtomicUsize::new(usize::MAX), skips: AtomicU32::new(0) }
    }

    /// The calling thread is about to wake the helper thread.
    pub(crate) fn note_waker(&self) {
        self.woken_from.store(sys::cpu(), Relaxed);
    }

    /// The helper thread came to no piece of an operation.
    pub(crate) fn note_absence(&self) {
        self.leave_to_cpu(SKIPS_MIN);
    }

    /// Lets the CPU do at least this many of the next operations of 1 MiB.
    fn leave_to_cpu(&self, operations: u32) {
        self.skips.store(self.skips.load(Relaxed).max(operations), Relaxed);
    }

    /// Whether the CPU should do the next operation, which is counted. It has this many bytes.
    pub(crate) fn skips_one(&self, bytes: usize) -> bool {
        let left = self.skips.load(Relaxed);
        if left > 0 {
            let counts = u32::try_from(bytes / SKIP_BYTES).unwrap_or(u32::MAX).max(1);
            self.skips.store(left.saturating_sub(counts), Relaxed);
        }
        left > 0
    }
}

/// What the helper thread knows about its processor.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    /// The processor that the thread avoids, and the processors that it is therefore limited to.
    avoided: Option<(usize, CpuSet)>,
    moved: Option<Instant>,
    /// When the thread was last seen at work, and its processor time until then.
    seen: Option<(Instant, Duration)>,
    /// The number of operations of 1 MiB that the CPU does after the next loss.
    skips: u32,
}

impl Whereabouts {
    pub(crate) fn new() -> Self {
        Self { avoided: None, moved: None, seen: now(), skips: SKIPS_MIN }
    }

    /// Keeps this thread, which was just woken, off the processor of the thread that woke it.
    /// Returns false if it stays there. Cost: two system calls if that processor is a new one.
    pub(crate) fn keep_off_waker(&mut self, crowd: &Crowd) -> bool {
        let waker = crowd.woken_from.swap(usize::MAX, Relaxed);
        let is_known = waker == usize::MAX || self.avoided.is_some_and(|(cpu, _)| cpu == waker);
        let has_left = !is_known && self.leave(waker);
        let is_apart = has_left || waker != sys::cpu();
        if !is_apart {
            crowd.leave_to_cpu(SKIPS_MIN);
        }
        self.seen = now();
        is_apart
    }

    /// Avoids a processor from now on. Returns false if this thread may run on no other one, or has
    /// moved a moment ago.
    fn leave(&mut self, cpu: usize) -> bool {
        if cfg!(miri) || self.moved.is_some_and(|moved| moved.elapsed() < MOVE_AFTER) {
            return false;
        }
        let Some(mut others) = self.allowed() else { return false };
        others.unset(cpu);
        if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
            return false;
        }
        (self.avoided, self.moved) = (Some((cpu, others)), Some(Instant::now()));
        true
    }

    /// The processors on which this thread may run if it avoids none.
    fn allowed(&self) -> Option<CpuSet> {
        let mut allowed = sched_getaffinity(None).ok()?;
        // Unless another process has chosen other processors meanwhile.
        if let Some((avoided, _)) = self.avoided.filter(|(_, limited)| *limited == allowed) {
            allowed.set(avoided);
        }
        Some(allowed)
    }

    /// Avoids no processor.
    fn run_everywhere(&mut self) {
        if self.avoided.is_some()
            && let Some(allowed) = self.allowed()
        {
            let _ = sched_setaffinity(None, &allowed);
            self.avoided = None;
        }
    }

    /// Notes whether another thread has had the processor since this thread was last seen at work.
    /// The thread has not slept since then. Cost: a system call.
    pub(crate) fn note_loss(&mut self, crowd: &Crowd) {
        let before = std::mem::replace(&mut self.seen, now());
        let is_lost = before.zip(self.seen).is_some_and(|(before, seen)| {
            let (time, worked) = (seen.0 - before.0, seen.1.saturating_sub(before.1));
            time.saturating_sub(worked) >= LOSS_MIN.max(time / LOSS_SHARE)
        });
        if !is_lost {
            self.skips = (self.skips / 2).max(SKIPS_MIN);
            return;
        }
        crowd.leave_to_cpu(self.skips);
        self.skips = (self.skips * 2).min(SKIPS_MAX);
        self.run_everywhere();
    }
}

/// The time, and the processor time of this thread; `None` if the kernel refuses. Cost: a system
/// call.
fn now() -> Option<(Instant, Duration)> {
    #[cfg(miri)]
    return None;
    #[cfg(not(miri))]
    {
        use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};
        let clock = DynamicClockId::Known(ClockId::ThreadCPUTime);
        let time = clock_gettime_dynamic(clock).ok()?;
        let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
        Some((Instant::now(), Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)))
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Calls `act` in a thread of its own, whose processors may be changed.
    fn apart(act: impl FnOnce(CpuSet) + Send + 'static) {
        let thread = std::thread::spawn(|| act(sched_getaffinity(None).unwrap()));
        thread.join().unwrap();
    }

    /// Puts this thread on one processor, which it may leave.
    fn stay_on_one(all: &CpuSet) -> usize {
        let cpu = sys::cpu();
        sched_setaffinity(None, &sys::only(cpu)).unwrap();
        sched_setaffinity(None, all).unwrap();
        sys::cpu()
    }

    #[test]
    fn thread_leaves_its_wakers_processor() {
        apart(|all| {
            let (mut own, crowd) = (Whereabouts::new(), Crowd::new());
            assert!(own.keep_off_waker(&crowd), "no thread has woken it");
            if all.count() < 2 {
                crowd.note_waker();
                assert!(!own.keep_off_waker(&crowd) && crowd.skips_one(1));
                return;
            }
            for _ in 0..3 {
                own.moved = None;
                crowd.note_waker();
                let waker = crowd.woken_from.load(Relaxed);
                assert!(own.keep_off_waker(&crowd));
                assert_ne!(sys::cpu(), waker);
            }
            // Also if the waker is elsewhere.
            own.moved = None;
            let cpu = sys::cpu();
            let elsewhere = (0..CpuSet::MAX_CPU).find(|it| *it != cpu && all.is_set(*it)).unwrap();
            crowd.woken_from.store(elsewhere, Relaxed);
            assert!(own.keep_off_waker(&crowd) && !crowd.skips_one(1));
            assert!(!sched_getaffinity(None).unwrap().is_set(elsewhere));
        });
    }

    #[test]
    fn long_operations_count_as_several() {
        let skipped = |bytes| {
            let crowd = Crowd::new();
            crowd.note_absence();
            (0..).take_while(|_| crowd.skips_one(bytes)).count()
        };
        let sizes = [1, 1 << 20, (10 << 20) + 1, usize::MAX];
        assert_eq!(sizes.map(skipped), [64, 64, 7, 1]);
    }

    #[test]
    fn thread_avoids_one_processor_until_it_loses_another() {
        apart(|all| {
            let (mut own, crowd) = (Whereabouts::new(), Crowd::new());
            if all.count() < 2 {
                return;
            }
            let cpu = stay_on_one(&all);
            assert!(own.leave(cpu));
            let mut others = all;
            others.unset(cpu);
            assert_eq!(sched_getaffinity(None).unwrap(), others, "only this one is left out");
            own.moved = Some(Instant::now() + Duration::from_secs(60));
            assert!(!own.leave(sys::cpu()), "not twice in a moment");
            assert_eq!(sched_getaffinity(None).unwrap(), others);
            std::thread::sleep(2 * LOSS_MIN);
            own.note_loss(&crowd);
            assert_eq!(sched_getaffinity(None).unwrap(), all);
        });
    }

    #[test]
    fn processors_that_another_process_chose_stay() {
        apart(|all| {
            let mut own = Whereabouts::new();
            let cpu = sys::cpu();
            if !own.leave(cpu) {
                return;
            }
            let one = sys::only(cpu);
            sched_setaffinity(None, &one).unwrap();
            own.moved = None;
            assert!(!own.leave(cpu), "it may run on this one alone");
            assert_eq!(sched_getaffinity(None).unwrap(), one);
            assert!(all.count() > 1);
        });
    }

    #[test]
    fn repeated_loss_lets_the_cpu_do_more() {
        let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
        let skipped = || std::iter::repeat_with(|| crowd.skips_one(1)).take_while(|it| *it).count();
        let mut skips = || {
            // As if another thread had run meanwhile.
            std::thread::sleep(2 * LOSS_MIN);
            own.note_loss(&crowd);
            skipped()
        };
        assert_eq!([skips(), skips(), skips()], [64, 128, 256]);
        (0..20).for_each(|_| _ = skips());
        assert_eq!(skips(), SKIPS_MAX as usize);
        // A test machine is busy, but not each time.
        let unharmed = (0..1000).find(|_| {
            own.note_loss(&crowd);
            skipped() == 0
        });
        assert!(unharmed.is_some(), "no loss, and yet the CPU should do more");
    }
}
