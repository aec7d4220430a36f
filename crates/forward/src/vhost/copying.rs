//! The copies of a burst to the guest, as an engine does them, and what became of the burst.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use haul_engine::{Hint, Operation, Pair, Pending, Queue, Request, Task, Value};
use haul_peer::guest::Guest;

use crate::copy::Part;
use crate::pool::Memory;

const PENDING: u8 = 0;
const SENT: u8 = 1;
const LOST: u8 = 2;

/// What became of a burst. Once it is known, nothing reads the burst's packets any more.
#[derive(Debug, Default)]
pub(super) struct Fate(AtomicU8);

impl Fate {
    /// Whether the guest got the burst; `None` while it is on its way.
    pub(super) fn is_sent(&self) -> Option<bool> {
        // SYNC: burst ended.
        match self.0.load(Ordering::Acquire) {
            PENDING => None,
            state => Some(state == SENT),
        }
    }

    /// Records the end. The copies have ended.
    pub(super) fn end(&self, is_sent: bool) {
        // SYNC: burst ended.
        self.0.store(if is_sent { SENT } else { LOST }, Ordering::Release);
    }

    /// Begins anew, for another burst.
    pub(super) fn begin(&self) {
        self.0.store(PENDING, Ordering::Relaxed);
    }
}

/// The guest's processor has read the buffers before, and reads them next.
const HINT: Hint = Hint::Handover;

/// A list of copies.
#[derive(Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

// SAFETY: nothing is accessed through the list itself.
unsafe impl Send for Pairs {}

/// The copies of a burst, and the memory that they need.
struct Moves {
    pairs: Pairs,
    _memory: (Arc<Guest>, Arc<Memory>),
}

impl fmt::Debug for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moves").field("pairs", &self.pairs.0.len()).finish_non_exhaustive()
    }
}

// SAFETY: the request names memory that the task keeps mapped, and the list of pairs, whose place
// in memory does not change while the task is moved. Every thread may drop it.
unsafe impl Task for Moves {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (Request, ()) {
        let (pairs, count) = (self.pairs.0.as_ptr(), self.pairs.0.len());
        (Request { operation: Operation::Batch { pairs, count }, hint: HINT }, ())
    }

    fn output(_: Value) {}
}

/// The copies of a burst while an engine does them.
#[derive(Debug)]
pub(super) struct Copying {
    /// `None` after the end.
    pending: Option<Pending<Moves>>,
}

impl Copying {
    /// Starts the copies. If the engine cannot take them, this thread does them now. `pairs` is
    /// memory for their list.
    ///
    /// # Safety
    /// Until they have ended, the parts' sources are in the pool's memory and are not written, and
    /// their targets are in the guest's memory.
    pub(super) unsafe fn start(
        queue: &Queue,
        parts: &[Part],
        memory: (&Arc<Guest>, &Arc<Memory>),
        mut pairs: Pairs,
    ) -> Self {
        let pair = |&Part { target, source, length }| Pair { target, source, length };
        pairs.0.clear();
        pairs.0.extend(parts.iter().filter(|part| part.length > 0).map(pair));
        let moves = Moves { pairs, _memory: (Arc::clone(memory.0), Arc::clone(memory.1)) };
        Self { pending: Some(queue.submit(moves)) }
    }

    /// Whether the copies have ended. If so, hands back the memory for a list.
    pub(super) fn ended(&mut self) -> Option<Pairs> {
        match self.pending.take()?.try_wait() {
            Ok((moves, result)) => Some(moves.finish(result.is_ok())),
            Err(pending) => {
                self.pending = Some(pending);
                None
            }
        }
    }

    /// Waits for the end. This thread takes part.
    pub(super) fn wait(self) {
        if let Some(pending) = self.pending {
            let (moves, result) = pending.wait();
            moves.finish(result.is_ok());
        }
    }
}

impl Moves {
    /// Copies with this thread what the engine did not copy.
    fn finish(self, is_done: bool) -> Pairs {
        if !is_done {
            for Pair { target, source, length } in &self.pairs.0 {
                // SAFETY: both ranges are in memory that this value keeps mapped. The engine does
                // not access them any more. They do not overlap: see `Copying::start`.
                unsafe { HINT.copy_raw(*target, *source, *length) };
            }
        }
        self.pairs
    }
}
