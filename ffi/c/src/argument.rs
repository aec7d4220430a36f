//! Converts text and bytes from C, and results and objects to C.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::status::haul_status;

/// A C string as UTF-8; an error if it is NULL or not UTF-8.
///
/// # Safety
/// `text` is NULL or a string that lives and does not change for `'a`.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, haul_status> {
    if text.is_null() {
        return Err(haul_status::HAUL_ERROR_NULL);
    }
    // SAFETY: not NULL, so a string by the caller's promise, which also says how long the string
    // lives.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| haul_status::HAUL_ERROR_ARGUMENT)
}

/// Bytes from C. `data` may be NULL if `size` is 0.
///
/// # Safety
/// `data` is NULL or has `size` readable bytes that live and do not change for `'a`.
pub(crate) unsafe fn bytes_of<'a>(
    data: *const c_void,
    size: usize,
) -> Result<&'a [u8], haul_status> {
    match size {
        0 => Ok(&[]),
        _ if data.is_null() => Err(haul_status::HAUL_ERROR_NULL),
        _ if size > isize::MAX as usize => Err(haul_status::HAUL_ERROR_ARGUMENT),
        // SAFETY: not NULL, so `size` readable bytes by the caller's promise, which also says how
        // long they live; bytes need no alignment, and `size` is at most what a slice may have.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// Makes a value and writes it to `target` on success. Returns an error and makes nothing if
/// `target` is NULL.
///
/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn put<T>(
    target: *mut T,
    make: impl FnOnce() -> Result<T, haul_status>,
) -> haul_status {
    if target.is_null() {
        return haul_status::HAUL_ERROR_NULL;
    }
    match make() {
        Ok(made) => {
            // SAFETY: not NULL, so writable by the caller's promise, and aligned as C aligns a T.
            unsafe { ptr::write(target, made) };
            haul_status::HAUL_OK
        }
        Err(status) => status,
    }
}

/// Makes an object and passes it to C, which returns it to [`take`].
///
/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn give<T>(
    target: *mut *mut T,
    make: impl FnOnce() -> Result<T, haul_status>,
) -> haul_status {
    // SAFETY: the caller's promise.
    unsafe { put(target, || make().map(|made| Box::into_raw(Box::new(made)))) }
}

/// Takes an object of [`give`] back from C; `None` for NULL.
///
/// # Safety
/// `made` is NULL or came from [`give`], and the caller does not use it again.
pub(crate) unsafe fn take<T>(made: *mut T) -> Option<T> {
    if made.is_null() {
        return None;
    }
    // SAFETY: `give` made it from a box, and the caller does not use it again.
    Some(*unsafe { Box::from_raw(made) })
}
