//! The sizes at which the copying method changes, by name.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use haul_copy::Thresholds;

use crate::argument::put;
use crate::status::haul_status;

/// Without this lock, a thread could undo a threshold that another thread sets at the same time.
static SETTING: Mutex<()> = Mutex::new(());

/// The names as C strings, in the order of [`Thresholds::NAMES`].
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let names = Thresholds::NAMES.iter();
    names.map(|name| CString::new(*name).expect("names of thresholds contain no NUL")).collect()
});

/// Returns the name of a threshold, counted from 0; NULL after the last one. The text is static and
/// must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn haul_thresholds_name(index: usize) -> *const c_char {
    NAMES.get(index).map_or(ptr::null(), |name| name.as_ptr())
}

/// Writes the current value of the threshold of this name to bytes. SIZE_MAX means never.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_SUCH_THRESHOLD. bytes is written only on
/// HAUL_OK.
///
/// # Safety
/// name is NULL or a string; bytes is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_thresholds_get(
    name: *const c_char,
    bytes: *mut usize,
) -> haul_status {
    // SAFETY: the caller's promise for name.
    let name = unsafe { known_name(name) };
    let value = || {
        let value = Thresholds::current().get(name?);
        value.ok_or(haul_status::HAUL_ERROR_NO_SUCH_THRESHOLD)
    };
    // SAFETY: the caller's promise for bytes.
    unsafe { put(bytes, value) }
}

/// Sets a threshold for all threads of this process. No value makes a copy wrong: a value that is
/// too small is raised to the smallest useful value, and SIZE_MAX disables a copying method.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_SUCH_THRESHOLD. Takes a lock that only other
/// calls of this function wait for; copies in other threads continue.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_thresholds_set(name: *const c_char, bytes: usize) -> haul_status {
    // SAFETY: the caller's promise.
    let name = match unsafe { known_name(name) } {
        Ok(name) => name,
        Err(status) => return status,
    };
    // The lock protects no state that a panic could leave inconsistent.
    let _one_at_a_time = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut thresholds = Thresholds::current();
    if !thresholds.set(name, bytes) {
        return haul_status::HAUL_ERROR_NO_SUCH_THRESHOLD;
    }
    thresholds.install();
    haul_status::HAUL_OK
}

/// # Safety
/// `name` is NULL or a string.
unsafe fn known_name<'a>(name: *const c_char) -> Result<&'a str, haul_status> {
    if name.is_null() {
        return Err(haul_status::HAUL_ERROR_NULL);
    }
    // SAFETY: not NULL, so a string by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    // All names are ASCII, so text that is not UTF-8 is not one of them.
    name.to_str().map_err(|_| haul_status::HAUL_ERROR_NO_SUCH_THRESHOLD)
}
