//! Blocks that an engine fills with zeros while the caller does something else.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::process;
use std::ptr::NonNull;

use haul_engine::{Operation, Pending, Queue, Task, Value};
use haul_heap::{AllocError, Heap, Request};
use haul_peer::fork::Here;

/// A block of a heap that an engine fills with zeros: [`Heap::zalloc`] beside the CPU, for large
/// blocks. A small block costs less with `zalloc`, because a submission takes longer than the
/// zeros.
///
/// If this value is dropped before [`wait`](Self::wait), the drop waits until the block is filled
/// and frees it. If this value is leaked, the block is leaked too.
///
/// A fork copies this value, but the block stays the parent's: in the child, `wait` returns `None`,
/// and a drop does nothing.
///
/// ```
/// use haul::engine::Queue;
/// use haul::heap::{Heap, Request, Zeroing};
/// use std::sync::Arc;
///
/// let heap = Arc::new(Heap::builder().limit(64 << 20).build()?);
/// let zeroing = Zeroing::start(Arc::clone(&heap), Request::new(4 << 20), &Queue::auto()?)?;
/// let sum: u64 = (0..1000).sum(); // runs while the engine writes the zeros
/// let block = zeroing.wait().expect("this process has not forked");
/// // SAFETY: allocated here with 4 MiB, which are all zeros.
/// assert!(unsafe { std::slice::from_raw_parts(block.as_ptr(), 4 << 20) }.iter().all(|b| *b == 0));
/// // SAFETY: as above, and not used again.
/// unsafe { heap.free(block) }?;
/// assert_eq!(sum, 499_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the block is freed when this value is dropped"]
pub struct Zeroing<H: Deref<Target = Heap> + Clone + Send + 'static> {
    pending: ManuallyDrop<Pending<Zeros<H>>>,
    /// The process that started it, and its ID: a child that the C library has not made has another
    /// ID, and the first child in a PID namespace has the ID 1, as its parent may have.
    process: (Here, u32),
}

impl<H: Deref<Target = Heap> + Clone + Send + 'static> Zeroing<H> {
    /// Allocates a block and starts to fill it. Never waits for the engine: if the engine cannot
    /// take the block, this thread fills it now. `heap` shares a heap: an
    /// [`Arc`](std::sync::Arc) or a `'static` reference. The caller keeps another one, because the
    /// block lives as long as the heap.
    ///
    /// Cost: as [`Heap::alloc`] and [`Queue::submit`].
    ///
    /// # Errors
    /// Those of [`Heap::alloc`].
    pub fn start(heap: H, request: Request, queue: &Queue) -> Result<Self, AllocError> {
        let block = heap.alloc(request)?;
        let zeros = Zeros { heap: Some(heap), block, size: request.size() };
        let pending = ManuallyDrop::new(queue.submit(zeros));
        Ok(Self { pending, process: (Here::now(), process::id()) })
    }

    /// Whether the block is filled. Does bounded work.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_here() && self.pending.is_done()
    }

    /// Waits until the block is filled, and hands it over. The caller frees it. This thread takes
    /// part in the work of a helper thread. Returns `None` in a child of the process that started
    /// it.
    pub fn wait(self) -> Option<NonNull<u8>> {
        if !self.is_here() {
            return None;
        }
        let mut own = ManuallyDrop::new(self);
        // SAFETY: `own` is not used or dropped afterwards, so the value is taken once.
        let pending = unsafe { ManuallyDrop::take(&mut own.pending) };
        let (mut zeros, result) = pending.wait();
        if result.is_err() {
            // SAFETY: the engine has ended, and the block is live with this size and has no other
            // user.
            unsafe { zeros.block.write_bytes(0, zeros.size) };
        }
        zeros.heap = None;
        Some(zeros.block)
    }

    fn is_here(&self) -> bool {
        let (here, id) = self.process;
        here.is_here() && id == process::id()
    }
}

impl<H: Deref<Target = Heap> + Clone + Send + 'static> Drop for Zeroing<H> {
    /// Waits, because a block that is freed by a later call of the queue would be missing until
    /// then. In a child of fork, an engine would fill the block again, which processes may share.
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: this value is dropped once, and `wait` keeps a value from its drop.
            drop(unsafe { ManuallyDrop::take(&mut self.pending) }.wait());
        }
    }
}

impl<H: Deref<Target = Heap> + Clone + Send + 'static> fmt::Debug for Zeroing<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zeroing").field("process", &self.process.1).finish_non_exhaustive()
    }
}

/// A block to fill, which is freed with this value.
struct Zeros<H: Deref<Target = Heap>> {
    /// `None` if the caller has the block.
    heap: Option<H>,
    block: NonNull<u8>,
    size: usize,
}

// SAFETY: the block belongs to this value alone, and any thread may write to it or free it.
unsafe impl<H: Deref<Target = Heap> + Send> Send for Zeros<H> {}

impl<H: Deref<Target = Heap>> Drop for Zeros<H> {
    fn drop(&mut self) {
        if let Some(heap) = self.heap.take() {
            // SAFETY: the heap allocated the block for this value, and nothing else refers to it.
            let freed = unsafe { heap.free(self.block) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
}

// SAFETY: the request names the block, which lives as long as this value. Any thread may drop it.
unsafe impl<H: Deref<Target = Heap> + Send> Task for Zeros<H> {
    type Output = ();
    type Memory = ();

    fn request(&mut self) -> (haul_engine::Request, ()) {
        let operation = Operation::Fill { target: self.block.as_ptr(), byte: 0, length: self.size };
        (haul_engine::Request { operation, hint: haul_engine::Hint::Unknown }, ())
    }

    fn output(_: Value) {}
}
