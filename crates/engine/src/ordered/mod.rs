//! Operations by address, for programs without a borrow checker. Operations that overlap keep the
//! order in which they were submitted.
//!
//! ```text
//! submit: find what overlaps; enter the ranges
//!         nothing overlaps: start            else: wait for the last of them to end
//! end:    remove the ranges; start the operations that waited for this one alone
//! ```
//!
//! The thread that notices an end does the second step: one that polls or waits, or the engine's,
//! which reports the end if another operation waits for it.
//!
//! From the bottom up:
//!
//! - `ticket`: the numbers of operations;
//! - `ranges`: the tree of address ranges;
//! - `table`: the operations and the order between them;
//! - `progress`: what happens at the start and at the end of an operation.

mod ticket;

mod ranges;

mod table;

mod progress;

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use haul_peer::fork::Here;

use self::progress::Shared;
use self::table::State;
pub use self::ticket::Ticket;
use crate::bell::Bell;
use crate::callbacks::Callbacks;
use crate::contract::Facts;
use crate::cpu;
use crate::operation::{Operation, Request, list};
use crate::outcome::{Failed, Outcome, Refusal, Trouble, Value};
use crate::queue::Queue;

/// An operation that overlaps this many others that have not ended completes some of them first.
const BLOCKERS_MAX: usize = 64;

/// What operations that have not ended do with a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    /// One of them reads some of it.
    pub reads: bool,
    /// One of them writes some of it.
    pub writes: bool,
}

/// A queue of operations by address. Operations that overlap, if one of them writes, run in the
/// order in which they were submitted; the others in any order.
///
/// All threads may use it. Dropping it waits for all operations. In a child of fork, operations
/// that were pending at the fork are done by the CPU in the child's memory, when the child asks for
/// them; one that another thread was submitting at the fork is not the child's.
///
/// ```
/// use haul_engine::{Hint, Operation, Ordered, Queue, Request};
/// let (first, mut second, mut third) = ([7_u8; 100], [0_u8; 100], [0_u8; 100]);
/// let copy = |target: *mut u8, source| {
///     let operation = Operation::Copy { target, source, length: 100 };
///     Request { operation, hint: Hint::Unknown }
/// };
/// let ordered = Ordered::new(&Queue::worker()?);
/// let (from, to) = (second.as_mut_ptr(), third.as_mut_ptr());
/// // SAFETY: the arrays live, and are not used, until `drain` has returned.
/// unsafe { ordered.submit(copy(from, first.as_ptr())) }?;
/// // SAFETY: as above.
/// let last = unsafe { ordered.submit(copy(to, from)) }?; // reads what the first one writes
/// assert!(ordered.wait(last).is_ok());
/// ordered.drain()?;
/// assert_eq!(third, [7; 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ordered {
    shared: Arc<Shared>,
}

impl Ordered {
    /// Operations in front of this queue.
    #[must_use]
    pub fn new(queue: &Queue) -> Self {
        Self { shared: Arc::new(Shared::new(Arc::clone(&queue.inner))) }
    }

    /// The facts of the engine.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.shared.inner.facts
    }

    /// What a device has reported besides successes and page faults. See
    /// [`Queue::troubles`](crate::Queue::troubles).
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        self.shared.inner.troubles()
    }

    /// Submits an operation. It waits, in `submit`, only if it overlaps 64 or more operations that
    /// have not ended. If nothing overlaps it and the engine does not take it, this thread does it
    /// now.
    ///
    /// Cost: O(log n + k) for n ranges of operations that have not ended, k of which overlap; one
    /// lock, which all ordered queues of a process share; no allocation once the tables have grown,
    /// unless something overlaps.
    ///
    /// # Errors
    /// [`Refusal::BadRange`] for a null, wrapped or enormous range, or an overlap inside of one
    /// operation other than a copy. Nothing was submitted.
    ///
    /// # Safety
    /// Until the operation has ended, sources stay readable and are not written, targets stay
    /// writable and are not accessed, and lists stay in place; except by operations of this value.
    /// Operations that two threads submit without order between the threads must not overlap.
    pub unsafe fn submit(&self, request: Request) -> Result<Ticket, Failed> {
        // SAFETY: the caller's promise.
        unsafe { self.check(&request.operation) }?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.enter(request, false) })
    }

    /// Like [`submit`](Self::submit), for an operation whose result is not wanted. [`drain`]
    /// reports the first failure.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    ///
    /// [`drain`]: Self::drain
    pub unsafe fn submit_unasked(&self, request: Request) -> Result<(), Failed> {
        // SAFETY: the caller's promise.
        unsafe { self.check(&request.operation) }?;
        // SAFETY: the caller's promise.
        unsafe { self.enter(request, true) };
        Ok(())
    }

    /// Checks an operation, without access to its memory.
    ///
    /// # Errors
    /// [`Refusal::BadRange`].
    ///
    /// # Safety
    /// The lists of an operation with lists must be readable.
    pub unsafe fn check(&self, operation: &Operation) -> Result<(), Failed> {
        // SAFETY: the caller's promise.
        let checked = unsafe { cpu::check(operation) };
        // SAFETY: the caller's promise.
        let is_right = checked.is_ok() && !unsafe { overlaps_inside(operation) };
        let refused = || self.shared.failed(Outcome::Refused(Refusal::BadRange));
        if is_right { Ok(()) } else { Err(refused()) }
    }

    /// # Safety
    /// As for [`submit`](Self::submit), and the operation was checked.
    unsafe fn enter(&self, request: Request, is_forgotten: bool) -> Ticket {
        let shared = &self.shared;
        // SAFETY: the caller's promise.
        let length = unsafe { request.operation.length() };
        shared.poll_oldest();
        loop {
            let mut table = shared.lock();
            let mut rest = shared.sweep(&mut table);
            // SAFETY: the caller's promise.
            match unsafe { table.conflicts(&request.operation, BLOCKERS_MAX) } {
                Ok(blockers) => {
                    let is_free = blockers.is_empty();
                    let claimed = State::Starting(Here::now());
                    let state = if is_free { claimed } else { State::Waiting };
                    rest.arms.extend(&blockers);
                    let id = table.add(request, length, state);
                    // SAFETY: the caller's promise.
                    unsafe { table.link(id, blockers) };
                    let entry = table.entry(id);
                    entry.is_forgotten = is_forgotten;
                    let ticket = Ticket { id, generation: entry.generation };
                    drop(table);
                    if is_free {
                        shared.start(id, &mut rest);
                    }
                    shared.proceed(rest);
                    return ticket;
                }
                Err(blockers) => {
                    drop(table);
                    shared.proceed(rest);
                    blockers.first().into_iter().for_each(|blocker| shared.complete(*blocker));
                }
            }
        }
    }

    /// What operations that have not ended do with `length` bytes at `address`. Checks once whether
    /// the ones that it finds have ended.
    ///
    /// Cost: O(log n), amortised, for n ranges of operations that have not ended; the lock.
    ///
    /// ```
    /// use haul_engine::{Ordered, Queue};
    /// let ordered = Ordered::new(&Queue::inline());
    /// assert!(!ordered.conflicts(ordered.facts() as *const _ as *const u8, 1).reads);
    /// ```
    #[must_use]
    pub fn conflicts(&self, address: *const u8, length: usize) -> Conflict {
        let (start, end) = (address.addr(), address.addr().saturating_add(length));
        loop {
            let table = self.shared.lock();
            let found = if length == 0 { None } else { table.overlap(start, end) };
            let Some(id) = found else { return Conflict::default() };
            let (reads, writes) = table.accesses(start, end);
            drop(table);
            if !self.shared.resolve(id) {
                return Conflict { reads, writes };
            }
        }
    }

    /// Whether an operation has ended. Does bounded work, except in a child of fork.
    ///
    /// # Errors
    /// [`Refusal::NoTicket`] if no operation has this ticket, or its result was taken.
    pub fn is_done(&self, ticket: Ticket) -> Result<bool, Failed> {
        let shared = &self.shared;
        let table = shared.lock();
        match table.asked(ticket).map(|entry| entry.state) {
            None => return Err(shared.failed(Outcome::Refused(Refusal::NoTicket))),
            Some(State::Ended(_)) => return Ok(true),
            Some(_) => {}
        }
        let first = table.first(ticket.id);
        drop(table);
        shared.resolve(first);
        let table = shared.lock();
        Ok(table.asked(ticket).is_none_or(|entry| matches!(entry.state, State::Ended(_))))
    }

    /// How many bytes at the beginning of the target are written.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    pub fn bytes_done(&self, ticket: Ticket) -> Result<usize, Failed> {
        self.is_done(ticket)?;
        let table = self.shared.lock();
        let Some(entry) = table.asked(ticket) else { return Ok(0) };
        Ok(match (entry.state, entry.place) {
            (State::Ended(Outcome::Done(_)), _) => entry.length,
            (State::Ended(Outcome::Partial { bytes_done, .. }), _) => bytes_done.min(entry.length),
            (State::Started, Some(place)) if place.here.is_here() => {
                self.shared.inner.slots.bytes_done(place.index).min(entry.length)
            }
            _ => 0,
        })
    }

    /// Waits for the end of an operation, and takes its result. A signal does not end the wait.
    ///
    /// # Errors
    /// Why not all of the operation was done; [`Refusal::NoTicket`] as for
    /// [`is_done`](Self::is_done).
    pub fn wait(&self, ticket: Ticket) -> Result<Value, Failed> {
        self.shared.take(ticket)
    }

    /// Like [`wait`](Self::wait), at most for this time. `None` if the time is over; then the
    /// ticket remains valid.
    #[must_use]
    pub fn wait_for(&self, ticket: Ticket, time: Duration) -> Option<Result<Value, Failed>> {
        let outcome = self.shared.wait(ticket, Instant::now().checked_add(time));
        outcome.map(|outcome| self.shared.inner.value(outcome))
    }

    /// Lets the engine wake `waker` when the operation has ended, at once if it has. An operation
    /// has one waker: the last one. The waker is called by the thread that notices the end, which
    /// must not be kept waiting.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    pub fn notify(&self, ticket: Ticket, waker: Waker) -> Result<(), Failed> {
        self.shared.notify(ticket, waker)
    }

    /// Lets the engine ring a bell when the operation has ended, at once if it has. The bell takes
    /// the place of the waker.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    pub fn ring(&self, ticket: Ticket, bell: &Bell) -> Result<(), Failed> {
        self.shared.notify(ticket, bell.waker())
    }

    /// Lets `callback` run with the result in a later [`Callbacks::run`], once the operation has
    /// ended. The callback takes the result and the place of the waker: it gets
    /// [`Refusal::NoTicket`] if the result was taken before, and it is dropped if another one takes
    /// its place.
    ///
    /// Cost: two allocations.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    ///
    /// ```
    /// use haul_engine::{Callbacks, Hint, Operation, Ordered, Queue, Request, Value};
    /// let (ordered, callbacks) = (Ordered::new(&Queue::worker()?), Callbacks::new());
    /// let operation = Operation::Crc32c { source: b"123456789".as_ptr(), length: 9, seed: 0 };
    /// // SAFETY: the bytes are static.
    /// let ticket = unsafe { ordered.submit(Request { operation, hint: Hint::Unknown }) }?;
    /// ordered.call(ticket, &callbacks, |sum| assert_eq!(sum, Ok(Value::Crc32c(0xe306_9283))))?;
    /// while callbacks.run(16) == 0 {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(
        &self,
        ticket: Ticket,
        callbacks: &Callbacks,
        callback: impl FnOnce(Result<Value, Failed>) + Send + 'static,
    ) -> Result<(), Failed> {
        let shared = Arc::clone(&self.shared);
        let run = Box::new(move || callback(shared.take(ticket)));
        self.shared.notify(ticket, callbacks.waker(run))
    }

    /// Gives up the result of an operation, which goes on.
    ///
    /// # Errors
    /// As for [`is_done`](Self::is_done).
    pub fn forget(&self, ticket: Ticket) -> Result<(), Failed> {
        self.shared.forget(ticket)
    }

    /// Waits for every operation that was submitted before. Their tickets stay valid.
    ///
    /// # Errors
    /// The first failure, since the last call, of an operation whose result is not wanted.
    pub fn drain(&self) -> Result<(), Failed> {
        self.shared.complete_all();
        match self.shared.lock().failed.take() {
            Some(outcome) => Err(self.shared.failed(outcome)),
            None => Ok(()),
        }
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        self.shared.complete_all();
    }
}

/// A range of addresses: the first one, and the one behind the last.
type Addresses = (usize, usize);

/// Whether two targets, or a target and a source, of an operation with lists have a byte in common.
/// The operation was checked.
///
/// # Safety
/// The lists must be readable.
unsafe fn overlaps_inside(operation: &Operation) -> bool {
    let range = |start: *const u8, length| (start.addr(), start.addr() + length);
    match *operation {
        Operation::Lists { targets, target_count, sources, source_count } => {
            // SAFETY: the caller's promise.
            let to = unsafe { list(targets, target_count) };
            // SAFETY: the caller's promise.
            let from = unsafe { list(sources, source_count) };
            overlap(
                to.iter().map(|region| range(region.start, region.length)),
                from.iter().map(|region| range(region.start, region.length)),
            )
        }
        Operation::Batch { pairs, count } => {
            // SAFETY: the caller's promise.
            let pairs = unsafe { list(pairs, count) };
            overlap(
                pairs.iter().map(|pair| range(pair.target, pair.length)),
                pairs.iter().map(|pair| range(pair.source, pair.length)),
            )
        }
        _ => false,
    }
}

/// Whether two written ranges, or a written and a read one, have an address in common.
fn overlap(
    written: impl Iterator<Item = Addresses>,
    mut read: impl Iterator<Item = Addresses>,
) -> bool {
    let mut written: Vec<_> = written.filter(|(start, end)| start < end).collect();
    written.sort_unstable();
    let is_written = |(start, end): Addresses| {
        // The last written range that begins before the end of the one that is read.
        let before = written.partition_point(|range| range.0 < end);
        start < end && before.checked_sub(1).is_some_and(|last| written[last].1 > start)
    };
    written.windows(2).any(|pair| pair[1].0 < pair[0].1) || read.any(is_written)
}
