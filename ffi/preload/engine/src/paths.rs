//! Paths of the fake: those below `/sys/bus/dsa` and `/dev/dsa` lead to its folder.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use haul_engine::dsa::fake::tree::VARIABLE;

/// What the fake replaces.
const PREFIXES: [&[u8]; 2] = [b"/sys/bus/dsa", b"/dev/dsa"];

/// The folder of a queue's file.
const QUEUES: &[u8] = b"/dev/dsa/wq0.";

/// The folder of the fake; `None` if the environment names none.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        // SAFETY: the call reads the auxiliary vector that the kernel gave the process.
        let is_set_user_id = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        // The user who starts a set-user-ID program must not choose its files.
        let named = std::env::var_os(VARIABLE).filter(|_| !is_set_user_id)?;
        Some(PathBuf::from(named)).filter(|path| path.is_absolute())
    };
    FOLDER.get_or_init(find).as_deref()
}

/// The path of the fake's file; `None` if the path is another file's.
///
/// # Safety
/// `path` must be null or a C string.
pub(crate) unsafe fn replaced(path: *const libc::c_char) -> Option<CString> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let is_ours = |prefix: &&[u8]| {
        path.strip_prefix(*prefix).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
    };
    PREFIXES.into_iter().find(is_ours)?;
    let relative = Path::new(OsStr::from_bytes(path.strip_prefix(b"/")?));
    let whole = folder()?.join(relative);
    CString::new(whole.as_os_str().as_bytes()).ok()
}

/// The number of the queue that a path names.
///
/// # Safety
/// `path` must be null or a C string.
pub(crate) unsafe fn queue(path: *const libc::c_char) -> Option<usize> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let number = path.to_bytes().strip_prefix(QUEUES)?;
    std::str::from_utf8(number).ok()?.parse().ok()
}
