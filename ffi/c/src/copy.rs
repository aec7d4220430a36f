//! memcpy, memmove and memset with the C library's signatures, and the same with a hint.

use std::ffi::{c_int, c_uint, c_void};

use haul_copy::Hint;

/// What happens to the target after a copy. It never changes what is copied, only how.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_hint {
    /// Not known: the thresholds decide by the size.
    HAUL_HINT_UNKNOWN = 0,
    /// It is read soon: it should end up in the caches, whatever its size.
    HAUL_HINT_READ_SOON = 1,
    /// It is streamed past, by a device or much later: it should leave the caches alone.
    HAUL_HINT_STREAMED = 2,
    /// Handed from core to core: another core has just written the source, or read the target and
    /// will again. Else as HAUL_HINT_READ_SOON.
    HAUL_HINT_HANDOVER = 3,
}

/// A hint as it comes from C, where an enumeration may hold any number.
pub type haul_hint_from_c = c_uint;

/// A number that is no hint is as good as none.
fn hint(number: haul_hint_from_c) -> Hint {
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

// What is declared below is defined there, under these names and with these types.
const _: [CopyFn; 4] = [haul_copy::c::memcpy, haul_copy::c::memmove, haul_memcpy, haul_memmove];
const _: [CopyFn; 2] = [haul_copy::c::memmove_above_64, haul_memmove_above_64];
const _: [SetFn; 4] =
    [haul_copy::c::memset, haul_memset, haul_copy::c::memset_above_64, haul_memset_above_64];

unsafe extern "C" {
    /// Copies n bytes from source to target and returns target. The two may overlap, as in memmove;
    /// with n == 0 the pointers may be anything, NULL too.
    ///
    /// No allocation, no system call, no lock; async-signal-safe.
    ///
    /// # Safety
    /// source is readable and target writable for n bytes.
    pub fn haul_memcpy(target: *mut c_void, source: *const c_void, n: usize) -> *mut c_void;

    /// The same as haul_memcpy, under the name that tells a reader of an overlap.
    ///
    /// # Safety
    /// source is readable and target writable for n bytes.
    pub fn haul_memmove(target: *mut c_void, source: *const c_void, n: usize) -> *mut c_void;

    /// Sets n bytes at target to the low 8 bits of byte and returns target. With n == 0 target may
    /// be anything, NULL too. Costs as haul_memcpy does.
    ///
    /// # Safety
    /// target is writable for n bytes.
    pub fn haul_memset(target: *mut c_void, byte: c_int, n: usize) -> *mut c_void;

    /// What haul_memcpy and haul_memmove as inline code call above 64 bytes. Call those instead:
    /// with 64 bytes or less this touches bytes outside of source and target.
    ///
    /// # Safety
    /// As haul_memmove, and n is more than 64.
    pub fn haul_memmove_above_64(
        target: *mut c_void,
        source: *const c_void,
        n: usize,
    ) -> *mut c_void;

    /// What haul_memset as inline code calls above 64 bytes. Call that instead: with 64 bytes or
    /// less this touches bytes outside of target.
    ///
    /// # Safety
    /// As haul_memset, and n is more than 64.
    pub fn haul_memset_above_64(target: *mut c_void, byte: c_int, n: usize) -> *mut c_void;
}

/// haul_memmove, told what happens to the target next. A number that is no hint counts as
/// HAUL_HINT_UNKNOWN. After HAUL_HINT_STREAMED the bytes are visible to other threads and devices
/// like those of any copy: the fence is inside.
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
    unsafe { haul_copy::copy_hinted_raw(target.cast(), source.cast(), n, hint) };
    target
}

/// haul_memset, told what happens to the target next; see haul_memcpy_hinted.
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
    unsafe { haul_copy::fill_hinted_raw(target.cast(), byte, n, hint) };
    target
}
