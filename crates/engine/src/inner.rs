//! The parts of a queue: routes each operation to the engine or to the CPU, and waits for ends.

use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::fork::Here;

use crate::contract::{Engine, Facts};
use crate::cpu;
use crate::operation::{Operation, Request};
use crate::outcome::{Failed, Outcome, Refusal, Trouble, Value};
use crate::series::Series;
use crate::settings::Settings;
use crate::slots::{DONE, Index, Slots};
use crate::sync::Alone;
use crate::watcher::{Watched, Watcher};

/// The parts of a queue. The engine comes before what it uses, as they are dropped in this order.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) watcher: Watcher,
    pub(crate) engine: Option<Box<dyn Engine>>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) facts: Facts,
    pub(crate) settings: Settings,
    /// The CPU does shorter operations in any state of the engine: all without an engine, and those
    /// without bytes.
    pub(crate) engine_min: usize,
    /// The operations that the CPU did because the engine was not ready.
    pub(crate) series: Alone<Series>,
    /// The number of the process in which the engine can be used.
    pub(crate) usable_in: AtomicU64,
    /// Buffers whose handle was dropped while their operation was pending.
    pub(crate) orphans: Mutex<Vec<Orphan>>,
}

/// An operation whose handle was dropped, with what keeps its buffers.
pub(crate) struct Orphan {
    pub(crate) place: Place,
    pub(crate) buffers: Box<dyn Send>,
}

impl std::fmt::Debug for Orphan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}

/// Where a pending operation is: its slot, and the process that started it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: Index,
    pub(crate) here: Here,
}

/// What became of a submission.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Started {
    /// The engine works on it.
    Pending(Place),
    /// It has ended, and its outcome is [`DONE`]. Apart from the others, because an outcome is
    /// expensive to move behind a copy: its parts are written one by one.
    Done,
    /// It has ended otherwise.
    Ended(Outcome),
}

impl Started {
    #[inline]
    pub(crate) fn ended(outcome: Outcome) -> Self {
        if outcome == DONE { Self::Done } else { Self::Ended(outcome) }
    }
}

impl Inner {
    /// Starts an operation, or does it with the CPU.
    ///
    /// # Safety
    /// Sources are readable and targets writable, lists are in place, and nothing else accesses
    /// the targets, until the operation has ended.
    #[inline]
    pub(crate) unsafe fn begin(&self, request: &Request) -> Started {
        // SAFETY: the caller's promise.
        let outcome = match unsafe { self.accept(request) } {
            // SAFETY: the place was just accepted, and the caller's promise.
            Ok(Some(place)) if unsafe { self.launch(place.index) } => {
                return Started::Pending(place);
            }
            // SAFETY: no engine has the operation, and the caller's promise.
            Ok(_) => unsafe { cpu::execute(request) },
            Err(refusal) => Outcome::Refused(refusal),
        };
        Started::ended(outcome)
    }

    /// Takes a slot for an operation that the engine may do, which [`launch`](Self::launch) starts.
    /// `None` if the CPU must do it.
    ///
    /// The caller writes what it keeps about the operation before it launches it: a load that reads
    /// two younger stores at once waits for both, and they wait behind those of the launch until
    /// the engine's processor has given up its lines (100 ns). So does an atomic addition.
    ///
    /// It is inlined, so that after a short operation by the CPU nothing is read from memory that
    /// was written in several parts before it: such a load waits until the operation's bytes have
    /// left for the cache (10 ns after 1 KiB).
    ///
    /// # Errors
    /// The operation is invalid.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    #[inline(always)]
    pub(crate) unsafe fn accept(&self, request: &Request) -> Result<Option<Place>, Refusal> {
        // SAFETY: the caller's promise.
        let length = unsafe { request.operation.length() };
        // SAFETY: the caller's promise.
        unsafe { cpu::check(&request.operation) }?;
        if length < self.engine_min {
            return Ok(None);
        }
        let here = Here::now();
        Ok(self.slot_for(request, length, here).map(|index| Place { index, here }))
    }

    /// The slot of an operation that the engine may do now.
    fn slot_for(&self, request: &Request, length: usize, here: Here) -> Option<Index> {
        let engine = self.engine.as_deref()?;
        let has = self.facts.verbs & request.operation.verb().bit() != 0;
        let overlaps = matches!(request.operation, Operation::Copy { target, source, length }
            if cpu::overlaps(target, source, length));
        if !has || overlaps || length > self.facts.length_max {
            return None;
        }
        if !self.is_usable(engine, here) || self.is_left_to_cpu(engine, length) {
            return None;
        }
        let index = self.slots.take().or_else(|| {
            self.drop_orphans();
            self.slots.take()
        })?;
        // SAFETY: this thread has just taken the slot.
        unsafe { self.slots.put(index, *request) };
        Some(index)
    }

    /// Whether the CPU does an operation that the engine could do, because that is faster now.
    fn is_left_to_cpu(&self, engine: &dyn Engine, length: usize) -> bool {
        let Settings { wake_min, crowded_min, .. } = self.settings;
        if wake_min == 0 {
            return false;
        }
        if length < crowded_min && engine.skips_one(length) {
            return true;
        }
        if engine.is_ready() {
            self.series.0.note_use();
            return false;
        }
        if length >= wake_min {
            return false;
        }
        // This operation would be over before the engine is awake.
        if self.series.0.reaches(length, wake_min) && engine.rouse() {
            self.series.0.note_wake();
        }
        true
    }

    /// Starts an operation that was accepted. Returns false, and gives up its slot, if the engine
    /// refuses it.
    ///
    /// # Safety
    /// The place is from [`accept`](Self::accept), is launched once, and its promise still holds.
    #[inline]
    pub(crate) unsafe fn launch(&self, index: Index) -> bool {
        // SAFETY: the slot holds the request, and the caller's promise.
        let starts = |engine: &dyn Engine| unsafe { engine.start(index) }.is_ok();
        let has_started = self.engine.as_deref().is_some_and(starts);
        if !has_started {
            self.slots.release(index);
        }
        has_started
    }

    /// Whether the engine can be used in this process. In a child of fork, the first thread that
    /// asks opens it again, if it can be; the others use the CPU meanwhile.
    fn is_usable(&self, engine: &dyn Engine, here: Here) -> bool {
        use std::sync::atomic::Ordering::{Acquire, Release};
        /// The engine cannot be used in this process and its children.
        const NEVER: u64 = u64::MAX;
        /// Beside the number of a process: a thread of that process opens the engine again.
        const REOPENING: u64 = 1 << 63;
        let usable_in = self.usable_in.load(Acquire);
        if usable_in == here.number() {
            return true;
        }
        // A thread of the parent that was opening the engine does not exist in this process.
        let claimed = REOPENING | here.number();
        if usable_in == NEVER
            || usable_in == claimed
            || self.usable_in.compare_exchange(usable_in, claimed, Acquire, Acquire).is_err()
        {
            return false;
        }
        let reopened = engine.reopen().is_ok();
        self.usable_in.store(if reopened { here.number() } else { NEVER }, Release);
        reopened
    }

    /// How the operation ended; `None` while it is pending. Does bounded work.
    ///
    /// # Safety
    /// The place is not released, and its memory is valid.
    pub(crate) unsafe fn poll(&self, place: Place) -> Option<Outcome> {
        if let Some(outcome) = self.slots.outcome(place.index) {
            return Some(outcome);
        }
        if !place.here.is_here() {
            // SAFETY: the operation was pending at the time of the fork. The child's copy of its
            // memory is accessed by no engine.
            let request = unsafe { self.slots.request(place.index) };
            // SAFETY: it was checked when it was submitted, and the caller's promise.
            let outcome = unsafe { cpu::execute(&request) };
            // SAFETY: the handle that polls is the only one.
            unsafe { self.slots.adopt(place.index, outcome) };
            return Some(outcome);
        }
        if let Some(engine) = &self.engine {
            engine.poll(place.index);
        }
        self.slots.outcome(place.index)
    }

    /// Whether an operation whose handle was dropped has ended. In a child of fork, one that was
    /// pending at the fork ends here without being done: the parent does it, perhaps in memory
    /// that both share.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn has_ended_unasked(&self, place: Place) -> bool {
        if place.here.is_here() || self.slots.is_ended(place.index) {
            // SAFETY: the caller's promise.
            return unsafe { self.poll(place) }.is_some();
        }
        // SAFETY: the operation was pending at the fork, and only this thread has its place.
        unsafe { self.slots.adopt(place.index, Outcome::Gone) };
        true
    }

    /// Waits until the operation has ended, or the time is over.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn wait(&self, place: Place, deadline: Option<Instant>) -> Option<Outcome> {
        /// Polls before the thread sleeps. A stated default: their time depends on the engine.
        const POLLS: u32 = 400;
        /// How long a thread sleeps if the engine ends nothing unless it is polled.
        const NAP: Duration = Duration::from_micros(50);
        let begun = self.facts.patience.and_then(|patience| Instant::now().checked_add(patience));
        let (mut polls, mut revoke_at) = (0, begun);
        loop {
            // SAFETY: the caller's promise.
            if let Some(outcome) = unsafe { self.poll(place) } {
                return Some(outcome);
            }
            let engine = self.engine.as_deref()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
            if engine.help(place.index) {
                continue;
            }
            polls += 1;
            if polls < POLLS {
                std::hint::spin_loop();
                continue;
            }
            if revoke_at.is_some_and(|at| Instant::now() >= at) {
                engine.revoke();
                revoke_at = None;
                continue;
            }
            if self.facts.ends_unpolled {
                let left = deadline.map(|deadline| deadline - Instant::now().min(deadline));
                let patience = revoke_at.map(|at| at - Instant::now().min(at));
                self.slots.sleep(place.index, left.into_iter().chain(patience).min());
            } else {
                thread::sleep(NAP);
            }
        }
    }

    /// The outcome of an operation after the CPU has finished it, and its slot is released.
    ///
    /// # Safety
    /// The operation has ended with this outcome, and its memory is valid.
    pub(crate) unsafe fn finish(&self, request: &Request, outcome: Outcome) -> Outcome {
        if self.settings.finishes_on_cpu && !matches!(outcome, Outcome::Done(_)) {
            // SAFETY: the caller's promise.
            return unsafe { cpu::finish(request, outcome) };
        }
        outcome
    }

    /// What the device has reported. See [`Engine::troubles`].
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| engine.troubles())
    }

    /// The value of a complete operation.
    #[inline]
    pub(crate) fn value(&self, outcome: Outcome) -> Result<Value, Failed> {
        match outcome {
            Outcome::Done(value) => Ok(value),
            outcome => Err(self.failed(outcome)),
        }
    }

    /// Apart from its caller, which keeps a value in registers.
    #[cold]
    #[inline(never)]
    fn failed(&self, outcome: Outcome) -> Failed {
        Failed { engine: Arc::clone(&self.facts.name), outcome }
    }

    /// Keeps the buffers of an operation until it has ended.
    pub(crate) fn keep(&self, orphan: Orphan) {
        /// Attempts to take the lock. In a child of fork, a thread that does not exist may hold it.
        const ATTEMPTS: u32 = 10_000;
        // Buffers that are leaked stay valid, also if the destructor of another one panics.
        let orphan = ManuallyDrop::new(orphan);
        self.drop_orphans();
        for _ in 0..ATTEMPTS {
            if let Ok(mut orphans) = self.orphans.try_lock() {
                orphans.push(ManuallyDrop::into_inner(orphan));
                return;
            }
            thread::yield_now();
        }
    }

    /// Drops the buffers of dropped handles whose operations have ended.
    fn drop_orphans(&self) {
        let mut ended = Vec::new();
        let Ok(mut orphans) = self.orphans.try_lock() else { return };
        let mut number = 0;
        while let Some(orphan) = orphans.get(number) {
            // SAFETY: the orphan has not been released, and it keeps its buffers.
            if unsafe { self.has_ended_unasked(orphan.place) } {
                self.slots.release(orphan.place.index);
                ended.push(orphans.swap_remove(number));
            } else {
                number += 1;
            }
        }
        drop(orphans);
        // The destructor of a buffer may call this queue again.
        ended.into_iter().for_each(|orphan| drop(orphan.buffers));
    }

    /// Stores a waker for the end of the operation. Returns false if it has ended, or ends in the
    /// next poll.
    pub(crate) fn arm(&self, place: Place, waker: &Waker) -> bool {
        place.here.is_here() && self.slots.arm(place.index, waker)
    }

    /// Lets the engine's ends be noticed without a call of this program's.
    pub(crate) fn watch(self: &Arc<Self>, place: Place) {
        if !self.facts.ends_unpolled {
            self.watcher.add(self, place.index);
        }
    }
}

impl Watched for Inner {
    fn check(&self, index: Index) -> bool {
        if let Some(engine) = &self.engine {
            engine.poll(index);
        }
        self.slots.is_ended(index)
    }

    fn patience(&self) -> Option<Duration> {
        self.facts.patience
    }

    fn revoke(&self) {
        if let Some(engine) = &self.engine {
            engine.revoke();
        }
    }
}
