//! The slots of pending operations: what is submitted, how far it is, and how it ended.
//!
//! A slot's state is one word. The queue takes a free slot, writes the request and calls
//! `start`. The engine writes the outcome and sets ENDED. The queue reads the outcome and
//! releases the slot.
//!
//! ```text
//! free -> PENDING -> PENDING|ENDED -> free
//! SLEEPER  a thread sleeps on the word; the end wakes it
//! NOTIFY   a waker is stored; the end takes it
//! HELD     the engine may still read the slot after its end, and frees it if it was released
//! RELEASED the queue is done with the slot; the engine frees it when it clears HELD
//! WRITTEN  beside ENDED: the outcome is `Done(Written)`, and is not in its field
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use haul_copy::Hint;

use crate::operation::{Operation, Request};
use crate::outcome::{Outcome, Value};
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Cell, Relaxed, Release};
use crate::sys;

/// The largest number of slots of a queue.
pub const SLOTS_MAX: usize = 1 << 16;

const PENDING: u32 = 1;
const ENDED: u32 = 2;
const SLEEPER: u32 = 4;
const NOTIFY: u32 = 8;
const HELD: u32 = 16;
const RELEASED: u32 = 32;
const WRITTEN: u32 = 64;

/// The outcome that the state itself holds.
const DONE: Outcome = Outcome::Done(Value::Written);

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub(crate) u32);

impl Index {
    /// The number: from 0, below [`Slots::count`].
    #[must_use]
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// The slots of one queue, which the queue and its engine share.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[Slot]>,
    /// The first free slot plus 1, and above it a count of changes, which distinguishes a slot that
    /// was taken and freed meanwhile from one that was not.
    free: AtomicU64,
}

/// Two cache lines, so that no two slots share the pair that a processor fetches together. The
/// first line has all that a submission writes. The queue owns it from its `release` on, so that a
/// submission waits for no line of the engine's processor.
#[derive(Debug)]
#[repr(C, align(128))]
struct Slot {
    state: AtomicU32,
    /// The next free slot plus 1.
    next: AtomicU32,
    /// What the engine keeps about the operation. See [`Slots::word`].
    word: AtomicU64,
    request: Cell<Request>,
    /// 0 in a free slot.
    bytes_done: AtomicUsize,
    outcome: Cell<Outcome>,
    waker: Mutex<Option<Waker>>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(std::mem::offset_of!(Slot, bytes_done) == 64);

impl Slot {
    fn new(next: u32) -> Self {
        let nothing = Operation::Fill { target: std::ptr::null_mut(), byte: 0, length: 0 };
        Self {
            state: AtomicU32::new(0),
            next: AtomicU32::new(next),
            bytes_done: AtomicUsize::new(0),
            word: AtomicU64::new(0),
            request: Cell::new(Request { operation: nothing, hint: Hint::Unknown }),
            outcome: Cell::new(Outcome::Done(Value::Written)),
            waker: Mutex::new(None),
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The slot was passed to [`Engine::start`](crate::Engine::start), and has not ended, is
    /// [held](Self::hold), or is not yet released by the queue. In a child of fork, this is as it
    /// was in the parent at the time of the fork.
    #[must_use]
    pub unsafe fn request(&self, index: Index) -> Request {
        // SAFETY: the queue wrote the request before `start`, and writes no other before the slot
        // is free.
        unsafe { self.slot(index).request.get() }
    }

    /// Reports that the first `bytes_done` bytes of the target are written.
    #[inline]
    pub fn report(&self, index: Index, bytes_done: usize) {
        self.slot(index).bytes_done.store(bytes_done, Release);
    }

    /// A word of the engine's own in the slot, which the queue sets to 0 before `start`.
    #[must_use]
    pub fn word(&self, index: Index) -> &AtomicU64 {
        &self.slot(index).word
    }

    /// Ends an operation, and wakes what waits for it.
    ///
    /// Cost: one system call if a thread sleeps in [`wait`](crate::Pending::wait), else none.
    ///
    /// # Safety
    /// The engine has accepted the operation, ends it only once, and does not access its memory
    /// afterwards.
    pub unsafe fn end(&self, index: Index, outcome: Outcome) {
        // SAFETY: the caller's promise.
        unsafe { self.end_and_clear(index, outcome, 0) }
    }

    /// [`end`](Self::end) and [`unhold`](Self::unhold) by one access: each access takes the line
    /// from a caller that polls it.
    ///
    /// # Safety
    /// As for [`end`](Self::end), of an operation that is held. The slot is not accessed
    /// afterwards.
    pub(crate) unsafe fn end_unheld(&self, index: Index, outcome: Outcome) {
        // SAFETY: the caller's promise.
        unsafe { self.end_and_clear(index, outcome, HELD) }
    }

    /// Ends an operation, and clears these bits of its state at the same time.
    ///
    /// # Safety
    /// As for [`end`](Self::end), and for [`end_unheld`](Self::end_unheld) if HELD is cleared.
    unsafe fn end_and_clear(&self, index: Index, outcome: Outcome, cleared: u32) {
        let slot = self.slot(index);
        let mut ended = ENDED | WRITTEN;
        if outcome != DONE {
            ended = ENDED;
            // SAFETY: the queue does not read the outcome before ENDED is set.
            unsafe { slot.outcome.set(outcome) };
        }
        let mut waker = None;
        let mut state = slot.state.load(Acquire);
        loop {
            if state & NOTIFY != 0 {
                let mut stored = slot.waker();
                waker = stored.take().or(waker);
                slot.state.fetch_and(!NOTIFY, AcqRel);
                drop(stored);
                state &= !NOTIFY;
            }
            // From this exchange on, the slot may be free unless it is held.
            let now = state & !cleared | ended;
            match slot.state.compare_exchange_weak(state, now, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state & SLEEPER != 0 {
            // A process whose filter refuses this call refuses the sleep too, so the sleeper polls.
            let _ = sys::wake_all(&slot.state);
        }
        if let Some(waker) = waker {
            // A waker is the program's code, and its panic must not end the engine's thread.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Called in `start` if the engine may read the slot after its end: the slot is not reused
    /// before [`unhold`](Self::unhold).
    pub fn hold(&self, index: Index) {
        // The submitting thread alone knows of the slot.
        self.slot(index).state.store(PENDING | HELD, Relaxed);
    }

    /// The engine no longer reads the slot.
    pub fn unhold(&self, index: Index) {
        let before = self.slot(index).state.fetch_and(!HELD, AcqRel);
        if before & RELEASED != 0 {
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
        Arc::new(Self { slots, free: AtomicU64::new(1) })
    }

    fn slot(&self, index: Index) -> &Slot {
        &self.slots[index.number()]
    }

    /// Takes a free slot; `None` if all are in use.
    pub(crate) fn take(&self) -> Option<Index> {
        let mut head = self.free.load(Acquire);
        loop {
            let index = Index((head as u32).checked_sub(1)?);
            let next = self.slot(index).next.load(Relaxed);
            let changed = ((head >> 32) + 1) << 32 | u64::from(next);
            match self.free.compare_exchange_weak(head, changed, AcqRel, Acquire) {
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
        slot.word.store(0, Relaxed);
        slot.state.store(PENDING, Release);
    }

    /// How the operation ended; `None` while it is pending.
    pub(crate) fn outcome(&self, index: Index) -> Option<Outcome> {
        let slot = self.slot(index);
        match slot.state.load(Acquire) & (ENDED | WRITTEN) {
            0 => None,
            ENDED => {
                // SAFETY: the engine wrote the outcome before ENDED, and writes it once.
                Some(unsafe { slot.outcome.get() })
            }
            _ => Some(DONE),
        }
    }

    /// Whether the slot holds no pending operation.
    pub(crate) fn is_ended(&self, index: Index) -> bool {
        self.slot(index).state.load(Acquire) & (PENDING | ENDED) != PENDING
    }

    /// The number of bytes at the beginning of the target that are written.
    pub(crate) fn bytes_done(&self, index: Index) -> usize {
        self.slot(index).bytes_done.load(Acquire)
    }

    /// Stores a waker for the end of the operation. Returns false, and stores nothing, if it has
    /// ended.
    pub(crate) fn arm(&self, index: Index, waker: &Waker) -> bool {
        let slot = self.slot(index);
        let mut stored = slot.waker();
        if slot.state.load(Acquire) & ENDED != 0 {
            return false;
        }
        *stored = Some(waker.clone());
        if slot.state.fetch_or(NOTIFY, AcqRel) & ENDED == 0 {
            return true;
        }
        *stored = None;
        false
    }

    /// Sleeps until the operation has ended, a signal arrives, or the time is over.
    pub(crate) fn sleep(&self, index: Index, at_most: Option<Duration>) {
        let slot = self.slot(index);
        let state = slot.state.fetch_or(SLEEPER, AcqRel) | SLEEPER;
        if state & ENDED == 0 {
            sys::sleep(&slot.state, state, at_most);
        }
    }

    /// Ends a slot whose engine does not exist in this process: a child of fork.
    ///
    /// # Safety
    /// The process is a child of the process that started the operation, and this thread alone
    /// uses the slot.
    pub(crate) unsafe fn adopt(&self, index: Index, outcome: Outcome) {
        let slot = self.slot(index);
        // SAFETY: no other thread of this process uses the slot.
        unsafe { slot.outcome.set(outcome) };
        slot.state.store(PENDING | ENDED, Release);
    }

    /// Gives back a slot whose operation has ended, or was never started.
    pub(crate) fn release(&self, index: Index) {
        let slot = self.slot(index);
        if slot.bytes_done.load(Relaxed) != 0 {
            slot.bytes_done.store(0, Relaxed);
        }
        // The engine only clears HELD, so a slot that is not held stays so.
        let is_held = |state| state & HELD != 0;
        if !is_held(slot.state.load(Acquire)) || !is_held(slot.state.fetch_or(RELEASED, AcqRel)) {
            self.free(index);
        }
    }

    fn free(&self, index: Index) {
        let slot = self.slot(index);
        slot.state.store(0, Relaxed);
        let mut head = self.free.load(Relaxed);
        loop {
            slot.next.store(head as u32, Relaxed);
            let changed = ((head >> 32) + 1) << 32 | u64::from(index.0 + 1);
            match self.free.compare_exchange_weak(head, changed, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}
