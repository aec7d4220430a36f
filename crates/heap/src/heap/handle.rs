//! Prepared requests of one kind.

use core::ptr::NonNull;

use super::Heap;
use crate::fault::AllocError;
use crate::protocol::class;
use crate::protocol::word::SliceWord;
use crate::request::{Node, Tag};

/// A prepared request of one kind: see [`Heap::handle`].
#[derive(Clone, Copy)]
pub struct Handle<'a> {
    heap: &'a Heap,
    class: Option<usize>,
    size: usize,
    align: usize,
    node: Node,
    tag: Tag,
}

impl Heap {
    /// Prepares a request of one kind: computes its class once.
    ///
    /// # Errors
    /// [`AllocError::BadAlign`], [`AllocError::TooLarge`] or [`AllocError::NoNode`], as for an
    /// allocation.
    pub fn handle(
        &self,
        size: usize,
        align: usize,
        node: Node,
        tag: Tag,
    ) -> Result<Handle<'_>, AllocError> {
        self.check(size, align, node)?;
        Ok(Handle { heap: self, class: class::of(size, align), size, align, node, tag })
    }
}

impl Handle<'_> {
    /// Allocates a block of this kind. As [`Heap::alloc_tagged`], without computing the class.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        match self.class {
            Some(class) => match self.heap.pop(SliceWord::form_of_span(class), self.node, self.tag)
            {
                Some(block) => Ok(block),
                None => self.heap.pop_slow(class, self.size, self.node, self.tag).result(),
            },
            None => self.heap.alloc_other(self.size, self.align, self.node, self.tag).result(),
        }
    }
}
