//! What a function returns that can fail.

use std::ffi::{CStr, c_char, c_int};

/// What a function returns that can fail. New codes are added at the end; none changes its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_status {
    /// It worked.
    HAUL_OK = 0,
    /// An argument that must point somewhere is NULL.
    HAUL_ERROR_NULL = 1,
    /// No threshold has this name: haul_thresholds_name() lists them.
    HAUL_ERROR_NO_SUCH_THRESHOLD = 2,
    /// There is a haul.toml, and it was ignored: it is unreadable, malformed or another machine's.
    /// The defaults are in force, and standard error says what is wrong.
    HAUL_ERROR_TUNING_IGNORED = 3,
    /// A defect of haul's own, told on standard error. What was in force before still is.
    HAUL_ERROR_INTERNAL = 4,
}

impl haul_status {
    const ALL: [Self; 5] = [
        Self::HAUL_OK,
        Self::HAUL_ERROR_NULL,
        Self::HAUL_ERROR_NO_SUCH_THRESHOLD,
        Self::HAUL_ERROR_TUNING_IGNORED,
        Self::HAUL_ERROR_INTERNAL,
    ];

    const fn message(self) -> &'static CStr {
        match self {
            Self::HAUL_OK => c"success",
            Self::HAUL_ERROR_NULL => c"an argument is NULL; pass a pointer to what it describes",
            Self::HAUL_ERROR_NO_SUCH_THRESHOLD => {
                c"no threshold has this name; haul_thresholds_name() lists them"
            }
            Self::HAUL_ERROR_TUNING_IGNORED => {
                c"haul.toml was ignored and the defaults hold; write it anew with `haul copy tune`"
            }
            Self::HAUL_ERROR_INTERNAL => {
                c"a defect of haul; please report what standard error says"
            }
        }
    }
}

/// What a status means, with the remedy, as one line of English. Never NULL; the text is static and
/// not to be freed. Any number is fine: one that is no status gets a text that says so.
#[unsafe(no_mangle)]
pub extern "C" fn haul_strerror(status: c_int) -> *const c_char {
    let known = haul_status::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"not a status of this version of libhaul", haul_status::message).as_ptr()
}
