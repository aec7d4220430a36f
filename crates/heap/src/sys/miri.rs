//! Address space under Miri: a zeroed allocation replaces a reservation. The allocation is never
//! freed.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed};

use super::Errno;

/// The largest alignment in bytes that rustc, and so Miri, supports. Tests under Miri request no
/// larger alignment.
const ALIGN_MAX: usize = 1 << 29;

/// Like `memory::reserve`, but the range is readable and writable at once.
pub(super) fn reserve(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Errno> {
    let alignment = alignment.min(ALIGN_MAX);
    let layout = Layout::from_size_align(bytes, alignment).map_err(|_| Errno::NOMEM)?;
    // SAFETY: callers reserve at least one byte, so the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)
}
