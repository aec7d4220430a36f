//! The operations that were submitted and whose result was not taken, with the order between them.
//!
//! ```text
//! free -> WAITING -> STARTING -> STARTED -> ENDED -> free
//! ```
//!
//! An operation waits while an earlier one that overlaps it has not ended. A thread that starts,
//! finishes or does an operation claims it: STARTING. The ranges of an operation are in the trees
//! until it has ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use haul_peer::fork::Here;

use super::ranges::{Range, Ranges};
use super::ticket::{Id, Ticket};
use crate::inner::Place;
use crate::operation::{Operation, Request, list};
use crate::outcome::Outcome;
use crate::slots::Slots;

/// The state of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Free,
    /// Operations that overlap it go first.
    Waiting,
    /// A thread of this process has claimed it.
    Starting(Here),
    /// The engine works on it, in `Entry::place`.
    Started,
    Ended(Outcome),
}

/// An operation.
#[derive(Debug)]
pub(super) struct Entry {
    /// Changes with every use of the entry.
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) request: Request,
    /// The bytes of the operation.
    pub(super) length: usize,
    /// Where the engine has it. Released when the operation has ended and no thread uses it.
    pub(super) place: Option<Place>,
    /// The threads that use the place without the lock.
    pub(super) users: u32,
    pub(super) waker: Option<Waker>,
    /// The engine will report the end.
    pub(super) is_armed: bool,
    /// The result is not wanted.
    pub(super) is_forgotten: bool,
    ranges: Vec<(Access, Range)>,
    /// The operations that go first.
    blockers: Vec<Id>,
    /// The operations that wait for this one.
    dependents: Vec<Id>,
}

/// What an operation does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Reads,
    Writes,
}

/// What is left to do when the lock is free again.
#[derive(Debug, Default)]
pub(super) struct Remainder {
    /// Operations that are claimed, to be started.
    pub(super) starts: Vec<Id>,
    pub(super) wakers: Vec<Waker>,
    /// Operations whose end the engine must report, if they are started.
    pub(super) arms: Vec<Id>,
}

/// All operations.
#[derive(Debug)]
pub(super) struct Table {
    slots: Arc<Slots>,
    entries: Vec<Entry>,
    free: Vec<Id>,
    reads: Ranges,
    writes: Ranges,
    /// The operations that have not ended.
    pub(super) unended: usize,
    /// Started operations in their order. Some have ended meanwhile.
    pub(super) started: VecDeque<(Id, u32)>,
    /// The first failure of an operation whose result is not wanted.
    pub(super) failed: Option<Outcome>,
}

impl Table {
    /// No operations, for a queue with these slots.
    pub(super) fn new(slots: Arc<Slots>) -> Self {
        let (reads, writes) = (Ranges::new(), Ranges::new());
        let (entries, free, started) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { slots, entries, free, reads, writes, unended: 0, started, failed: None }
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&mut self, id: Id) -> &mut Entry {
        &mut self.entries[id as usize]
    }

    /// The entry in this use; `None` if its result was taken.
    pub(super) fn find(&self, id: Id, generation: u32) -> Option<&Entry> {
        let entry = self.entries.get(id as usize)?;
        let is_used = !matches!(entry.state, State::Free);
        (is_used && entry.generation == generation).then_some(entry)
    }

    /// Like [`find`](Self::find), for a caller that has the ticket.
    pub(super) fn asked(&self, ticket: Ticket) -> Option<&Entry> {
        self.find(ticket.id, ticket.generation).filter(|entry| !entry.is_forgotten)
    }

    /// A new entry in this state, without ranges.
    pub(super) fn add(&mut self, request: Request, length: usize, state: State) -> Id {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                // 0 is never a generation, so 0 is never a ticket.
                generation: 1,
                state: State::Free,
                request,
                length,
                place: None,
                users: 0,
                waker: None,
                is_armed: false,
                is_forgotten: false,
                ranges: Vec::new(),
                blockers: Vec::new(),
                dependents: Vec::new(),
            });
            (self.entries.len() - 1) as Id
        });
        let entry = self.entry(id);
        (entry.state, entry.request, entry.length) = (state, request, length);
        (entry.is_armed, entry.is_forgotten, entry.place) = (false, false, None);
        id
    }

    /// Gives an entry of an operation that has ended back, once no thread uses its place.
    pub(super) fn free(&mut self, id: Id) {
        let entry = self.entry(id);
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.is_forgotten = true;
        if entry.users == 0 {
            entry.state = State::Free;
            self.free.push(id);
        }
    }

    /// An operation that does something with an address from `start` to before `end`; one that
    /// writes there, if there is one.
    pub(super) fn overlap(&self, start: usize, end: usize) -> Option<Id> {
        self.writes.overlap(start, end).or_else(|| self.reads.overlap(start, end))
    }

    /// Whether operations that have not ended read or write an address of the range.
    pub(super) fn accesses(&self, start: usize, end: usize) -> (bool, bool) {
        (self.reads.overlap(start, end).is_some(), self.writes.overlap(start, end).is_some())
    }

    /// The operations that must end before this one may start; an error with some of them if there
    /// are `most` or more.
    ///
    /// # Safety
    /// The lists of an operation with lists must be readable.
    pub(super) unsafe fn conflicts(
        &self,
        operation: &Operation,
        most: usize,
    ) -> Result<Vec<Id>, Vec<Id>> {
        let mut found = Vec::new();
        if self.unended == 0 {
            return Ok(found);
        }
        // SAFETY: the caller's promise.
        unsafe {
            each_range(operation, |access, start, end| {
                self.writes.overlaps(start, end, most, &mut found);
                if access == Access::Writes {
                    self.reads.overlaps(start, end, most, &mut found);
                }
            });
        }
        let is_all = found.len() < most;
        found.sort_unstable();
        found.dedup();
        if is_all { Ok(found) } else { Err(found) }
    }

    /// Enters the ranges of an operation that has not ended, and the operations that go first.
    ///
    /// # Safety
    /// The lists of an operation with lists must be readable.
    pub(super) unsafe fn link(&mut self, id: Id, blockers: Vec<Id>) {
        let operation = self.entry(id).request.operation;
        let mut ranges = std::mem::take(&mut self.entry(id).ranges);
        // SAFETY: the caller's promise.
        unsafe {
            each_range(&operation, |access, start, end| {
                ranges.push((access, self.tree(access).insert(start, end, id)));
            });
        }
        for blocker in &blockers {
            self.entry(*blocker).dependents.push(id);
        }
        let entry = self.entry(id);
        (entry.ranges, entry.blockers) = (ranges, blockers);
        self.unended += 1;
    }

    fn tree(&mut self, access: Access) -> &mut Ranges {
        if access == Access::Reads { &mut self.reads } else { &mut self.writes }
    }

    /// Whether the engine should report the end.
    pub(super) fn is_awaited(&self, id: Id) -> bool {
        let entry = &self.entries[id as usize];
        !entry.is_armed && (entry.waker.is_some() || !entry.dependents.is_empty())
    }

    /// The operation that must end first: this one, or one that it waits for.
    pub(super) fn first(&self, mut id: Id) -> Id {
        while let (State::Waiting, Some(blocker)) =
            (self.entries[id as usize].state, self.entries[id as usize].blockers.first())
        {
            id = *blocker;
        }
        id
    }

    /// Notes the end of an operation, and claims those that waited for this one alone.
    pub(super) fn end(&mut self, id: Id, outcome: Outcome, here: Here, rest: &mut Remainder) {
        let entry = self.entry(id);
        entry.state = State::Ended(outcome);
        rest.wakers.extend(entry.waker.take());
        let place = if entry.users == 0 { entry.place.take() } else { None };
        let (is_forgotten, mut ranges) = (entry.is_forgotten, std::mem::take(&mut entry.ranges));
        let mut dependents = std::mem::take(&mut entry.dependents);
        for (access, range) in ranges.drain(..) {
            self.tree(access).remove(range);
        }
        for dependent in dependents.drain(..) {
            let entry = self.entry(dependent);
            entry.blockers.retain(|blocker| *blocker != id);
            if entry.blockers.is_empty() {
                entry.state = State::Starting(here);
                rest.starts.push(dependent);
            }
        }
        place.into_iter().for_each(|place| self.slots.release(place.index));
        // The vectors keep their memory for the next use.
        let entry = self.entry(id);
        (entry.ranges, entry.dependents) = (ranges, dependents);
        self.unended -= 1;
        if is_forgotten {
            if !matches!(outcome, Outcome::Done(_)) {
                self.failed.get_or_insert(outcome);
            }
            self.free(id);
        }
    }

    /// A thread no longer uses the place of an operation.
    pub(super) fn leave(&mut self, id: Id) {
        let entry = self.entry(id);
        entry.users -= 1;
        if entry.users > 0 || !matches!(entry.state, State::Ended(_)) {
            return;
        }
        let (place, is_forgotten) = (entry.place.take(), entry.is_forgotten);
        if is_forgotten {
            entry.state = State::Free;
            self.free.push(id);
        }
        place.into_iter().for_each(|place| self.slots.release(place.index));
    }
}

/// Calls `each` with every range of an operation that is not empty, and with its access.
///
/// # Safety
/// The lists of an operation with lists must be readable.
unsafe fn each_range(operation: &Operation, mut each: impl FnMut(Access, usize, usize)) {
    let mut add = |access, start: *const u8, length: usize| {
        if length > 0 {
            each(access, start.addr(), start.addr() + length);
        }
    };
    match *operation {
        Operation::Copy { target, source, length }
        | Operation::CopyCrc32c { target, source, length, .. } => {
            add(Access::Reads, source, length);
            add(Access::Writes, target, length);
        }
        Operation::Fill { target, length, .. } => add(Access::Writes, target, length),
        Operation::Compare { left, right, length } => {
            add(Access::Reads, left, length);
            add(Access::Reads, right, length);
        }
        Operation::Crc32c { source, length, .. } => add(Access::Reads, source, length),
        Operation::Lists { targets, target_count, sources, source_count } => {
            // SAFETY: the caller's promise.
            for region in unsafe { list(sources, source_count) } {
                add(Access::Reads, region.start, region.length);
            }
            // SAFETY: the caller's promise.
            for region in unsafe { list(targets, target_count) } {
                add(Access::Writes, region.start, region.length);
            }
        }
        Operation::Batch { pairs, count } => {
            // SAFETY: the caller's promise.
            for pair in unsafe { list(pairs, count) } {
                add(Access::Reads, pair.source, pair.length);
                add(Access::Writes, pair.target, pair.length);
            }
        }
    }
}
