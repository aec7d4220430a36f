//! The functions with which a driver calls a heap, for each kind of heap.
//!
//! - [`zeroing`]: a block that an engine fills with zeros;
//! - [`c`]: the functions of the C library or of the preloaded library;
//! - [`dpdk`]: `rte_malloc` and its family, loaded at run time;
//! - [`haul`]: haul's own heap.

pub(super) mod c;
pub(super) mod dpdk;
pub(super) mod haul;
pub(super) mod zeroing;

use std::ptr::NonNull;

use ::haul::engine::Queue;
use zeroing::Started;

/// A heap whose functions a driver calls. Every call is timed, so that an implementation must not
/// do anything else.
///
/// # Safety
/// `allocate`, `allocate_zeroed` and `reallocate` must return memory that is valid for reads and
/// writes of `size` bytes, aligned to `align`, and to which nothing else refers until the block
/// is freed.
pub(super) unsafe trait Allocator: Sync {
    /// `size` bytes aligned to `align`, a power of two; `None` if the heap has no such block.
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>>;

    /// Like [`allocate`](Self::allocate), but with zeros in the block.
    fn allocate_zeroed(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        // SAFETY: the block was allocated a line above, with this size.
        unsafe { block.as_ptr().write_bytes(0, size) };
        Some(block)
    }

    /// Like [`allocate_zeroed`](Self::allocate_zeroed), but an engine writes the zeros while the
    /// caller does something else.
    fn start_zeroed(&self, size: usize, align: usize, queue: &Queue) -> Option<Started> {
        let block = self.allocate(size, align)?;
        // SAFETY: the block was allocated a line above, with this size.
        Some(unsafe { Started::other(block, size, queue) })
    }

    /// Frees a block.
    ///
    /// # Safety
    /// This heap must have allocated the block, and nothing may refer to it any more.
    unsafe fn free(&self, block: NonNull<u8>);

    /// Returns a block of another size with the contents of the old block, which is freed. If
    /// there is no such block (`None`), the old block stays allocated.
    ///
    /// # Safety
    /// This heap must have allocated the block with `old_size` and `align`, and nothing may refer
    /// to it any more.
    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>>;

    /// Gives the heap an opportunity to return memory to the system, like an idle program.
    fn idle(&self) {}

    /// Makes the heap return its free memory to the system, as far as that is possible, so that
    /// the heap's memory use after this call is visible.
    fn give_back(&self) {}

    /// The heap's version, as reported by its library.
    fn version(&self) -> String;

    /// The kind of the heap's pages, if the heap reports it.
    fn pages(&self) -> Option<String> {
        None
    }
}
