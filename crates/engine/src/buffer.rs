//! Buffers whose bytes an engine can access while the program does not: borrowed in a scope,
//! owned, or borrowed for ever.

use std::sync::Arc;

/// Bytes that an engine can read: `&[u8]`, `&mut [u8]`, `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`.
///
/// # Safety
/// As long as the buffer is neither used nor dropped, the bytes must stay at their address,
/// wherever the buffer itself is moved to, and no other code may write them, even if the buffer is
/// leaked; for a borrowed buffer, this holds while its lifetime lasts. Another thread may read
/// them, and another thread may drop the buffer: a handle may be dropped before its operation has
/// ended.
pub unsafe trait Buffer: Sized {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// Bytes that an engine can write: `&mut [u8]`, `Vec<u8>`, `Box<[u8]>`.
///
/// # Safety
/// As long as the buffer is neither used nor dropped, no other code may access the bytes, and
/// another thread may write them.
pub unsafe trait Target: Buffer {
    /// The bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

// SAFETY: the bytes are borrowed, and a shared borrow allows no writes.
unsafe impl Buffer for &[u8] {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: the bytes are borrowed exclusively.
unsafe impl Buffer for &mut [u8] {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: the bytes are borrowed exclusively.
unsafe impl Target for &mut [u8] {
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: the allocation belongs to the buffer, and is leaked with it.
unsafe impl Buffer for Vec<u8> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: the allocation belongs to the buffer alone.
unsafe impl Target for Vec<u8> {
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: the allocation belongs to the buffer, and is leaked with it.
unsafe impl Buffer for Box<[u8]> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: the allocation belongs to the buffer alone.
unsafe impl Target for Box<[u8]> {
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: the buffer counts as one owner, and shared bytes are never written.
unsafe impl Buffer for Arc<[u8]> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}
