//! The version and the start of the library.

use std::ffi::{CStr, c_char};
use std::panic;

use haul_machine::tuning::Force;

use crate::status::haul_status;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version contains a NUL"),
    };

/// Returns the version of the loaded library, such as "0.1.0". HAUL_VERSION is the version of the
/// header. The text is static and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn haul_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Reads haul.toml once in a process and applies its thresholds. Later calls return the result of
/// the first call. libhaul.so calls this when it is loaded. A program that links libhaul.a should
/// call it early in main. Until then the defaults for the processor apply, which are correct as
/// well.
///
/// Searches for the file at HAUL_TUNING, in the user's configuration directory and in /etc. A
/// set-user-id program reads no file. Makes some system calls and allocates; thread-safe; not
/// async-signal-safe.
///
/// Returns HAUL_OK, also if there is no haul.toml; HAUL_ERROR_TUNING_IGNORED if haul.toml cannot be
/// used, after one line on standard error; HAUL_ERROR_INTERNAL.
#[unsafe(no_mangle)]
pub extern "C" fn haul_init() -> haul_status {
    // This code runs while a program is being loaded. A defect in the reader must not end the
    // program.
    match panic::catch_unwind(haul_machine::init) {
        Ok(Force::Ignored { .. }) => haul_status::HAUL_ERROR_TUNING_IGNORED,
        Ok(_) => haul_status::HAUL_OK,
        Err(_) => haul_status::HAUL_ERROR_INTERNAL,
    }
}
