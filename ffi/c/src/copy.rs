//! memcpy, memmove and memset with the C library's signatures, their variants with a hint, and a
//! call that makes all copies of a burst.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use haul_copy::Hint;
use haul_rust::forward::{self, Copier, Part};

/// The use of the target after a copy. A hint changes the method of the copy, never its result.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_hint {
    /// Unknown: the thresholds decide by the size.
    HAUL_HINT_UNKNOWN = 0,
    /// The target is read soon: the copy should leave it in the caches, whatever its size.
    HAUL_HINT_READ_SOON = 1,
    /// A device reads the target, or a thread reads it much later: the copy should bypass the
    /// caches.
    HAUL_HINT_STREAMED = 2,
    /// The bytes go from core to core: another core has just written the source, or has read the
    /// target and will read it again. Otherwise like HAUL_HINT_READ_SOON.
    HAUL_HINT_HANDOVER = 3,
}

/// A hint from C, where an enumeration may hold any number.
pub type haul_hint_from_c = c_uint;

/// A number that is not a hint counts as [`Hint::Unknown`].
pub(crate) fn hint(number: haul_hint_from_c) -> Hint {
    match number {
        1 => Hint::ReadSoon,
        2 => Hint::Streamed,
        3 => Hint::Handover,
        _ => Hint::Unknown,
    }
}

const _: () = assert!(haul_hint::HAUL_HINT_UNKNOWN as c_uint == 0);
const _: () = assert!(haul_hint::HAUL_HINT_READ_SOON as c_uint == 1);
const _: () = assert!(haul_hint::HAUL_HINT_STREAMED as c_uint == 2);
const _: () = assert!(haul_hint::HAUL_HINT_HANDOVER as c_uint == 3);

/// The type of memcpy and memmove.
type CopyFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
/// The type of memset.
type SetFn = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;

// `haul_copy::c` defines the functions that are declared below, with these names and types.
const _: [CopyFn; 4] = [haul_copy::c::memcpy, haul_copy::c::memmove, haul_memcpy, haul_memmove];
const _: [CopyFn; 2] = [haul_copy::c::memmove_above_64, haul_memmove_above_64];
const _: [SetFn; 4] =
    [haul_copy::c::memset, haul_memset, haul_copy::c::memset_above_64, haul_memset_above_64];

unsafe extern "C" {
    /// Copies n bytes from source to target and returns target. Source and target may overlap, as
    /// in memmove. If n == 0, the pointers may have any value, NULL included.
    ///
    /// No allocation, no system call, no lock; async-signal-safe.
    ///
    /// # Safety
    /// source is readable and target writable for n bytes.
    pub fn haul_memcpy(target: *mut c_void, source: *const c_void, n: usize) -> *mut c_void;

    /// The same as haul_memcpy. The name shows a reader of the program that source and target
    /// overlap.
    ///
    /// # Safety
    /// source is readable and target writable for n bytes.
    pub fn haul_memmove(target: *mut c_void, source: *const c_void, n: usize) -> *mut c_void;

    /// Sets n bytes at target to the low 8 bits of byte and returns target. If n == 0, target may
    /// have any value, NULL included. Costs the same as haul_memcpy.
    ///
    /// # Safety
    /// target is writable for n bytes.
    pub fn haul_memset(target: *mut c_void, byte: c_int, n: usize) -> *mut c_void;

    /// The inline code of haul_memcpy and haul_memmove calls this above 64 bytes. A program should
    /// call haul_memcpy or haul_memmove: for 64 bytes or less this function accesses bytes
    /// outside of source and target.
    ///
    /// # Safety
    /// As for haul_memmove, and n is more than 64.
    pub fn haul_memmove_above_64(
        target: *mut c_void,
        source: *const c_void,
        n: usize,
    ) -> *mut c_void;

    /// The inline code of haul_memset calls this above 64 bytes. A program should call haul_memset:
    /// for 64 bytes or less this function writes bytes outside of target.
    ///
    /// # Safety
    /// As for haul_memset, and n is more than 64.
    pub fn haul_memset_above_64(target: *mut c_void, byte: c_int, n: usize) -> *mut c_void;
}

/// Like haul_memmove, but with a hint about the next use of the target. A number that is not a
/// hint counts as HAUL_HINT_UNKNOWN. The call includes a fence, so that after HAUL_HINT_STREAMED
/// other threads and devices see the bytes as after any other copy.
///
/// # Safety
/// source is readable and target writable for n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_memcpy_hinted(
    target: *mut c_void,
    source: *const c_void,
    n: usize,
    hint: haul_hint_from_c,
) -> *mut c_void {
    let hint = self::hint(hint);
    // SAFETY: the caller's promise.
    unsafe { hint.copy_raw(target.cast(), source.cast(), n) };
    target
}

/// One copy of a burst: n bytes from source to target.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_copy_part {
    /// The address that the bytes are copied to.
    pub target: *mut c_void,
    /// The address that the bytes are copied from.
    pub source: *const c_void,
    /// The number of bytes.
    pub n: usize,
}

// The layout of the two types is the same.
const _: () = assert!(size_of::<haul_copy_part>() == size_of::<Part>());
const _: () = assert!(offset_of!(haul_copy_part, target) == offset_of!(Part, target));
const _: () = assert!(offset_of!(haul_copy_part, source) == offset_of!(Part, source));
const _: () = assert!(offset_of!(haul_copy_part, n) == offset_of!(Part, length));

/// Copies count parts in one call, in their order and each like haul_memmove: the copies of a
/// burst of packets. If count == 0, parts may be NULL.
///
/// No allocation, no system call, no lock; async-signal-safe.
///
/// # Safety
/// parts has count elements. The source of each part is readable, and its target writable, for n
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_copy_batch(parts: *const haul_copy_part, count: usize) {
    if parts.is_null() || count == 0 {
        return;
    }
    // SAFETY: `count` parts by the caller's promise; both types have the same layout, as asserted.
    let parts = unsafe { std::slice::from_raw_parts(parts.cast::<Part>(), count) };
    // SAFETY: the caller's promise.
    unsafe { Copier::new(forward::CopyMethod::Haul).copy_batch(parts) };
}

/// Like haul_memset, but with a hint about the next use of the target; see haul_memcpy_hinted.
///
/// # Safety
/// target is writable for n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_memset_hinted(
    target: *mut c_void,
    byte: c_int,
    n: usize,
    hint: haul_hint_from_c,
) -> *mut c_void {
    let hint = self::hint(hint);
    let [byte, ..] = byte.to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe { hint.fill_raw(target.cast(), byte, n) };
    target
}
