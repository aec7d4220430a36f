//! The agenda of events.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::configuration::Cycle;
use crate::engine::control::Piece;
use crate::memory::Request;

/// An event. Engines, channels and registers are identified by number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request enters the controller's queue.
    Arrive(Request),
    /// A channel chooses its next request.
    Choose(u8),
    /// A channel has moved a line, whose first data came at this cycle.
    Moved(Request, Cycle),
    /// A register's line is in the caches.
    Fill(u8),
    /// The control unit sends its next piece, if an engine has room.
    Send,
    /// A piece reaches an engine.
    Piece(u8, Piece),
    /// All caches have acknowledged the announcement of an engine's piece of a copy.
    Acknowledged(u8, u32),
    /// The processor sees the early notification of a copy's piece.
    Notified(u32),
    /// The data of a read is in an engine's stream buffer.
    Read(u8, u32),
    /// An engine's write is complete.
    Written(u8),
    /// The processor sees the completion of a copy's piece by an engine.
    Complete(u8, u32),
}

/// Events sorted by time. The events of a cycle are in the order in which they were pushed.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Due>>,
    pushed: u64,
}

struct Due {
    at: Cycle,
    number: u64,
    event: Event,
}

impl Agenda {
    /// Adds an event.
    pub(super) fn push(&mut self, at: Cycle, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse(Due { at, number: self.pushed, event }));
    }

    /// The cycle of the next event.
    #[inline]
    pub(super) fn next(&self) -> Option<Cycle> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    /// Takes the next event that is due by `now`.
    #[inline]
    pub(super) fn take(&mut self, now: Cycle) -> Option<(Cycle, Event)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| (due.at, due.event))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
