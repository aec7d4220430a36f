//! Copies of a message's bytes by an engine, see [`Settings::engine`].
//!
//! | form | memory | the copy has ended |
//! |---|---|---|
//! | [`Beside::write`], [`Beside::read`] | borrowed | when the call returns; this thread takes part |
//! | [`Beside::start`] | kept alive by the copy | when [`Copying::has_ended`] says so |
//!
//! A program may forget a [`Sending`](crate::Sending), so no copy of borrowed memory is pending
//! when a call returns.
//!
//! [`Settings::engine`]: crate::Settings::engine

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use haul_copy::Hint;
use haul_engine::{Bell, Operation, Pending, Queue, Request, Task, Value};
use haul_peer::fork::Here;
use haul_peer::region::Region;

use super::error::Error;

/// From this size on, a piece is given to the engine: a helper thread and its caller can share a
/// copy from here on.
pub(crate) const BYTES_MIN: usize = 64 << 10;

/// An engine that has not ended a copy after this time hangs. A stated default: a copy of the
/// longest piece takes a millisecond.
const HANG: Duration = Duration::from_secs(1);

/// The engine of an end, and the event for the end of its copies.
#[derive(Debug)]
pub(crate) struct Beside {
    queue: Queue,
    bell: Bell,
    /// Whether the sending half of this process waits for the bell.
    is_awaited: AtomicBool,
    /// The process that made the event, which a child of fork shares.
    here: Here,
}

impl Beside {
    /// # Errors
    /// [`Error::System`] if the process may open no more descriptors.
    pub(crate) fn new(queue: &Queue) -> Result<Self, Error> {
        let bell = Bell::new();
        let bell = bell.map_err(|error| {
            Error::system("make an event for the engine's copies")(io::Error::other(error))
        })?;
        let (queue, is_awaited) = (queue.clone(), AtomicBool::new(false));
        Ok(Self { queue, bell, is_awaited, here: Here::now() })
    }

    /// The event, which an event loop polls together with the socket.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Makes the event unreadable for the sending half, which checks its copy next.
    pub(crate) fn clear_for_sender(&self) {
        if self.is_awaited.swap(false, SeqCst) {
            self.bell.clear();
        }
    }

    /// Makes the event unreadable for the receiving half, if the sending half does not wait for it:
    /// a helper thread may set it after the sender has seen the end. In a child of fork, the event
    /// is the parent's.
    pub(crate) fn clear_for_receiver(&self) {
        if self.is_awaited.load(SeqCst) || !self.here.is_here() {
            return;
        }
        self.bell.clear();
        if self.is_awaited.load(SeqCst) {
            // The sender has begun to wait meanwhile, and its copy may have ended before the
            // event was cleared. One event too many makes it check its copy once more.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the event readable when the copy has ended.
    pub(crate) fn await_end(&self, copying: &Copying) {
        if let Some(pending) = &copying.pending {
            self.is_awaited.store(true, SeqCst);
            pending.ring(&self.bell);
        }
    }

    /// Copies `source` into shared memory at `offset`.
    pub(crate) fn write(&self, region: &Region, offset: usize, source: &[u8], hint: Hint) {
        let target = region.at(offset, source.len()).as_ptr();
        // SAFETY: the target is inside the mapping, whose pages are guarded. This process has no
        // reference to these bytes. Both ranges outlive this call.
        unsafe { self.copy(target, source.as_ptr(), source.len(), hint) }
    }

    /// Copies `target.len()` bytes at `offset` of shared memory to private memory.
    pub(crate) fn read(&self, region: &Region, offset: usize, target: &mut [u8], hint: Hint) {
        let source = region.at(offset, target.len()).as_ptr();
        // SAFETY: the source is inside the mapping, whose pages are guarded. The peer may write
        // meanwhile, but any bytes are acceptable. The target is borrowed exclusively. Both ranges
        // outlive this call.
        unsafe { self.copy(target.as_mut_ptr(), source, target.len(), hint) }
    }

    /// # Safety
    /// Until this returns, the source is readable, the target is writable, and no other code of
    /// this process accesses the target.
    unsafe fn copy(&self, target: *mut u8, source: *const u8, length: usize, hint: Hint) {
        let operation = Operation::Copy { target, source, length };
        let piece = || Piece { request: Request { operation, hint }, _keeps: None };
        let is_done = self.queue.execute(piece()).is_ok();
        piece().finish(is_done);
    }

    /// Starts to copy `length` bytes of `source`, from `from` on, into shared memory at `offset`.
    /// `keeper` keeps the region mapped.
    ///
    /// # Safety
    /// The region stays mapped while `keeper` exists.
    pub(crate) unsafe fn start(
        &self,
        (region, offset, keeper): (&Region, usize, Keeper),
        (source, from): (&Arc<Vec<u8>>, u64),
        length: usize,
        hint: Hint,
    ) -> Copying {
        let target = region.at(offset, length).as_ptr();
        let bytes = &source[from as usize..][..length];
        let operation = Operation::Copy { target, source: bytes.as_ptr(), length };
        let keeps = Some((keeper, Arc::clone(source)));
        let piece = Piece { request: Request { operation, hint }, _keeps: keeps };
        Copying { pending: Some(self.queue.submit(piece)), here: Here::now() }
    }
}

/// What keeps a region mapped.
pub(crate) type Keeper = Arc<dyn Send + Sync>;

/// A copy of a piece, and what keeps its memory alive: the region, and the source.
struct Piece {
    request: Request,
    _keeps: Option<(Keeper, Arc<Vec<u8>>)>,
}

impl Piece {
    /// Copies with the CPU what the engine did not copy.
    fn finish(self, is_done: bool) {
        let Operation::Copy { target, source, length } = self.request.operation else { return };
        if !is_done {
            // SAFETY: the memory outlives the piece: it is in `_keeps`, or the caller of `copy`
            // keeps it. The engine does not access it any more.
            unsafe { self.request.hint.copy_raw(target, source, length) }
        }
    }
}

// SAFETY: the request names memory that the piece keeps, or that outlives the call which waits for
// it. What it keeps may be dropped by any thread.
unsafe impl Task for Piece {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (Request, ()) {
        (self.request, ())
    }

    fn output(_: Value) {}
}

/// A copy that goes on while the sender does something else.
#[derive(Debug)]
pub(crate) struct Copying {
    /// `None` after the end.
    pending: Option<Pending<Piece>>,
    /// The process that started it.
    here: Here,
}

impl Copying {
    /// Whether all bytes are there. Copies with this thread what the engine could not copy.
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(pending) = self.pending.take() else { return true };
        match pending.try_wait() {
            Ok((piece, result)) => {
                piece.finish(result.is_ok());
                true
            }
            Err(pending) => {
                self.pending = Some(pending);
                false
            }
        }
    }

    /// The number of bytes at the beginning that are there, before the copy has ended.
    pub(crate) fn bytes_done(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::bytes_done)
    }

    /// Whether the copy may still be under way.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Waits for the end, at most for this time. This thread takes part in the copy.
    pub(crate) fn wait_for(&mut self, time: Duration) {
        let Some(pending) = self.pending.take() else { return };
        match pending.wait_for(time) {
            Ok((piece, result)) => piece.finish(result.is_ok()),
            Err(pending) => self.pending = Some(pending),
        }
    }

    /// Waits for a pending copy, and leaks its memory if the engine hangs. In a child of fork, the
    /// copy is the parent's: an engine would do it again in the child, in memory that both
    /// processes share.
    pub(crate) fn end(&mut self) {
        if self.here.is_here() {
            self.wait_for(HANG);
        }
        std::mem::forget(self.pending.take());
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.end();
    }
}
