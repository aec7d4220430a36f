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
//! - short operations for twenty times the loss;
//! - long ones only if the thread has lost more than twice the time that it has worked for them.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Relaxed};
use crate::sys;

/// The least bytes of a long operation.
pub(crate) const LONG: usize = 256 << 10;

/// How many KiB of long operations the CPU does if the helper thread comes to none of an
/// operation's pieces. A stated default: the caller has lost less than the time of 1 MiB, and a
/// program that takes the processor for 3 ms keeps it for that of 64 MiB.
const ABSENT_KIB: u32 = 16 << 10;
/// How many short operations the CPU does then.
const ABSENT_OPERATIONS: u32 = 64;
/// How many KiB of long operations the CPU does if the thread shares its caller's processor, and
/// after the first loss that is not accepted. A stated default: such an attempt costs about as much
/// as 1 MiB, so it costs 2%.
const KIB_MIN: u32 = 64 << 10;
/// The largest number of KiB, after repeated loss.
const KIB_MAX: u32 = 64 << 20;

/// For how many times a loss the CPU does short operations after it. A stated default: so losses
/// take a twentieth of the time.
const LOSSES: u32 = 20;
/// The loss from which on more changes nothing: perhaps the whole machine has stopped.
const LOSS_MAX: Duration = Duration::from_millis(50);
/// For how long the processor time at the end of a short operation is recent enough to show a loss:
/// small ones add up.
const SEEN_FOR: Duration = Duration::from_millis(10);
/// How many short operations the CPU does between two readings of the clock.
const UNREAD: u32 = 16;

/// How much lost time a caller accepts for the time that the helper thread works. A stated default:
/// a caller that waits or computes meanwhile gains most of that time, and waits for a piece in less
/// than a third of the losses (Emerald Rapids: beside a program that takes every other 3 ms, 256
/// KiB to 16 MiB take 0.6 to 0.8 of the CPU's time). Work while the next operation waits is not
/// counted: then a loss always delays a piece.
const ACCEPTED_LOSS: u32 = 2;
/// The longest loss that is accepted after any work.
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
    /// How many KiB of long operations the CPU should do yet.
    long_left: AtomicU32,
    /// How many short operations the CPU should do before the clock is read again.
    short_left: AtomicU32,
    /// Until when the CPU should do short operations, in microseconds of [`sys::clock`].
    short_until: AtomicU64,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self {
            woken_from: AtomicUsize::new(usize::MAX),
            long_left: AtomicU32::new(0),
            short_left: AtomicU32::new(0),
            short_until: AtomicU64::new(0),
        }
    }

    /// The calling thread is about to wake the helper thread.
    pub(crate) fn note_waker(&self) {
        self.woken_from.store(sys::cpu(), Relaxed);
    }

    /// The helper thread came to no piece of an operation of this many bytes.
    pub(crate) fn note_absence(&self, bytes: usize) {
        match bytes >= LONG {
            true => raise(&self.long_left, ABSENT_KIB),
            false => raise(&self.short_left, ABSENT_OPERATIONS),
        }
    }

    /// The helper thread may not leave its caller's processor, or not again so soon.
    fn note_shared(&self) {
        raise(&self.long_left, KIB_MIN);
        raise(&self.short_left, ABSENT_OPERATIONS);
    }

    /// Lets the CPU do short operations until that time.
    fn leave_short_until(&self, time: Duration) {
        self.short_until.fetch_max(time.as_micros() as u64 + 1, Relaxed);
        raise(&self.short_left, UNREAD);
    }

    /// Whether the CPU should do the next operation, which is counted. It has this many bytes.
    pub(crate) fn skips_one(&self, bytes: usize) -> bool {
        let is_long = bytes >= LONG;
        let left = if is_long { &self.long_left } else { &self.short_left };
        let counted = left.load(Relaxed);
        if counted == 0 {
            return false;
        }
        let counts = if is_long { u32::try_from(bytes >> 10).unwrap_or(u32::MAX) } else { 1 };
        let rest = counted.saturating_sub(counts);
        let is_early = || (sys::clock().as_micros() as u64) < self.short_until.load(Relaxed);
        left.store(if rest == 0 && !is_long && is_early() { UNREAD } else { rest }, Relaxed);
        true
    }
}

fn raise(number: &AtomicU32, least: u32) {
    number.store(number.load(Relaxed).max(least), Relaxed);
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
    /// How many KiB of long operations the CPU does after the next loss that is not accepted.
    next_kib: u32,
}

impl Whereabouts {
    pub(crate) fn new() -> Self {
        Self { avoided: None, moved: None, seen: now(), credit: Duration::ZERO, next_kib: KIB_MIN }
    }

    /// Keeps this thread, which was just woken, off the processor of the thread that woke it.
    /// Returns false if it stays there. Cost: two system calls if that processor is a new one.
    pub(crate) fn keep_off_waker(&mut self, crowd: &Crowd) -> bool {
        let waker = crowd.woken_from.swap(usize::MAX, Relaxed);
        let is_known = waker == usize::MAX || self.avoided.is_some_and(|(cpu, _)| cpu == waker);
        let has_left = !is_known && self.leave(waker);
        let is_apart = has_left || waker != sys::cpu();
        if !is_apart {
            crowd.note_shared();
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
            // A move costs little beside the loss that this follows.
            (self.avoided, self.moved) = (None, None);
        }
    }

    /// Notes whether another thread has had the processor during a long operation, which took this
    /// time, or since the last one. The thread has not slept since then. `is_last` says that no
    /// further operation waits. Cost: a system call.
    pub(crate) fn note_long(&mut self, of_operation: Duration, is_last: bool, crowd: &Crowd) {
        let is_loss = |(time, lost)| (lost >= LOSS_MIN.max(time / LOSS_SHARE)).then_some(lost);
        let lost = self.lost().and_then(is_loss);
        if is_last {
            let worked = of_operation.saturating_sub(lost.unwrap_or_default());
            self.credit = self.credit.saturating_add(ACCEPTED_LOSS * worked).min(CREDIT_MAX);
        }
        let Some(lost) = lost else {
            self.next_kib = (self.next_kib / 2).max(KIB_MIN);
            return;
        };
        self.note_loss(lost, crowd);
        let left = self.credit.checked_sub(lost);
        self.credit = left.unwrap_or_default();
        if left.is_none() {
            raise(&crowd.long_left, self.next_kib);
            self.next_kib = (2 * self.next_kib).min(KIB_MAX);
        }
    }

    /// Notes whether another thread has had the processor during a short operation, which took this
    /// time at most, and ended at `end`. Cost: a system call now and then.
    pub(crate) fn note_short(&mut self, at_most: Duration, end: Instant, crowd: &Crowd) {
        let is_seen = self.seen.is_some_and(|(seen, _)| end - seen < SEEN_FOR);
        let is_suspect = at_most >= LOSS_MIN;
        if is_seen && !is_suspect {
            return;
        }
        let lost = self.lost().map_or(Duration::ZERO, |(_, lost)| lost);
        if is_suspect && lost >= LOSS_MIN {
            self.note_loss(lost.min(at_most), crowd);
        }
    }

    fn note_loss(&mut self, lost: Duration, crowd: &Crowd) {
        self.run_everywhere();
        crowd.leave_short_until(sys::clock() + LOSSES * lost.min(LOSS_MAX));
    }

    /// The time since this thread was last seen at work, and for how long of it other threads have
    /// had the processor. Cost: a system call.
    fn lost(&mut self) -> Option<(Duration, Duration)> {
        let before = std::mem::replace(&mut self.seen, now());
        let (before, seen) = before.zip(self.seen)?;
        let (time, worked) = (seen.0 - before.0, seen.1.saturating_sub(before.1));
        Some((time, time.saturating_sub(worked)))
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
mod tests;
