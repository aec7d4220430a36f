//! Buffers whose bytes an engine can access while the program does not: borrowed in a scope,
//! owned, or borrowed for ever.

use std::sync::Arc;

/// A buffer as addresses. While it exists, the buffer itself does not.
#[derive(Clone, Copy, Debug)]
pub struct RawBuffer {
    /// The first byte.
    pub start: *mut u8,
    /// The number of bytes.
    pub length: usize,
    /// The number of bytes that are allocated.
    pub capacity: usize,
}

// SAFETY: a raw buffer stands for a buffer that may be sent to another thread.
unsafe impl Send for RawBuffer {}
// SAFETY: nothing is accessed through a shared raw buffer.
unsafe impl Sync for RawBuffer {}

/// Bytes that an engine can read: `&[u8]`, `&mut [u8]`, `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`.
///
/// # Safety
/// Between [`into_raw`](Self::into_raw) and [`from_raw`](Self::from_raw), the bytes must stay at
/// their address and no other code may write them, even if `from_raw` is never called; for a
/// borrowed buffer, this holds while its lifetime lasts. Another thread may read them, and another
/// thread may call `from_raw` and drop the buffer: a handle may be dropped before its operation has
/// ended.
pub unsafe trait Buffer: Sized {
    /// Takes the buffer apart.
    fn into_raw(self) -> RawBuffer;

    /// Puts the buffer together again.
    ///
    /// # Safety
    /// `raw` is from `into_raw` of this type, and is used only once.
    unsafe fn from_raw(raw: RawBuffer) -> Self;
}

/// Bytes that an engine can write: `&mut [u8]`, `Vec<u8>`, `Box<[u8]>`.
///
/// # Safety
/// Between `into_raw` and `from_raw`, no other code may access the bytes, and another thread may
/// write them.
pub unsafe trait Target: Buffer {}

// SAFETY: the bytes are borrowed, and a shared borrow allows no writes.
unsafe impl Buffer for &[u8] {
    fn into_raw(self) -> RawBuffer {
        let (start, length) = (self.as_ptr().cast_mut(), self.len());
        RawBuffer { start, length, capacity: length }
    }

    unsafe fn from_raw(raw: RawBuffer) -> Self {
        // SAFETY: the parts are of such a slice, whose lifetime is in the type.
        unsafe { std::slice::from_raw_parts(raw.start, raw.length) }
    }
}

// SAFETY: the bytes are borrowed exclusively.
unsafe impl Buffer for &mut [u8] {
    fn into_raw(self) -> RawBuffer {
        let (length, start) = (self.len(), self.as_mut_ptr());
        RawBuffer { start, length, capacity: length }
    }

    unsafe fn from_raw(raw: RawBuffer) -> Self {
        // SAFETY: the parts are of such a slice, whose lifetime is in the type.
        unsafe { std::slice::from_raw_parts_mut(raw.start, raw.length) }
    }
}

// SAFETY: the bytes are borrowed exclusively.
unsafe impl Target for &mut [u8] {}

// SAFETY: the allocation belongs to the raw buffer, and is leaked with it.
unsafe impl Buffer for Vec<u8> {
    fn into_raw(self) -> RawBuffer {
        let mut kept = std::mem::ManuallyDrop::new(self);
        RawBuffer { start: kept.as_mut_ptr(), length: kept.len(), capacity: kept.capacity() }
    }

    unsafe fn from_raw(raw: RawBuffer) -> Self {
        // SAFETY: the parts are of such a vector.
        unsafe { Self::from_raw_parts(raw.start, raw.length, raw.capacity) }
    }
}

// SAFETY: the allocation belongs to the raw buffer.
unsafe impl Target for Vec<u8> {}

// SAFETY: the allocation belongs to the raw buffer, and is leaked with it.
unsafe impl Buffer for Box<[u8]> {
    fn into_raw(self) -> RawBuffer {
        let length = self.len();
        RawBuffer { start: Self::into_raw(self).cast(), length, capacity: length }
    }

    unsafe fn from_raw(raw: RawBuffer) -> Self {
        // SAFETY: the parts are of such a box.
        unsafe { Self::from_raw(std::ptr::slice_from_raw_parts_mut(raw.start, raw.length)) }
    }
}

// SAFETY: the allocation belongs to the raw buffer.
unsafe impl Target for Box<[u8]> {}

// SAFETY: the raw buffer counts as one owner, and shared bytes are never written.
unsafe impl Buffer for Arc<[u8]> {
    fn into_raw(self) -> RawBuffer {
        let length = self.len();
        RawBuffer { start: Self::into_raw(self).cast_mut().cast(), length, capacity: length }
    }

    unsafe fn from_raw(raw: RawBuffer) -> Self {
        // SAFETY: the parts are of such an `Arc`.
        unsafe { Self::from_raw(std::ptr::slice_from_raw_parts(raw.start, raw.length)) }
    }
}
