//! What happens at the start and at the end of an operation, by whichever thread notices it.
//!
//! No function calls the engine while it holds the lock, because the engine calls wakers, which
//! take the lock.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::fork::{Here, Lock};

use super::table::{Remainder, State, Table};
use super::ticket::{Id, Ticket};
use crate::cpu;
use crate::inner::{Inner, Started};
use crate::operation::{Operation, Request};
use crate::outcome::{Failed, Outcome, Refusal, Value};
use crate::slots::DONE;

/// Held while a thread uses a table, so that no table is half changed in a child of fork.
static TABLES: Lock<()> = Lock::new((), |()| {});

/// Operations that one submission checks for their end, so that the places of the queue come back.
const SWEEP: usize = 2;

/// An ordered queue.
pub(super) struct Shared {
    pub(super) inner: Arc<Inner>,
    table: Mutex<Table>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordered").field("engine", &self.inner.facts.name).finish_non_exhaustive()
    }
}

/// The table, while this thread holds both locks.
pub(super) struct Locked<'a> {
    // Dropped first.
    table: MutexGuard<'a, Table>,
    _all: MutexGuard<'static, ()>,
}

impl Deref for Locked<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

impl Shared {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let table = Mutex::new(Table::new(Arc::clone(&inner.slots)));
        Self { inner, table }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let all = TABLES.lock();
        Locked { table: self.table.lock().unwrap_or_else(PoisonError::into_inner), _all: all }
    }

    pub(super) fn failed(&self, outcome: Outcome) -> Failed {
        Failed { engine: Arc::clone(&self.inner.facts.name), outcome }
    }

    /// Notes the end of the first started operations, as far as it is known without a poll.
    pub(super) fn sweep(&self, table: &mut Table) -> Remainder {
        let mut rest = Remainder::default();
        for _ in 0..SWEEP {
            let Some((id, generation)) = table.started.front().copied() else { break };
            let entry = table.find(id, generation);
            let started = entry.filter(|entry| matches!(entry.state, State::Started));
            let place = started.and_then(|entry| entry.place);
            if let Some(place) = place.filter(|place| place.here.is_here()) {
                match self.inner.slots.outcome(place.index) {
                    Some(outcome @ Outcome::Done(_)) => {
                        table.end(id, outcome, Here::now(), &mut rest);
                    }
                    // A poll decides about other ends.
                    Some(_) => {}
                    None => break,
                }
            }
            table.started.pop_front();
        }
        rest
    }

    /// Polls the oldest started operation, if the engine notices no end without a poll.
    pub(super) fn poll_oldest(self: &Arc<Self>) {
        if !self.inner.facts.ends_unpolled {
            let oldest = self.lock().started.front().copied();
            oldest.into_iter().for_each(|(id, _)| {
                self.resolve(id);
            });
        }
    }

    /// Does what was left to do without the lock.
    pub(super) fn proceed(self: &Arc<Self>, mut rest: Remainder) {
        loop {
            for waker in rest.wakers.drain(..) {
                waker.wake();
            }
            if let Some(id) = rest.starts.pop() {
                self.start(id, &mut rest);
            } else if let Some(id) = rest.arms.pop() {
                self.arm(id, &mut rest);
            } else {
                return;
            }
        }
    }

    /// Starts an operation that this thread has claimed.
    pub(super) fn start(&self, id: Id, rest: &mut Remainder) {
        let request = self.lock().entry(id).request;
        // SAFETY: the operation was checked, everything that overlaps it has ended, and the
        // caller's promise of `submit` holds until it has ended.
        let started = unsafe { self.inner.begin(&request) };
        let mut table = self.lock();
        match started {
            Started::Done => table.end(id, DONE, Here::now(), rest),
            Started::Ended(outcome) => table.end(id, outcome, Here::now(), rest),
            Started::Pending(place) => {
                let entry = table.entry(id);
                (entry.state, entry.place) = (State::Started, Some(place));
                let generation = entry.generation;
                table.started.push_back((id, generation));
                if table.is_awaited(id) {
                    rest.arms.push(id);
                }
            }
        }
    }

    /// Lets the engine report the end of an operation.
    fn arm(self: &Arc<Self>, id: Id, rest: &mut Remainder) {
        let mut table = self.lock();
        let is_awaited = table.is_awaited(id);
        let entry = table.entry(id);
        let (State::Started, Some(place)) = (entry.state, entry.place) else { return };
        if !is_awaited || !place.here.is_here() {
            return;
        }
        entry.is_armed = true;
        entry.users += 1;
        let ticket = Ticket { id, generation: entry.generation };
        drop(table);
        let waker = Waker::from(Arc::new(End { shared: Arc::downgrade(self), ticket }));
        let mut outcome = None;
        if self.inner.arm(place, &waker) {
            self.inner.watch(place);
        } else {
            outcome = self.inner.slots.outcome(place.index);
        }
        self.conclude(id, outcome, rest);
    }

    /// Checks once whether an operation has ended, and notes it. Returns whether it has.
    pub(super) fn resolve(self: &Arc<Self>, id: Id) -> bool {
        let mut table = self.lock();
        let entry = table.entry(id);
        match (entry.state, entry.place) {
            (State::Ended(_) | State::Free, _) => true,
            (State::Started, Some(place)) if place.here.is_here() => {
                entry.users += 1;
                drop(table);
                // SAFETY: the place is not released while this thread uses it, and the memory of
                // the operation is valid until it has ended.
                let outcome = unsafe { self.inner.poll(place) };
                let mut rest = Remainder::default();
                self.conclude(id, outcome, &mut rest);
                self.proceed(rest);
                outcome.is_some()
            }
            (State::Started, Some(_)) => self.adopt(table, id),
            (State::Starting(here), _) if !here.is_here() => self.adopt(table, id),
            _ => false,
        }
    }

    /// Ends the use of a place by this thread, and notes the end of the operation.
    fn conclude(&self, id: Id, outcome: Option<Outcome>, rest: &mut Remainder) {
        let mut table = self.lock();
        let entry = table.entry(id);
        if let (Some(outcome), State::Started) = (outcome, entry.state) {
            let request = entry.request;
            if matches!(outcome, Outcome::Done(_)) {
                table.end(id, outcome, Here::now(), rest);
            } else {
                entry.state = State::Starting(Here::now());
                drop(table);
                // SAFETY: the engine accesses the memory no more, and this thread has claimed the
                // operation.
                let outcome = unsafe { self.inner.finish(&request, outcome) };
                table = self.lock();
                table.end(id, outcome, Here::now(), rest);
            }
        }
        table.leave(id);
    }

    /// In a child of fork, does an operation of the parent with the CPU.
    fn adopt(self: &Arc<Self>, mut table: Locked<'_>, id: Id) -> bool {
        let here = Here::now();
        let entry = table.entry(id);
        // A thread of the parent may have done a part of an operation that it had claimed.
        let may_be_done = matches!(entry.state, State::Starting(_));
        let (request, place) = (entry.request, entry.place);
        entry.state = State::Starting(here);
        drop(table);
        let outcome = match place {
            // SAFETY: this thread has claimed the operation, so it alone uses the place, which is
            // not released.
            Some(place) if !may_be_done => unsafe { self.inner.poll(place) },
            _ if may_be_done && !can_be_repeated(&request) => None,
            // SAFETY: the child's copy of the memory is accessed by no engine, and a repetition
            // writes the same bytes.
            _ => Some(unsafe { cpu::execute(&request) }),
        };
        let mut rest = Remainder::default();
        let mut table = self.lock();
        // Users of the parent's threads do not exist here.
        table.entry(id).users = 0;
        table.end(id, outcome.unwrap_or(Outcome::Gone), here, &mut rest);
        drop(table);
        self.proceed(rest);
        true
    }

    /// Waits for the end of an operation, and takes its outcome. `None` if the time is over.
    pub(super) fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        deadline: Option<Instant>,
    ) -> Option<Outcome> {
        let mut pause = Pause::default();
        loop {
            let mut table = self.lock();
            let Some(entry) = table.asked(ticket) else {
                return Some(Outcome::Refused(Refusal::NoTicket));
            };
            if let State::Ended(outcome) = entry.state {
                table.free(ticket.id);
                return Some(outcome);
            }
            let first = table.first(ticket.id);
            self.wait_once(table, first, deadline, &mut pause);
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let table = self.lock();
            let entry = table.asked(ticket);
            if is_over && entry.is_some_and(|entry| !matches!(entry.state, State::Ended(_))) {
                return None;
            }
        }
    }

    /// Waits for an operation that does not wait for another one; may return early.
    fn wait_once(
        self: &Arc<Self>,
        mut table: Locked<'_>,
        id: Id,
        deadline: Option<Instant>,
        pause: &mut Pause,
    ) {
        let entry = table.entry(id);
        match (entry.state, entry.place) {
            (State::Started, Some(place)) if place.here.is_here() => {
                entry.users += 1;
                drop(table);
                // SAFETY: the place is not released while this thread uses it, and the memory of
                // the operation is valid until it has ended.
                let outcome = unsafe { self.inner.wait(place, deadline) };
                let mut rest = Remainder::default();
                self.conclude(id, outcome, &mut rest);
                self.proceed(rest);
            }
            (State::Starting(here), _) if here.is_here() => {
                drop(table);
                pause.take();
            }
            _ => {
                drop(table);
                self.resolve(id);
            }
        }
    }

    /// Waits for the end of an operation, and takes its result.
    pub(super) fn take(self: &Arc<Self>, ticket: Ticket) -> Result<Value, Failed> {
        let outcome = self.wait(ticket, None);
        self.inner.value(outcome.unwrap_or(Outcome::Refused(Refusal::NoTicket)))
    }

    /// Waits until an operation has ended, without taking its outcome.
    pub(super) fn complete(self: &Arc<Self>, id: Id) {
        let mut pause = Pause::default();
        let generation = self.lock().entry(id).generation;
        loop {
            let table = self.lock();
            let entry = table.find(id, generation);
            if entry.is_none_or(|entry| matches!(entry.state, State::Ended(_))) {
                return;
            }
            let first = table.first(id);
            self.wait_once(table, first, None, &mut pause);
        }
    }

    /// Waits for every operation that was submitted before.
    pub(super) fn complete_all(self: &Arc<Self>) {
        let count = self.lock().count();
        for id in 0..count {
            if self.lock().unended == 0 {
                return;
            }
            self.complete(id as Id);
        }
    }

    pub(super) fn notify(self: &Arc<Self>, ticket: Ticket, waker: Waker) -> Result<(), Failed> {
        let mut rest = Remainder::default();
        let mut table = self.lock();
        let state = table.asked(ticket).map(|entry| entry.state);
        let mut replaced = None;
        match state {
            None => return Err(self.failed(Outcome::Refused(Refusal::NoTicket))),
            Some(State::Ended(_)) => rest.wakers.push(waker),
            Some(_) => {
                replaced = table.entry(ticket.id).waker.replace(waker);
                rest.arms.push(ticket.id);
            }
        }
        drop(table);
        // Its destructor may call this queue.
        drop(replaced);
        self.proceed(rest);
        Ok(())
    }

    pub(super) fn forget(&self, ticket: Ticket) -> Result<(), Failed> {
        let mut table = self.lock();
        let state = table.asked(ticket).map(|entry| entry.state);
        match state {
            None => return Err(self.failed(Outcome::Refused(Refusal::NoTicket))),
            Some(State::Ended(outcome)) => {
                if !matches!(outcome, Outcome::Done(_)) {
                    table.failed.get_or_insert(outcome);
                }
                table.free(ticket.id);
            }
            Some(_) => table.entry(ticket.id).is_forgotten = true,
        }
        Ok(())
    }
}

/// Whether an operation that was done in part may be done again: it does not change what it reads.
fn can_be_repeated(request: &Request) -> bool {
    match request.operation {
        Operation::Copy { target, source, length } => !cpu::overlaps(target, source, length),
        _ => true,
    }
}

/// Waits for another thread of this process that does an operation: polls, then sleeps.
#[derive(Debug, Default)]
struct Pause {
    taken: u32,
}

impl Pause {
    fn take(&mut self) {
        /// Pauses before the thread sleeps.
        const SPINS: u32 = 100;
        /// How long a thread sleeps. A stated default: as long as a wait for a device.
        const NAP: Duration = Duration::from_micros(50);
        self.taken += 1;
        if self.taken < SPINS {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
    }
}

/// Notes the end of an operation when the engine reports it.
struct End {
    shared: Weak<Shared>,
    ticket: Ticket,
}

impl Wake for End {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Ticket { id, generation } = self.ticket;
        if shared.lock().find(id, generation).is_some() {
            shared.resolve(id);
        }
    }
}
