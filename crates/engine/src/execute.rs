//! Operations that their caller waits for.

use crate::cpu;
use crate::inner::{Inner, Place, Started};
use crate::operation::Request;
use crate::outcome::{Failed, Outcome};
use crate::queue::Queue;
use crate::slots::DONE;
use crate::task::Task;

impl Queue {
    /// Executes an operation, and returns when it has ended: for a caller that has nothing else to
    /// do. Borrowed buffers are the caller's again then; owned ones are dropped. The caller takes
    /// part in what a helper thread does.
    ///
    /// If a device hangs, and does not even let itself be closed, this call waits for ever.
    ///
    /// Cost: if the CPU does the operation at once, as `auto` does with a short one, some 1 ns more
    /// than [`haul_copy::copy`] (Zen 3). Else as for [`submit`](Self::submit) and
    /// [`Pending::wait`](crate::Pending::wait).
    ///
    /// # Errors
    /// What the engine and the CPU could not do. See [`Failed`].
    ///
    /// # Panics
    /// If the lengths of the buffers do not match.
    ///
    /// ```
    /// use haul_engine::{Copy, Crc32c, Queue};
    /// let queue = Queue::auto()?;
    /// let (source, mut target) = (b"123456789", [0; 9]);
    /// queue.execute(Copy::new(&mut target[..], &source[..]))?;
    /// assert_eq!(queue.execute(Crc32c::new(&target[..]))?, 0xe306_9283);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn execute<W: Task>(&self, mut task: W) -> Result<W::Output, Failed> {
        // The task is not lent, because it does not move before the operation has ended: a move
        // would invalidate the request's addresses.
        let (request, memory) = task.request();
        // SAFETY: a task names valid memory, which nothing uses until this returns; it does not
        // unwind before the end.
        let outcome = unsafe { self.inner.execute(&request) };
        drop(memory);
        self.inner.value(outcome).map(W::output)
    }
}

impl Inner {
    /// Does an operation to its end.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn execute(&self, request: &Request) -> Outcome {
        // SAFETY: the caller's promise.
        let length = unsafe { request.operation.length() };
        // SAFETY: the caller's promise.
        match unsafe { cpu::check(&request.operation) } {
            Err(refusal) => Outcome::Refused(refusal),
            // SAFETY: it was checked, no engine has it, and the caller's promise.
            Ok(()) if length < self.engine_min => unsafe { cpu::execute(request) },
            // SAFETY: the caller's promise.
            Ok(()) => unsafe { self.execute_longer(*request) },
        }
    }

    /// As [`execute`](Self::execute), for an operation that an engine may do. It takes the request
    /// by value, so that only a caller that comes here has it in memory.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    #[inline(never)]
    unsafe fn execute_longer(&self, request: Request) -> Outcome {
        // SAFETY: the caller's promise.
        match unsafe { self.begin(&request) } {
            Started::Done => DONE,
            Started::Ended(outcome) => outcome,
            // SAFETY: the place was just taken, and the caller's promise.
            Started::Pending(place) => unsafe { self.result(place) },
        }
    }

    /// Waits for an operation, releases its slot, and lets the CPU finish it.
    ///
    /// # Safety
    /// The place is not released, and its memory is valid.
    pub(crate) unsafe fn result(&self, place: Place) -> Outcome {
        let in_use = InUse;
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.wait(place, None) };
        std::mem::forget(in_use);
        let outcome = outcome.expect("a wait without a deadline returns at the end");
        // SAFETY: the slot is not released yet.
        let request = unsafe { self.slots.request(place.index) };
        self.slots.release(place.index);
        // SAFETY: the operation has ended, and the caller's promise.
        unsafe { self.finish(&request, outcome) }
    }
}

/// Borrowed memory that an engine may access. Its drop, by a panic that has printed its message,
/// ends the process: a caller that unwinds would give the memory back.
struct InUse;

impl Drop for InUse {
    fn drop(&mut self) {
        std::process::abort();
    }
}
