//! The heap of one socket.

use core::ffi::c_char;
use core::ptr::NonNull;
use std::time::Instant;

use haul_heap::{AllocError, Heap, Tag};

use crate::backoff::Backoffs;
use crate::extents::{NoGrowth, SocketExtents};
use crate::memory::SocketRange;
use crate::names::Names;

/// The heap of one socket.
pub(crate) struct SocketHeap {
    pub(crate) heap: Heap,
    pub(crate) range: SocketRange,
    pub(crate) extents: &'static SocketExtents,
    pub(crate) names: Names,
    pub(crate) backoffs: Backoffs,
}

impl SocketHeap {
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[inline]
    pub(super) unsafe fn allocate(
        &self,
        name: *const c_char,
        bytes: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        if !self.backoffs.of(bytes, align).is_over() {
            return None;
        }
        // SAFETY: as the caller promises.
        let tag = unsafe { self.names.tag(&self.heap, name) };
        let block = self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag));
        if block.is_err() {
            return self.allocate_again(bytes, align, tag);
        }
        block.ok()
    }

    /// Asks an exhausted heap once more and measures the time. If the heap refuses again, its
    /// back-off begins; otherwise the back-off ends.
    #[cold]
    pub(super) fn allocate_again(
        &self,
        bytes: usize,
        align: usize,
        tag: Tag,
    ) -> Option<NonNull<u8>> {
        let start = Instant::now();
        let block = self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag));
        let backoff = self.backoffs.of(bytes, align);
        match block {
            Err(AllocError::Exhausted) => backoff.begin(start.elapsed()),
            _ => backoff.end(),
        }
        block.ok()
    }

    /// Ends the back-offs of the heap and of DPDK, after memory became free.
    pub(super) fn end_backoff(&self) {
        self.backoffs.end();
        self.extents.end_backoff();
    }

    /// Allocates a large block from idle memory of the heap, or from idle pages that could be
    /// returned to DPDK. DPDK would have to clear these pages first.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[cold]
    pub(super) unsafe fn allocate_held(
        &self,
        name: *const c_char,
        bytes: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        let held = |tag| {
            self.heap.alloc_held(haul_heap::Request::new(bytes).aligned(align).tagged(tag)).ok()
        };
        // SAFETY: as the caller promises.
        let block = unsafe { tagged(&self.heap, &self.names, name, held) };
        if block.is_some() || !self.extents.has_idle(bytes, align) {
            return block;
        }
        let _no_growth = NoGrowth::begin();
        let idle =
            |tag| self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag)).ok();
        // SAFETY: as the caller promises.
        unsafe { tagged(&self.heap, &self.names, name, idle) }
    }
}

/// Allocates a block with the tag of its type's name. `heap` may refuse the block.
///
/// # Safety
///
/// `name` is NULL or a C string.
unsafe fn tagged(
    heap: &Heap,
    names: &Names,
    name: *const c_char,
    allocate: impl Fn(Tag) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    // SAFETY: as the caller promises.
    let tag = match unsafe { names.known(name) } {
        Some(tag) => tag,
        None => {
            // Tags are few and permanent, so no tag is used up for a block that DPDK serves in
            // the end.
            let probe = allocate(Tag::NONE)?;
            // SAFETY: allocated just now, and no other thread has it.
            unsafe { heap.free(probe) }.ok()?;
            // SAFETY: as the caller promises.
            unsafe { names.tag(heap, name) }
        }
    };
    allocate(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_heap::Node;

    #[test]
    fn refused_block_takes_no_tag() {
        let heap = Heap::builder().limit(64 << 20).build().expect("a small heap is built");
        let names = Names::new();
        let held = |name: &core::ffi::CStr| {
            let held = |tag| heap.alloc_held(haul_heap::Request::new(1 << 20).tagged(tag)).ok();
            // SAFETY: a `CStr` is a C string.
            unsafe { tagged(&heap, &names, name.as_ptr(), held) }
        };
        for name in [c"a", c"b", c"c"] {
            assert_eq!(held(name), None, "the heap has no idle memory");
        }
        assert_eq!(heap.tag("first").number(), 1, "refused requests have tags");
        let idle = heap.alloc(haul_heap::Request::new(2 << 20)).expect("the heap is empty");
        // SAFETY: allocated just now, and no other thread has it.
        unsafe { heap.free(idle) }.expect("it lives");
        assert!(held(c"second").is_some());
        assert_eq!(heap.tag("second").number(), 2);
        assert!(held(c"second").is_some() && held(c"third").is_none());
        assert_eq!(heap.stats(Node::ANY).live.blocks, 2);
        assert_eq!(heap.tag("fourth").number(), 3);
    }
}
