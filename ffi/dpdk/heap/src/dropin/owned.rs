//! A block of one of the heaps.

use core::ffi::c_int;
use core::ptr::NonNull;

use super::{ALIGN_MIN, Dropin, GROWN_BYTES_MAX, SocketHeap};
use crate::extent::PAGE;

/// A block of one of the heaps.
pub(crate) struct Owned<'a> {
    pub(super) owner: &'a SocketHeap,
    pub(super) pointer: NonNull<u8>,
    pub(super) bytes: usize,
}

impl Owned<'_> {
    /// The size of the block in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Whether the block is on the socket that a request for `socket` names.
    pub(crate) fn is_on(&self, dropin: &Dropin, socket: c_int) -> bool {
        dropin.is_any(socket) || socket == self.owner.range.socket
    }

    /// Resizes the block within the heap, and moves it if necessary. On failure returns `None` and
    /// changes nothing.
    ///
    /// # Safety
    ///
    /// If a new pointer is returned, no thread uses the old pointer afterwards.
    pub(crate) unsafe fn resize(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if align > PAGE {
            return None;
        }
        let (heap, align) = (&self.owner.heap, align.max(ALIGN_MIN));
        if bytes > GROWN_BYTES_MAX {
            // SAFETY: as the caller promises; the block is live.
            let stays = unsafe { heap.resize(self.pointer, bytes, align) };
            return stays.is_ok_and(|stays| stays).then_some(self.pointer);
        }
        // SAFETY: as the caller promises; the block is live.
        unsafe { heap.realloc(self.pointer, bytes, align) }.ok()
    }
}
