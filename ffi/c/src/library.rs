//! The library as a whole: which version it is, and its start.

use std::ffi::{CStr, c_char};
use std::panic;

use haul_machine::tuning::Force;

use crate::status::haul_status;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version holds a NUL"),
    };

/// The version of the library that is loaded, such as "0.1.0"; HAUL_VERSION is that of the header.
/// The text is static and not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn haul_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Reads haul.toml, once for a process, and puts its thresholds in force; later calls return what
/// the first one found. libhaul.so does this as it is loaded. A program that links libhaul.a calls
/// it early in main; until then the defaults for the processor hold, which are correct as well.
///
/// Looks at HAUL_TUNING, the user's configuration directory and /etc; a set-user-id program reads
/// nothing. Costs some system calls and allocates; thread-safe; not for a signal handler.
///
/// Returns HAUL_OK also where there is no haul.toml; HAUL_ERROR_TUNING_IGNORED where there is one
/// that cannot be used, after one line on standard error; HAUL_ERROR_INTERNAL.
#[unsafe(no_mangle)]
pub extern "C" fn haul_init() -> haul_status {
    // This runs while a program is being loaded: a defect in reading a file must not end it.
    match panic::catch_unwind(haul_machine::init) {
        Ok(Force::Ignored { .. }) => haul_status::HAUL_ERROR_TUNING_IGNORED,
        Ok(_) => haul_status::HAUL_OK,
        Err(_) => haul_status::HAUL_ERROR_INTERNAL,
    }
}
