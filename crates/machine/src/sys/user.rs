//! Looks users up by name and number.

use std::ffi::{CStr, CString};
use std::ptr;

/// The size of the buffer for a user's entry: first the size that glibc suggests
/// (_SC_GETPW_R_SIZE_MAX), and up to a thousand times this size for a name service with longer
/// entries.
const BYTES_MIN: usize = 1 << 10;
const BYTES_MAX: usize = 1 << 20;

/// The number of the user with this name in the system's name services; `None` if there is no
/// such user.
#[must_use]
pub fn user_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    look_up(
        // SAFETY: `name` is a C string, and `look_up` passes a structure and a buffer of `length`
        // bytes. All live longer than the call, and the structure and the buffer are writable.
        |entry, buffer, length, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found)
        },
        |entry| Some(entry.pw_uid),
    )
}

/// The name of the user with this number in the system's name services; `None` if there is no
/// such user, or if the name is not UTF-8.
#[must_use]
pub fn name_of_user(number: u32) -> Option<String> {
    look_up(
        // SAFETY: as in `user_of`.
        |entry, buffer, length, found| unsafe {
            libc::getpwuid_r(number, entry, buffer, length, found)
        },
        |entry| {
            // SAFETY: an entry that was found has a name, which is a string in the buffer, and
            // the buffer lives longer than this closure.
            let name = unsafe { CStr::from_ptr(entry.pw_name) };
            name.to_str().ok().map(str::to_owned)
        },
    )
}

/// Calls `ask` to get a user's entry, and passes the entry to `read`.
fn look_up<T>(
    ask: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
    read: impl FnOnce(&libc::passwd) -> Option<T>,
) -> Option<T> {
    let mut bytes = BYTES_MIN;
    while bytes <= BYTES_MAX {
        let mut buffer: Vec<libc::c_char> = vec![0; bytes];
        // SAFETY: zeros are a valid value of this plain structure, with numbers 0 and null
        // pointers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = ptr::null_mut();
        match ask(&raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found) {
            libc::ERANGE => bytes *= 2,
            0 if !found.is_null() => return read(&entry),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_by_name_and_unknown_names_are_not() {
        assert_eq!(user_of("root"), Some(0));
        assert_eq!(user_of("no such user"), None);
        assert_eq!(user_of("ro\0ot"), None);
        assert_eq!(name_of_user(0).as_deref(), Some("root"));
        assert_eq!(name_of_user(0xdead_beef), None);
    }
}
