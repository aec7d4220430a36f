//! A heap as a driver calls it.
//!
//! - `dynamic`: functions found by name while the program runs;
//! - [`c`]: the C library's functions, or those of the library preloaded in front of it;
//! - [`dpdk`]: `rte_malloc` and its family, loaded while the program runs;
//! - [`haul`]: haul's own heap.

pub(super) mod c;
pub(super) mod dpdk;
mod dynamic;
pub(super) mod haul;

use std::ptr::NonNull;

/// A heap whose functions a driver calls. Every call is timed: an implementation adds nothing.
///
/// # Safety
/// `allocate`, `allocate_zeroed` and `reallocate` give memory that is valid for reads and writes of
/// `size` bytes, aligned to `align`, that nothing else refers to until it is freed.
pub(super) unsafe trait Allocator: Sync {
    /// `size` bytes aligned to `align`, a power of two. `None` where the heap has none.
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>>;

    /// The same, with zeroes in it.
    fn allocate_zeroed(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        // SAFETY: the block was given a line above, for as many bytes.
        unsafe { block.as_ptr().write_bytes(0, size) };
        Some(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// This heap gave the block, and nothing refers to it any more.
    unsafe fn free(&self, block: NonNull<u8>);

    /// A block of another size with the contents of the old one, which is gone then; where there is
    /// none (`None`), the old one stays.
    ///
    /// # Safety
    /// This heap gave the block with `old_size` and `align`, and nothing refers to it any more.
    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>>;

    /// Gives it the chance to give memory back, as a program that has a moment would.
    fn idle(&self) {}

    /// Has it give back what it holds free, as far as it can be told to: so that what it takes from
    /// here on is seen.
    fn give_back(&self) {}

    /// Its version, as its library says it.
    fn version(&self) -> String;

    /// What its memory consists of, where it says so.
    fn pages(&self) -> Option<String> {
        None
    }
}
