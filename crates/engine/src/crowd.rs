//! Where a helper thread runs, and what it does without a processor of its own.
//!
//! Kernels like to wake a thread on the processor of its waker, and those of virtual machines may
//! do so while another processor is idle. There, the thread would take its caller's time instead of
//! adding another processor's, or wait for some milliseconds behind a caller that does not sleep.
//! So it avoids the processor of the thread that woke it last. If it may run on no other one, it
//! does not poll, and a queue with a `wake_min` lets the CPU do the next operations.
//!
//! Another thread may take the helper thread's processor for some milliseconds, perhaps in the
//! middle of a piece that the caller waits for. After such a loss, the helper thread may run
//! everywhere until it is woken again, and that queue lets the CPU do
//! - short operations for a while: each gains less than a thousandth of a loss;
//! - long ones only if the thread has lost far more time than it has worked for them.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sync::{AtomicU32, AtomicUsize, Relaxed};
use crate::sys;

/// The least bytes of a long operation.
pub(crate) const LONG: usize = 256 << 10;

/// How many KiB of long operations the CPU does if the helper thread comes to none of an
/// operation's pieces. A stated default: the caller has lost less than the time of 1 MiB, and a
/// program that takes the processor for 3 ms keeps it for that of 64 MiB.
const SKIPPED_ABSENT: u32 = 16 << 10;
/// How many KiB of short operations the CPU does then, and of long ones after the first loss that
/// is not accepted. A stated default: such an attempt costs about as much as 1 MiB, so it costs 2%.
const SKIPPED_MIN: u32 = 64 << 10;
/// How many KiB of short operations the CPU does after the first loss. A stated default: with
/// 30 GB/s, they take twenty times as long as a loss.
const SKIPPED_SHORT: u32 = 2 << 20;
/// The largest number of KiB, after repeated trouble.
const SKIPPED_MAX: u32 = 64 << 20;

/// How much lost time a caller accepts for the time that the helper thread works. A stated default:
/// the caller gains most of that time, and waits for a piece in less than a third of the losses
/// (Emerald Rapids: beside a program that takes every other 3 ms, 256 KiB to 16 MiB take 0.6 to 0.8
/// of the CPU's time).
const ACCEPTED_LOSS: u32 = 2;
/// The longest loss that is accepted after any gain.
const CREDIT_MAX: Duration = Duration::from_millis(20);

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
    /// How many KiB of long and of short operations the CPU should do yet.
    long: AtomicU32,
    short: AtomicU32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let none = || AtomicU32::new(0);
        Self { woken_from: AtomicUsize::new(usize::MAX), long: none(), short: none() }
    }

    /// The calling thread is about to wake the helper thread.
    pub(crate) fn note_waker(&self) {
        self.woken_from.store(sys::cpu(), Relaxed);
    }

    /// The helper thread came to no piece of an operation, or may not leave its caller's processor.
    pub(crate) fn note_absence(&self) {
        leave_to_cpu(&self.long, SKIPPED_ABSENT);
        leave_to_cpu(&self.short, SKIPPED_MIN);
    }

    /// Whether the CPU should do the next operation, which is counted. It has this many bytes.
    pub(crate) fn skips_one(&self, bytes: usize) -> bool {
        let skipped = if bytes < LONG { &self.short } else { &self.long };
        let left = skipped.load(Relaxed);
        if left > 0 {
            let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1);
            skipped.store(left.saturating_sub(kib), Relaxed);
        }
        left > 0
    }
}

/// Lets the CPU do at least this many KiB of the next operations.
fn leave_to_cpu(skipped: &AtomicU32, kib: u32) {
    skipped.store(skipped.load(Relaxed).max(kib), Relaxed);
}

/// What the helper thread knows about its processor.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    /// The processor that the thread avoids, and the processors that it is therefore limited to.
    avoided: Option<(usize, CpuSet)>,
    moved: Option<Instant>,
    /// When the thread was last seen at work, and its processor time until then.
    seen: Option<(Instant, Duration)>,
    /// The loss that is accepted after the work for long operations.
    credit: Duration,
    /// How many KiB of long and of short operations the CPU does after the next loss.
    long: u32,
    short: u32,
    /// The bytes of short operations since the last loss.
    short_bytes: usize,
}

impl Whereabouts {
    pub(crate) fn new() -> Self {
        Self {
            avoided: None,
            moved: None,
            seen: now(),
            credit: Duration::ZERO,
            long: SKIPPED_MIN,
            short: SKIPPED_SHORT / 2,
            short_bytes: 0,
        }
    }

    /// Keeps this thread, which was just woken, off the processor of the thread that woke it.
    /// Returns false if it stays there. Cost: two system calls if that processor is a new one.
    pub(crate) fn keep_off_waker(&mut self, crowd: &Crowd) -> bool {
        let waker = crowd.woken_from.swap(usize::MAX, Relaxed);
        let is_known = waker == usize::MAX || self.avoided.is_some_and(|(cpu, _)| cpu == waker);
        let has_left = !is_known && self.leave(waker);
        let is_apart = has_left || waker != sys::cpu();
        if !is_apart {
            crowd.note_absence();
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

    /// Notes whether another thread has had the processor during a long operation, which took this
    /// time, or since the last one. The thread has not slept since then. Cost: a system call.
    pub(crate) fn note_long(&mut self, of_operation: Duration, crowd: &Crowd) {
        let before = std::mem::replace(&mut self.seen, now());
        let lost = before.zip(self.seen).and_then(|(before, seen)| {
            let (time, worked) = (seen.0 - before.0, seen.1.saturating_sub(before.1));
            let lost = time.saturating_sub(worked);
            (lost >= LOSS_MIN.max(time / LOSS_SHARE)).then_some(lost)
        });
        let worked = of_operation.saturating_sub(lost.unwrap_or_default());
        self.credit = self.credit.saturating_add(ACCEPTED_LOSS * worked).min(CREDIT_MAX);
        match lost {
            Some(lost) => self.lose(lost, crowd),
            None => self.long = (self.long / 2).max(SKIPPED_MIN),
        }
    }

    /// Notes whether another thread has had the processor during a short operation, which took this
    /// time.
    pub(crate) fn note_short(&mut self, bytes: usize, time: Duration, crowd: &Crowd) {
        self.short_bytes = self.short_bytes.saturating_add(bytes);
        if time >= LOSS_MIN {
            self.lose(time, crowd);
        }
    }

    fn lose(&mut self, lost: Duration, crowd: &Crowd) {
        self.run_everywhere();
        let is_repeated = std::mem::take(&mut self.short_bytes) >> 10 < SKIPPED_SHORT as usize;
        self.short = if is_repeated { (2 * self.short).min(SKIPPED_MAX) } else { SKIPPED_SHORT };
        leave_to_cpu(&crowd.short, self.short);
        let left = self.credit.checked_sub(lost);
        self.credit = left.unwrap_or_default();
        if left.is_none() {
            leave_to_cpu(&crowd.long, self.long);
            self.long = (2 * self.long).min(SKIPPED_MAX);
        }
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

    /// How many operations the CPU does.
    fn skipped(crowd: &Crowd, bytes: usize) -> usize {
        (0..).take_while(|_| crowd.skips_one(bytes)).count()
    }

    #[test]
    fn operations_count_by_their_bytes() {
        let skipped = |bytes| {
            let crowd = Crowd::new();
            crowd.note_absence();
            skipped(&crowd, bytes)
        };
        let sizes = [1, 64 << 10, LONG - 1, LONG, 1 << 20, (10 << 20) + 1, usize::MAX];
        assert_eq!(sizes.map(skipped), [65_536, 1024, 258, 64, 16, 2, 1]);
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
            own.note_long(Duration::ZERO, &crowd);
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
        let mut skips = || {
            // As if another thread had run meanwhile.
            std::thread::sleep(2 * LOSS_MIN);
            own.note_long(Duration::ZERO, &crowd);
            skipped(&crowd, 1 << 20)
        };
        assert_eq!([skips(), skips(), skips()], [64, 128, 256]);
        (0..20).for_each(|_| _ = skips());
        assert_eq!(skips(), SKIPPED_MAX as usize >> 10);
        // A test machine is busy, but not each time.
        let unharmed = (0..1000).find(|_| {
            own.note_long(Duration::ZERO, &crowd);
            skipped(&crowd, 1 << 20) == 0
        });
        assert!(unharmed.is_some(), "no loss, and yet the CPU should do more");
    }

    #[test]
    fn loss_below_the_credit_leaves_long_operations_to_the_helper_thread() {
        let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
        own.credit = 5 * LOSS_MIN;
        own.lose(3 * LOSS_MIN, &crowd);
        let of = |bytes| skipped(&crowd, bytes);
        assert_eq!([of(1 << 20), of(64 << 10)], [0, 32_768]);
        own.lose(3 * LOSS_MIN, &crowd);
        assert_eq!((of(1 << 20), own.credit), (64, Duration::ZERO));
    }

    #[test]
    fn work_for_long_operations_is_credited_up_to_a_limit() {
        let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
        // On a busy machine, this thread loses its processor.
        let is_credited = (0..1000).any(|_| {
            own.credit = Duration::ZERO;
            own.note_long(LOSS_MIN, &crowd);
            own.credit == ACCEPTED_LOSS * LOSS_MIN
        });
        assert!(is_credited);
        own.note_long(Duration::MAX / 4, &crowd);
        assert!(own.credit <= CREDIT_MAX);
    }

    #[test]
    fn short_operations_are_left_to_the_cpu_after_their_loss() {
        let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
        let mut skips = |bytes, time| {
            own.note_short(bytes, time, &crowd);
            skipped(&crowd, 64 << 10)
        };
        assert_eq!(skips(64 << 10, LOSS_MIN / 2), 0);
        assert_eq!(skips(64 << 10, LOSS_MIN), 32_768);
        assert_eq!(skips(64 << 10, LOSS_MIN), 2 * 32_768);
        assert_eq!(skips(64 << 10, LOSS_MIN), 4 * 32_768);
        // After many operations without one, a loss is no repetition.
        assert_eq!(skips(2 << 30, LOSS_MIN), 32_768);
        (0..20).for_each(|_| _ = skips(1, LOSS_MIN));
        assert_eq!(skips(1, LOSS_MIN), 1 << 20);
    }
}
