//! haul's own heap, called as a Rust program calls it.

use std::ptr::NonNull;

use haul_heap::{Heap, Node};

use super::Allocator;
use crate::heap::protocol::Start;

/// A heap of this process.
pub(in crate::heap) struct Haul {
    heap: Heap,
}

impl Haul {
    /// A heap as the start asks for it, on the best pages that there are.
    ///
    /// # Errors
    /// The heap cannot be built.
    pub(in crate::heap) fn new(start: &Start) -> Result<Self, String> {
        let builder = Heap::builder().grow_ahead(start.grow_ahead_bytes as u64);
        // A descriptor that nobody is given leaves nothing behind when the process is ended.
        let heap = if start.shared { builder.shared_fd() } else { builder.build() };
        let heap = heap.map_err(|error| error.to_string())?;
        Ok(Self { heap })
    }
}

// SAFETY: Heap::alloc and Heap::realloc promise just that.
unsafe impl Allocator for Haul {
    #[inline(always)]
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        self.heap.alloc(size, align, Node::ANY).ok()
    }

    #[inline(always)]
    unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller says that nothing refers to the block any more.
        let freed = unsafe { self.heap.free(block) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        _old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller says that nothing refers to the block any more.
        unsafe { self.heap.realloc(block, size, align) }.ok()
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    fn pages(&self) -> Option<String> {
        Some(self.heap.pages().to_string())
    }
}
