//! Realloc: within the slot; else, for a large block, with the slices behind it; else by a move.

use core::ptr::NonNull;

use super::{Found, Heap};
use crate::fault::{AllocError, Misuse};
use crate::layout::SLICE;
use crate::protocol::class::SLOT_SIZE_MAX;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::request::{Node, Request, Tag};

/// Why a block was not resized. The block is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReallocError {
    /// The new size could not be allocated.
    Alloc(AllocError),
    /// The pointer names no live block.
    Misuse(Misuse),
}

impl core::fmt::Display for ReallocError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Alloc(error) => error.fmt(f),
            Self::Misuse(misuse) => misuse.fmt(f),
        }
    }
}

impl core::error::Error for ReallocError {}

/// A block that shrinks below this fraction of its slot moves to a smaller slot.
const KEPT_PART: usize = 2;

impl Heap {
    /// Changes the size of a block to `size` bytes, at an address that is a multiple of `align`.
    /// The block stays in place if the new size fits there or, for a large block, if the
    /// following slices are free. Otherwise its content moves to a new block on the same node and
    /// with the same tag.
    ///
    /// # Errors
    /// A [`ReallocError`]; the block is then unchanged.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, the caller owns it, and after success uses only the
    /// returned block.
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// // SAFETY: allocated here; from now on only the returned block is used.
    /// let longer = unsafe { heap.realloc(block, 10_000, 64) }?;
    /// // SAFETY: as above.
    /// assert!(unsafe { heap.usable_size(longer) }? >= 10_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn realloc(
        &self,
        block: NonNull<u8>,
        size: usize,
        align: usize,
    ) -> Result<NonNull<u8>, ReallocError> {
        let found = self.find(block.as_ptr().addr()).map_err(|misuse| {
            self.report(&misuse);
            ReallocError::Misuse(misuse)
        })?;
        let node = Node::new(self.memory.node_of(found.offset / SLICE) as u8);
        self.check(size, align, node).map_err(ReallocError::Alloc)?;
        if found.address.is_multiple_of(align) && self.resize_in_place(&found, size) {
            return Ok(block);
        }
        // Computed before the target is allocated, because otherwise an error would require a
        // free of the target.
        let usable = match self.debug {
            None => found.bytes,
            Some(_) => self
                .asked(&found)
                .inspect_err(|misuse| self.report(misuse))
                .map_err(ReallocError::Misuse)?,
        };
        let target = self
            .alloc(Request::new(size).aligned(align).on_node(node).tagged(Tag(found.tag)))
            .or_else(|_| self.alloc(Request::new(size).aligned(align).tagged(Tag(found.tag))));
        let target = match target {
            Ok(target) => target,
            // A block that shrinks may stay in place.
            Err(_)
                if self.debug.is_none()
                    && size <= found.bytes
                    && found.address.is_multiple_of(align) =>
            {
                return Ok(block);
            }
            Err(error) => return Err(ReallocError::Alloc(error)),
        };
        let length = size.min(usable);
        // If a peer corrupted the metadata, the target can be a block in use, even this one. So the
        // copy may overlap.
        // SAFETY: both lie in the heap with at least this many bytes.
        unsafe { block.copy_to(target, length) };
        // SAFETY: the caller owns the block and does not use it any more.
        let Err(misuse) = (unsafe { self.free(block) }) else { return Ok(target) };
        // SAFETY: allocated above, and no other code knows it.
        let _ = unsafe { self.free(target) };
        Err(ReallocError::Misuse(misuse))
    }

    /// Changes the size of a block to `size` bytes in place. Returns false and leaves the block
    /// unchanged if it would have to move, because of the new size or of `align`. Also returns
    /// false if the new size would use only a small part of the slot, and for any block in debug
    /// mode, because such blocks should move.
    ///
    /// # Errors
    /// [`Misuse`] if the pointer names no live block.
    ///
    /// # Safety
    /// If `block` is a live block of this heap, the caller owns it, and after success does not use
    /// the bytes beyond `size`.
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(1 << 20))?;
    /// // SAFETY: allocated here, and not used beyond the new size.
    /// assert!(unsafe { heap.resize(block, 2 << 20, 64) }?, "the slices behind it are free");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn resize(
        &self,
        block: NonNull<u8>,
        size: usize,
        align: usize,
    ) -> Result<bool, Misuse> {
        let found = self.find(block.as_ptr().addr()).inspect_err(|misuse| self.report(misuse))?;
        let is_possible = size <= self.data_bytes
            && align.is_power_of_two()
            && found.address.is_multiple_of(align);
        Ok(is_possible && self.resize_in_place(&found, size))
    }

    fn resize_in_place(&self, found: &Found, size: usize) -> bool {
        if self.debug.is_some() {
            // In debug mode the block moves, so that uses of the old pointer are detected.
            return false;
        }
        match found.class {
            Some(_) => size <= found.bytes && size >= found.bytes / KEPT_PART,
            // If the new size fits a slot, the block moves from its slices to a slot.
            None if size <= SLOT_SIZE_MAX => false,
            None => self.resize_large(found, size),
        }
    }

    /// Changes the number of slices in a large block for `size` bytes: frees its last slices, or
    /// claims the slices that follow.
    fn resize_large(&self, found: &Found, size: usize) -> bool {
        let (head, old, count) = (found.offset / SLICE, found.bytes / SLICE, size.div_ceil(SLICE));
        if count == old {
            self.memory.note_grown(head + old - 1, size);
            return true;
        }
        let Ok(keeper) = self.keeper(self.row_of(found.offset)) else { return false };
        let (slices, me) = (self.memory.tables.slices(), keeper.id);
        let owner = (found.process, found.tag);
        if count < old {
            if !slice::seize(slices, head..head + old, found.word, me) {
                return false;
            }
            let rest = head + count..head + old;
            let pieces = self.memory.pieces_of(rest.clone());
            slice::cut(slices, head..head + old, count, me);
            slice::build_large(slices, head..head + count, owner, me);
            step!("large.cut.before_note");
            self.memory.count_freed(&rest, pieces);
            self.memory.note_turn(&rest);
            self.memory.note_freed(&rest, pieces);
            return true;
        }
        let pages = self.memory.pages_of(keeper.node);
        let more = head + old..head + count;
        if more.end > pages.end * crate::layout::PAGE_SLICES
            || self.memory.claim_ready(more.clone(), size, me).is_err()
        {
            return false;
        }
        step!("large.grow.after_claim");
        if !slice::seize(slices, head..head + count, found.word, me) {
            self.memory.give_back(more, me);
            return false;
        }
        step!("large.grow.after_seize");
        slice::build_large(slices, head..head + count, owner, me);
        self.memory.relieve(keeper.node, me, count - old, self.upkeep.kept_bytes());
        true
    }
}
