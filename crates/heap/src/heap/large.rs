//! Blocks above the largest class: runs of slices.

use core::ptr::NonNull;

use super::{Found, Heap};
use crate::cache::Keeper;
use crate::fault::{AllocError, Fault, Misuse};
use crate::layout::{PAGE, SLICE};
use crate::memory::RunRequest;
use crate::protocol::class::SLOT_SIZE_MAX;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::request::{Node, Offset, Request, Tag};
use crate::sync::Ordering::Relaxed;

impl Heap {
    /// Allocates a run of slices. O(size / 64 KiB), because it claims each slice.
    #[inline(never)]
    pub(super) fn alloc_large(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        self.sealed(size, |padded| self.alloc_slices(padded, align, node, tag))
    }

    /// Allocates a block of `size` bytes with `alloc`, which gets a larger size in debug mode.
    fn sealed(
        &self,
        size: usize,
        alloc: impl FnOnce(usize) -> Result<NonNull<u8>, AllocError>,
    ) -> Result<NonNull<u8>, AllocError> {
        let padded = self.padded(size);
        let block = alloc(padded)?;
        if self.debug.is_some() {
            self.seal_new(block, padded.next_multiple_of(SLICE), size);
        }
        Ok(block)
    }

    /// Like [`Heap::alloc`], but a block of up to 2 MiB is within one page of 2 MiB if a page has
    /// room, so that the block's memory is as contiguous as possible.
    pub(crate) fn alloc_within_page(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        let Request { size, align, node, tag } = request;
        let is_large = size > SLOT_SIZE_MAX && size.max(align) <= PAGE && self.debug.is_none();
        if !is_large {
            return self.alloc(request);
        }
        self.check(size, align, node)?;
        let RunRequest { count, align: slices, .. } = self.run_request(size, align);
        // Without a wait for slices that other threads hold: there may be room across pages.
        let within = self.on_nodes_once(node, &mut |keeper| {
            let head = self.memory.take_in_page(keeper.node, count, slices, keeper.id)?;
            self.build_large(&keeper, head, count, tag)
        });
        within.or_else(|_| self.alloc(request))
    }

    /// Claims the slices of a large block.
    pub(super) fn alloc_slices(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        let request = self.run_request(size, align);
        self.on_nodes(node, |keeper| {
            let taken = match self.take_last_freed(&keeper, request) {
                Some(head) => Ok(head),
                None => self.memory.take_run(keeper.node, request, keeper.id),
            };
            let head = taken.or_else(|error| {
                if error != AllocError::Exhausted {
                    return Err(error);
                }
                keeper.flush_all();
                keeper.drop_empty_spans();
                self.memory.take_any_run(keeper.node, request, keeper.id)
            })?;
            let block = self.build_large(&keeper, head, request.count, tag)?;
            self.memory.relieve(keeper.node, keeper.id, request.count, self.upkeep.kept_bytes());
            Ok(block)
        })
    }

    /// Claims the slices of the large block that was freed last, if it had this size. Its slices
    /// are most often the lowest free run. A search for the lowest free run would need as much
    /// time as the rest of the call.
    #[inline]
    fn take_last_freed(&self, keeper: &Keeper<'_>, request: RunRequest) -> Option<usize> {
        let [head, count] = &keeper.record.last_freed;
        if count.load(Relaxed) as usize != request.count {
            return None;
        }
        count.store(0, Relaxed);
        let head = (head.load(Relaxed) as usize).checked_sub(1)?;
        self.memory.take_this_run(keeper.node, head..head + request.count, request, keeper.id)
    }

    /// The slices that a large block of `size` bytes needs.
    fn run_request(&self, size: usize, align: usize) -> RunRequest {
        let count = size.div_ceil(SLICE).max(1);
        // Debug mode writes to all slices.
        let bytes = if self.debug.is_some() { count * SLICE } else { size.max(1) };
        RunRequest { count, align: align.div_ceil(SLICE), bytes }
    }

    /// Like [`Heap::alloc`], but the heap does not grow: the block is a run of slices in pages
    /// that were used before. For callers that have another source of large blocks, but prefer
    /// idle memory of this heap. Needs no system call with external pages; otherwise needs one if
    /// the heap has given memory of these pages back to the kernel.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`]; also [`AllocError::Exhausted`] if the heap would have to grow.
    /// The call flushes no thread's cache before it returns this error.
    ///
    /// ```
    /// use haul_heap::{AllocError, Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let megabyte = Request::new(1 << 20);
    /// assert_eq!(heap.alloc_held(megabyte), Err(AllocError::Exhausted));
    /// let block = heap.alloc(megabyte)?;
    /// // SAFETY: allocated here, and not used again.
    /// unsafe { heap.free(block) }?;
    /// assert!(heap.alloc_held(megabyte).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_held(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        let Request { size, align, node, tag } = request;
        self.check(size, align, node)?;
        let keeper = self.keeper(node.0 as usize)?;
        self.sealed(size, |padded| {
            let request = self.run_request(padded, align);
            let head = self.memory.take_held_run(keeper.node, request, keeper.id)?;
            self.build_large(&keeper, head, request.count, tag)
        })
    }

    /// Turns claimed slices into a live block.
    fn build_large(
        &self,
        keeper: &Keeper<'_>,
        head: usize,
        count: usize,
        tag: Tag,
    ) -> Result<NonNull<u8>, AllocError> {
        step!("large.alloc.after_take");
        let owner = (self.process(), tag.0);
        slice::build_large(self.memory.tables.slices(), head..head + count, owner, keeper.id);
        self.pointer(Offset::new((head * SLICE) as u64)).ok_or(AllocError::Exhausted)
    }

    /// Frees the large block `found`. If several threads free the same block, one call succeeds.
    pub(super) fn free_large(&self, found: &Found) -> Result<(), Misuse> {
        if self.debug.is_some() {
            self.check_freed(found)?;
        }
        let Ok(keeper) = self.keeper(self.row_of(found.offset)) else {
            // Without a cache the block cannot be taken apart, so it stays live.
            return Err(found.misuse(Fault::Scribbled));
        };
        let head = found.offset / SLICE;
        let run = head..head + found.bytes / SLICE;
        let slices = self.memory.tables.slices();
        if !slice::seize(slices, run.clone(), found.word, keeper.id) {
            return Err(found.misuse(Fault::Double));
        }
        let pieces = slice::block_pieces(slices, &run);
        let pieces = pieces.saturating_sub(self.memory.pool_pieces(&run));
        slice::dissolve(slices, run.clone(), keeper.id);
        step!("large.free.before_note");
        self.memory.count_freed(&run, pieces);
        self.memory.note_turn(&run);
        keeper.record.last_freed[0].store(head as u32 + 1, Relaxed);
        keeper.record.last_freed[1].store(run.len() as u32, Relaxed);
        self.memory.note_freed(&run, pieces);
        Ok(())
    }
}
