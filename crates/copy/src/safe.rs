//! Copies and fills over slices. All functions are safe unless their name ends in `_raw`.

use core::ops::Range;

use crate::{dispatch, raw};

/// What the caller knows about the use of the target after the copy, or of the source before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing is known: [`Thresholds`](crate::Thresholds) decide by the size.
    #[default]
    Unknown,
    /// The target is read soon, so it should end up in the caches at any size.
    ReadSoon,
    /// A device reads the target, or a core reads it much later, so the copy should bypass the
    /// caches.
    Streamed,
    /// One core passes the data to another: another core has just written the source, or has read
    /// the target and will read it again. The lines are therefore in that core's caches. In other
    /// respects, this hint is like [`Hint::ReadSoon`].
    Handover,
}

/// The smallest size in bytes for which [`Hint::Streamed`] bypasses the caches. Below this size,
/// the fence that ends a streamed copy costs more than the lines that a plain copy would
/// displace.
const STREAMED_MIN: usize = 4096;
/// The smallest size in bytes for which [`Hint::Handover`] uses `rep movsb`, if the policy uses
/// `rep movsb` at all. `rep movsb` does not read the target's lines from the other core; from
/// this size on, that saving outweighs the start-up time of `rep movsb`.
const HANDOVER_STRING_MIN: usize = 4096;

impl Hint {
    /// Like [`copy`], with this hint about the use of the data.
    ///
    /// # Panics
    /// If the lengths differ.
    ///
    /// ```
    /// use haul_copy::Hint;
    /// let source = vec![1; 1 << 20];
    /// let mut target = vec![0; 1 << 20];
    /// Hint::Streamed.copy(&mut target, &source);
    /// assert_eq!(target, source);
    /// ```
    pub fn copy(self, target: &mut [u8], source: &[u8]) {
        assert_same_length(target.len(), source.len());
        // SAFETY: both slices are `source.len()` bytes long.
        unsafe { self.copy_raw(target.as_mut_ptr(), source.as_ptr(), source.len()) }
    }

    /// Like [`fill`], with this hint about the use of the data.
    pub fn fill(self, target: &mut [u8], byte: u8) {
        // SAFETY: the slice is `target.len()` bytes long.
        unsafe { self.fill_raw(target.as_mut_ptr(), byte, target.len()) }
    }

    /// Like [`memmove`](crate::memmove), with this hint about the use of the data.
    ///
    /// # Safety
    /// The conditions of [`memcpy`](crate::memcpy) apply.
    #[inline]
    pub unsafe fn copy_raw(self, target: *mut u8, source: *const u8, length: usize) {
        // SAFETY: every function called here has the obligations of this one, which the caller
        // meets.
        unsafe {
            match self {
                Self::Streamed if length >= STREAMED_MIN => {
                    dispatch::stream_copy()(target, source, length);
                }
                Self::Handover if length >= HANDOVER_STRING_MIN => {
                    dispatch::handover_copy()(target, source, length);
                }
                Self::ReadSoon | Self::Handover if length > crate::small::SMALL_MAX => {
                    dispatch::cached_copy()(target, source, length);
                }
                _ => raw::memmove(target, source, length),
            }
        }
    }

    /// Like [`memset`](crate::memset), with this hint about the use of the data.
    ///
    /// # Safety
    /// The conditions of [`memset`](crate::memset) apply.
    #[inline]
    pub unsafe fn fill_raw(self, target: *mut u8, byte: u8, length: usize) {
        // SAFETY: every function called here has the obligations of this one, which the caller
        // meets.
        unsafe {
            match self {
                Self::Streamed if length >= STREAMED_MIN => {
                    dispatch::stream_fill()(target, i32::from(byte), length);
                }
                Self::ReadSoon | Self::Handover if length > crate::small::SMALL_MAX => {
                    dispatch::cached_fill()(target, i32::from(byte), length);
                }
                _ => raw::memset(target, byte, length),
            }
        }
    }
}

/// Copies `source` to `target`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_same_length(target.len(), source.len());
    // SAFETY: both slices are `source.len()` bytes long.
    unsafe { raw::memcpy(target.as_mut_ptr(), source.as_ptr(), source.len()) }
}

/// Copies an array, whose size the compiler knows. Up to 128 bytes, this is plain loads and stores
/// in the caller, under every policy; larger arrays are copied by [`copy`].
///
/// ```
/// let header = [7_u8; 20];
/// let mut target = [0_u8; 20];
/// haul_copy::copy_array(&mut target, &header);
/// assert_eq!(target, header);
///
/// // A part of a buffer becomes an array by `first_chunk_mut` and its relatives.
/// let mut packet = [0_u8; 60];
/// haul_copy::copy_array(packet.first_chunk_mut().unwrap(), &header);
/// assert_eq!(packet[..20], header);
/// ```
#[inline(always)]
pub fn copy_array<const N: usize>(target: &mut [u8; N], source: &[u8; N]) {
    /// Above this size, the compiler would call the C library.
    const PLAIN_MAX: usize = 128;
    if N <= PLAIN_MAX {
        *target = *source;
    } else {
        copy(target, source);
    }
}

/// Copies the range `source` of `buffer` to the index `target` of `buffer`. The two ranges may
/// overlap.
///
/// # Panics
/// If the source range or the target range is not inside `buffer`.
#[inline]
pub fn copy_within(buffer: &mut [u8], source: Range<usize>, target: usize) {
    let length = buffer[source.clone()].len();
    assert!(
        target <= buffer.len() && length <= buffer.len() - target,
        "cannot copy {length} bytes to index {target}: the buffer has {} bytes",
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
    // SAFETY: the slice is `target.len()` bytes long.
    unsafe { raw::memset(target.as_mut_ptr(), byte, target.len()) }
}

#[inline]
fn assert_same_length(target: usize, source: usize) {
    assert!(
        target == source,
        "cannot copy {source} bytes into a target of {target} bytes: the lengths must be equal"
    );
}
