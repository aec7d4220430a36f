//! Prepared requests for blocks of one size, alignment, node and tag.

use core::ptr::NonNull;

use super::Heap;
use crate::fault::AllocError;
use crate::protocol::class;
use crate::protocol::word::SliceWord;
use crate::request::Request;

/// A prepared request for blocks of one size, alignment, node and tag: see [`Heap::handle`].
#[derive(Clone, Copy)]
pub struct Handle<'a> {
    heap: &'a Heap,
    class: Option<usize>,
    request: Request,
}

impl Heap {
    /// Prepares a request: computes its class once for all allocations.
    ///
    /// # Errors
    /// [`AllocError::BadAlign`], [`AllocError::TooLarge`] or [`AllocError::NoNode`], as for an
    /// allocation.
    pub fn handle(&self, request: Request) -> Result<Handle<'_>, AllocError> {
        let Request { size, align, node, .. } = request;
        self.check(size, align, node)?;
        Ok(Handle { heap: self, class: class::of(size, align), request })
    }
}

impl Handle<'_> {
    /// Allocates a block for the prepared request. Like [`Heap::alloc`], but does not compute the
    /// class.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`].
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().build()?;
    /// let frames = heap.handle(Request::new(1500))?;
    /// let [first, second] = [frames.alloc()?, frames.alloc()?];
    /// assert_ne!(first, second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        let Request { size, align, node, tag } = self.request;
        match self.class {
            Some(class) => match self.heap.pop(SliceWord::form_of_span(class), node, tag) {
                Some(block) => Ok(block),
                None => self.heap.pop_slow(class, size, node, tag).result(),
            },
            None => self.heap.alloc_other(size, align, node, tag).result(),
        }
    }
}
