//! Slices in, nothing to promise.

use core::ops::Range;

use crate::{dispatch, raw};

/// What happens to the target after the copy, or happened to the source before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Not known: [`Thresholds`](crate::Thresholds) decide by the size.
    #[default]
    Unknown,
    /// It is read soon: it should end up in the caches, whatever its size.
    ReadSoon,
    /// It is streamed past, by a device or much later: it should leave the caches alone.
    Streamed,
    /// Handed from core to core: another core has just written the source, or read the target and
    /// will again, so lines come from its caches or are taken from them. Else as
    /// [`Hint::ReadSoon`].
    Handover,
}

/// The smallest size for which [`Hint::Streamed`] goes past the caches: below, the fence that ends
/// a streamed copy costs more than the lines that it would have displaced.
const STREAMED_MIN: usize = 4096;
/// The smallest size for which [`Hint::Handover`] goes by `rep movsb` where that is in use: what it
/// saves, the lines of the target that need not be read from the other core, makes up for its
/// start.
const HANDOVER_STRING_MIN: usize = 4096;

/// Copies `source` to `target`.
///
/// # Panics
/// The lengths differ.
#[inline]
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_same_length(target.len(), source.len());
    // SAFETY: both slices have that length.
    unsafe { raw::memcpy(target.as_mut_ptr(), source.as_ptr(), source.len()) }
}

/// Copies the bytes at `source` inside `buffer` to `target` inside it; the two may overlap.
///
/// # Panics
/// `source` or the target range is not inside `buffer`.
#[inline]
pub fn copy_within(buffer: &mut [u8], source: Range<usize>, target: usize) {
    let length = buffer[source.clone()].len();
    assert!(
        target <= buffer.len() && length <= buffer.len() - target,
        "{length} bytes at {target} do not fit into a buffer of {} bytes",
        buffer.len()
    );
    let start = buffer.as_mut_ptr();
    // SAFETY: `source.start` was just checked to be inside the buffer.
    let from = unsafe { start.add(source.start) };
    // SAFETY: `target` was just checked to be inside the buffer.
    let to = unsafe { start.add(target) };
    // SAFETY: both ranges were just checked to be inside the buffer.
    unsafe { raw::memmove(to, from, length) }
}

/// Sets every byte of `target` to `byte`.
#[inline]
pub fn fill(target: &mut [u8], byte: u8) {
    // SAFETY: the slice has that length.
    unsafe { raw::memset(target.as_mut_ptr(), byte, target.len()) }
}

/// [`copy`], told what happens to the target next.
///
/// # Panics
/// The lengths differ.
///
/// ```
/// use haul_copy::{Hint, copy_hinted};
/// let source = vec![1; 1 << 20];
/// let mut target = vec![0; 1 << 20];
/// copy_hinted(&mut target, &source, Hint::Streamed);
/// assert_eq!(target, source);
/// ```
pub fn copy_hinted(target: &mut [u8], source: &[u8], hint: Hint) {
    assert_same_length(target.len(), source.len());
    // SAFETY: both slices have that length.
    unsafe { copy_hinted_raw(target.as_mut_ptr(), source.as_ptr(), source.len(), hint) }
}

/// [`fill`], told what happens to the target next.
pub fn fill_hinted(target: &mut [u8], byte: u8, hint: Hint) {
    // SAFETY: the slice has that length.
    unsafe { fill_hinted_raw(target.as_mut_ptr(), byte, target.len(), hint) }
}

/// [`raw::memmove`], told what happens to the target next.
///
/// # Safety
/// As [`raw::memcpy`].
pub unsafe fn copy_hinted_raw(target: *mut u8, source: *const u8, length: usize, hint: Hint) {
    // SAFETY: the caller's promise, for each of the three.
    unsafe {
        match hint {
            Hint::Streamed if length >= STREAMED_MIN => {
                dispatch::stream_copy()(target, source, length);
            }
            Hint::Handover if length >= HANDOVER_STRING_MIN => {
                dispatch::handover_copy()(target, source, length);
            }
            Hint::ReadSoon | Hint::Handover if length > crate::small::SMALL_MAX => {
                dispatch::cached_copy()(target, source, length);
            }
            _ => raw::memmove(target, source, length),
        }
    }
}

/// [`raw::memset`], told what happens to the target next.
///
/// # Safety
/// As [`raw::memset`].
pub unsafe fn fill_hinted_raw(target: *mut u8, byte: u8, length: usize, hint: Hint) {
    // SAFETY: the caller's promise, for each of the three.
    unsafe {
        match hint {
            Hint::Streamed if length >= STREAMED_MIN => {
                dispatch::stream_fill()(target, i32::from(byte), length);
            }
            Hint::ReadSoon | Hint::Handover if length > crate::small::SMALL_MAX => {
                dispatch::cached_fill()(target, i32::from(byte), length);
            }
            _ => raw::memset(target, byte, length),
        }
    }
}

#[inline]
fn assert_same_length(target: usize, source: usize) {
    assert!(target == source, "a copy of {source} bytes into a target of {target} bytes");
}
