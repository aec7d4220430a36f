//! Users by name.

use std::ffi::CString;
use std::ptr;

/// Bytes for what the system knows of a user: as much as glibc suggests (_SC_GETPW_R_SIZE_MAX), and
/// up to a thousand times that where a name service has more to say.
const BYTES_MIN: usize = 1 << 10;
const BYTES_MAX: usize = 1 << 20;

/// The number of the user of this name, as the system's name services have it; `None` where nobody
/// has it.
#[must_use]
pub fn user_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut bytes = BYTES_MIN;
    while bytes <= BYTES_MAX {
        let mut buffer: Vec<libc::c_char> = vec![0; bytes];
        // SAFETY: all bytes zero are a value of this plain structure of numbers and null pointers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = ptr::null_mut();
        // SAFETY: a string, a structure and a buffer of that length, all alive and writable where
        // they are written to; what the structure points at is not looked at.
        let result = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                &raw mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match result {
            libc::ERANGE => bytes *= 2,
            0 if !found.is_null() => return Some(entry.pw_uid),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_its_name_and_nobody_by_none() {
        assert_eq!(user_of("root"), Some(0));
        assert_eq!(user_of("no such user"), None);
        assert_eq!(user_of("ro\0ot"), None);
    }
}
