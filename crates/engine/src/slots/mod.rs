//! The slots of pending operations: what is submitted, how far it is, and how it ended.
//!
//! The queue takes a free slot, writes the request, increases the slot's generation and calls
//! `start`. The engine writes the outcome and sets ENDED. The queue reads the outcome and releases
//! the slot.
//!
//! - `state`: the word that says how far an operation is.

mod state;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use haul_copy::Hint;

pub(crate) use self::state::Generation;
use self::state::{CLAIMED, ENDED, LET_GO, NOTIFY, RELEASED, SLEEPER, States, WRITTEN};
use crate::operation::{Operation, Request};
use crate::outcome::{Outcome, Value};
use crate::sync::{
    AcqRel, Acquire, Alone, AtomicU32, AtomicU64, AtomicUsize, Cell, Relaxed, Release, take_line,
};
use crate::sys;

/// The largest number of slots of a queue.
pub const SLOTS_MAX: usize = 1 << 16;

/// The outcome that the state itself holds.
pub(crate) const DONE: Outcome = Outcome::Done(Value::Written);

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub(crate) u32);

impl Index {
    /// The number: from 0, below [`Slots::count`].
    #[must_use]
    #[inline]
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// The slots of one queue, which the queue and its engine share.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[Slot]>,
    states: States,
    /// The first free slot plus 1, and above it a count of changes, which distinguishes a slot that
    /// was taken and freed meanwhile from one that was not. On a line of its own, which the
    /// callers write often.
    free: Alone<AtomicU64>,
}

/// The queue writes its part, and an engine on another processor writes the other one.
#[derive(Debug)]
#[repr(C, align(128))]
struct Slot {
    request: Cell<Request>,
    /// The generation of the request.
    generation: AtomicU32,
    /// The next free slot plus 1.
    next: AtomicU32,
    engine: Alone<Engines>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(std::mem::offset_of!(Slot, engine) == 128);

/// The engine's part of a slot.
#[derive(Debug)]
struct Engines {
    /// What the engine keeps about the operation. See [`Slots::word`].
    word: AtomicU64,
    bytes_done: AtomicUsize,
    outcome: Cell<Outcome>,
    waker: Mutex<Option<Waker>>,
}

impl Slot {
    fn new(next: u32) -> Self {
        let nothing = Operation::Fill { target: std::ptr::null_mut(), byte: 0, length: 0 };
        let engine = Engines {
            word: AtomicU64::new(0),
            bytes_done: AtomicUsize::new(0),
            outcome: Cell::new(DONE),
            waker: Mutex::new(None),
        };
        Self {
            request: Cell::new(Request { operation: nothing, hint: Hint::Unknown }),
            generation: AtomicU32::new(Generation::default().number()),
            next: AtomicU32::new(next),
            engine: Alone(engine),
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.engine.0.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a waker, which is the program's code. Its panic must neither end the engine's thread, nor
/// unwind through a wait for another operation.
fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its destructor may panic too.
        std::mem::forget(payload);
    }
}

/// For engines.
impl Slots {
    /// The number of slots, and so the largest number of pending operations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// The request in a slot.
    ///
    /// # Safety
    /// The slot was passed to [`Engine::start`](crate::Engine::start), and has not ended, or is not
    /// yet released by the queue. In a child of fork, this is as it was in the parent at the time
    /// of the fork.
    #[must_use]
    pub unsafe fn request(&self, index: Index) -> Request {
        // SAFETY: the queue wrote the request before `start`, and writes no other before the slot
        // is free.
        unsafe { self.slot(index).request.get() }
    }

    /// Reports that the first `bytes_done` bytes of the target are written.
    #[inline]
    pub fn report(&self, index: Index, bytes_done: usize) {
        self.slot(index).engine.0.bytes_done.store(bytes_done, Release);
    }

    /// A word of the engine's own in the slot, which the queue sets to 0 before `start`.
    #[must_use]
    pub fn word(&self, index: Index) -> &AtomicU64 {
        &self.slot(index).engine.0.word
    }

    /// Ends an operation, and wakes what waits for it.
    ///
    /// Cost: one system call if a thread sleeps in [`wait`](crate::Pending::wait), else none.
    ///
    /// # Safety
    /// The engine has accepted the operation, ends it only once, and does not access its memory or
    /// the slot afterwards.
    pub unsafe fn end(&self, index: Index, outcome: Outcome) {
        // SAFETY: the caller's promise.
        unsafe { self.end_and_let_go(index, self.generation(index), outcome) }
    }

    /// [`end`](Self::end) for a thread that knows the generation, so that it reads nothing of the
    /// slot that the queue writes.
    ///
    /// # Safety
    /// As for [`end`](Self::end); `generation` is that of the operation.
    pub(crate) unsafe fn end_and_let_go(
        &self,
        index: Index,
        generation: Generation,
        outcome: Outcome,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.end_with(index, generation, outcome, LET_GO) }
    }

    /// [`end`](Self::end), but another thread of the engine may still access the slot, which is not
    /// reused before [`let_go`](Self::let_go).
    ///
    /// # Safety
    /// As for [`end`](Self::end).
    pub(crate) unsafe fn end_held(&self, index: Index, outcome: Outcome) {
        // SAFETY: the caller's promise.
        unsafe { self.end_with(index, self.generation(index), outcome, 0) }
    }

    /// # Safety
    /// As for [`end`](Self::end), and for [`end_held`](Self::end_held) without [`LET_GO`].
    unsafe fn end_with(&self, index: Index, generation: Generation, outcome: Outcome, added: u32) {
        let state = self.states.of(index);
        let mut added = added | CLAIMED | ENDED | WRITTEN;
        if outcome != DONE {
            added &= !WRITTEN;
            // SAFETY: the queue does not read the outcome before ENDED is set.
            unsafe { self.slot(index).engine.0.outcome.set(outcome) };
        }
        let mut waker = None;
        take_line(state);
        let mut now = state.load(Acquire);
        let flags = loop {
            if generation.flags(now) & NOTIFY != 0 {
                let mut stored = self.slot(index).waker();
                let replaced = stored.take().and_then(|newer| waker.replace(newer));
                state.fetch_and(!NOTIFY, AcqRel);
                drop(stored);
                quietly(|| drop(replaced));
                now &= !NOTIFY;
            }
            let flags = generation.flags(now);
            // From this exchange on, the slot may be free, unless it is not let go.
            let ended = generation.number() | flags | added;
            match state.compare_exchange_weak(now, ended, AcqRel, Acquire) {
                Ok(_) => break flags,
                Err(changed) => now = changed,
            }
        };
        if flags & SLEEPER != 0 {
            // A process whose filter refuses this call refuses the sleep too, so the sleeper polls.
            let _ = sys::wake_all(state);
        }
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    /// Whether a thread has claimed the operation. Unlike [`claim`](Self::claim), this only reads.
    pub(crate) fn is_claimed(&self, index: Index) -> bool {
        self.generation(index).flags(self.states.of(index).load(Relaxed)) & CLAIMED != 0
    }

    /// Claims the whole operation for this thread. Returns false if another thread has claimed it.
    pub(crate) fn claim(&self, index: Index, generation: Generation) -> bool {
        // SYNC: operation claimed
        self.states.add(index, generation, CLAIMED) & CLAIMED == 0
    }

    /// The engine no longer accesses a slot that another thread has ended, or will end.
    pub(crate) fn let_go(&self, index: Index, generation: Generation) {
        if self.states.add(index, generation, LET_GO) & RELEASED != 0 {
            self.free(index);
        }
    }
}

/// For the queue.
impl Slots {
    /// `count` free slots, at least 1 and at most [`SLOTS_MAX`].
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        let count = count.clamp(1, SLOTS_MAX) as u32;
        let next = |number| if number + 1 < count { number + 2 } else { 0 };
        let slots = (0..count).map(|number| Slot::new(next(number))).collect();
        let states = States::new(count as usize);
        Arc::new(Self { slots, states, free: Alone(AtomicU64::new(1)) })
    }

    #[inline]
    fn slot(&self, index: Index) -> &Slot {
        &self.slots[index.number()]
    }

    /// The generation of the operation in a slot.
    #[inline]
    pub(crate) fn generation(&self, index: Index) -> Generation {
        Generation::of(self.slot(index).generation.load(Relaxed))
    }

    /// Takes a free slot; `None` if all are in use.
    pub(crate) fn take(&self) -> Option<Index> {
        let mut head = self.free.0.load(Acquire);
        loop {
            let index = Index((head as u32).checked_sub(1)?);
            let next = self.slot(index).next.load(Relaxed);
            let changed = ((head >> 32) + 1) << 32 | u64::from(next);
            match self.free.0.compare_exchange_weak(head, changed, AcqRel, Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Puts a request into a slot that this thread has taken.
    ///
    /// # Safety
    /// The slot was taken, and not started or freed since.
    pub(crate) unsafe fn put(&self, index: Index, request: Request) {
        let slot = self.slot(index);
        // SAFETY: the slot is this thread's.
        unsafe { slot.request.set(request) };
        slot.generation.store(self.generation(index).next().number(), Relaxed);
        slot.engine.0.word.store(0, Relaxed);
        slot.engine.0.bytes_done.store(0, Relaxed);
    }

    /// How the operation ended; `None` while it is pending.
    pub(crate) fn outcome(&self, index: Index) -> Option<Outcome> {
        let flags = self.generation(index).flags(self.states.of(index).load(Acquire));
        match flags & (ENDED | WRITTEN) {
            0 => None,
            ENDED => {
                // SAFETY: the engine wrote the outcome before ENDED, and writes it once.
                Some(unsafe { self.slot(index).engine.0.outcome.get() })
            }
            _ => Some(DONE),
        }
    }

    /// Whether the operation has ended, and its outcome is [`DONE`].
    #[inline]
    pub(crate) fn is_written(&self, index: Index) -> bool {
        self.generation(index).flags(self.states.of(index).load(Acquire)) & WRITTEN != 0
    }

    /// Whether the slot holds no pending operation.
    pub(crate) fn is_ended(&self, index: Index) -> bool {
        self.generation(index).flags(self.states.of(index).load(Acquire)) & ENDED != 0
    }

    /// The number of bytes at the beginning of the target that are written.
    pub(crate) fn bytes_done(&self, index: Index) -> usize {
        self.slot(index).engine.0.bytes_done.load(Acquire)
    }

    /// Stores a waker for the end of the operation. Returns false, and stores nothing, if it has
    /// ended.
    pub(crate) fn arm(&self, index: Index, waker: &Waker) -> bool {
        let mut stored = self.slot(index).waker();
        if self.is_ended(index) {
            return false;
        }
        *stored = Some(waker.clone());
        if self.states.add(index, self.generation(index), NOTIFY) & ENDED == 0 {
            return true;
        }
        *stored = None;
        false
    }

    /// Sleeps until the operation has ended, a signal arrives, or the time is over.
    pub(crate) fn sleep(&self, index: Index, at_most: Option<Duration>) {
        let generation = self.generation(index);
        let before = self.states.add(index, generation, SLEEPER);
        if before & ENDED == 0 {
            sys::sleep(self.states.of(index), generation.number() | before | SLEEPER, at_most);
        }
    }

    /// Ends a slot whose engine does not exist in this process: a child of fork.
    ///
    /// # Safety
    /// The process is a child of the process that started the operation, and this thread alone
    /// uses the slot.
    pub(crate) unsafe fn adopt(&self, index: Index, outcome: Outcome) {
        // SAFETY: no other thread of this process uses the slot.
        unsafe { self.slot(index).engine.0.outcome.set(outcome) };
        self.states.of(index).store(self.generation(index).number() | ENDED | LET_GO, Release);
    }

    /// Gives back a slot whose operation has ended, or was never started.
    #[inline]
    pub(crate) fn release(&self, index: Index) {
        let (slot, generation) = (self.slot(index), self.generation(index));
        // An engine on another processor may have written its part, which `put` sets to 0.
        take_line(&slot.engine.0.word);
        let flags = generation.flags(self.states.of(index).load(Acquire));
        if flags & ENDED == 0 {
            // It was never started. Without this, the state's generation would come round again.
            slot.generation.store(generation.previous().number(), Relaxed);
        } else if flags & LET_GO == 0 && self.states.add(index, generation, RELEASED) & LET_GO == 0
        {
            return;
        }
        self.free(index);
    }

    #[inline]
    fn free(&self, index: Index) {
        let slot = self.slot(index);
        let mut head = self.free.0.load(Relaxed);
        loop {
            slot.next.store(head as u32, Relaxed);
            let changed = ((head >> 32) + 1) << 32 | u64::from(index.0 + 1);
            match self.free.0.compare_exchange_weak(head, changed, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}
