//! A block that an engine fills with zeros.

use std::ptr::NonNull;

use haul::engine::{Hint, Operation, Pending, Queue, Request, Task, Value};
use haul::heap::Zeroing;
use haul_heap::Heap;

/// A block that an engine fills.
pub(in crate::heap) enum Started {
    /// By haul's own call.
    Haul(Zeroing<&'static Heap>),
    /// By a submission of this program, for a heap without such a call.
    Other(Pending<Bytes>),
}

impl Started {
    /// Starts to fill a block of another heap.
    ///
    /// # Safety
    /// `block` is valid for writes of `size` bytes, and nothing else refers to it until
    /// [`wait`](Self::wait) has returned it.
    pub(in crate::heap) unsafe fn other(block: NonNull<u8>, size: usize, queue: &Queue) -> Self {
        Self::Other(queue.submit(Bytes { block, size }))
    }

    /// Waits until the block is filled.
    pub(in crate::heap) fn wait(self) -> NonNull<u8> {
        match self {
            Self::Haul(zeroing) => zeroing.wait().expect("a driver does not fork"),
            Self::Other(pending) => pending.wait().0.block,
        }
    }
}

/// The bytes to fill.
pub(in crate::heap) struct Bytes {
    block: NonNull<u8>,
    size: usize,
}

// SAFETY: nothing else refers to the block, as the caller of `other` promises.
unsafe impl Send for Bytes {}

// SAFETY: the request names the block, to which nothing else refers.
unsafe impl Task for Bytes {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (Request, ()) {
        let (target, length) = (self.block.as_ptr(), self.size);
        let operation = Operation::Fill { target, byte: 0, length };
        (Request { operation, hint: Hint::Unknown }, ())
    }

    fn output(_: Value) {}
}
