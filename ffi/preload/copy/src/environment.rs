//! What the program was started with: its variables, and whether it has more rights than its
//! caller. Only the constructor reads this.

use core::ffi::{CStr, c_char, c_ulong};

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
    static environ: *const *const c_char;
}

/// Whether the kernel started the program with more rights than its caller has, so that the
/// caller's variables must not be used.
pub(crate) fn is_privileged() -> bool {
    /// `linux/auxvec.h`.
    const AT_SECURE: c_ulong = 23;
    // SAFETY: the call reads the auxiliary vector that the kernel gave the process.
    unsafe { getauxval(AT_SECURE) != 0 }
}

/// The value of a variable.
pub(crate) fn variable(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: the dynamic linker has set it before the constructor.
    let mut entry = unsafe { environ };
    while !entry.is_null() {
        // SAFETY: the list ends with a null pointer, and this entry is not beyond it.
        let text = unsafe { entry.read() };
        if text.is_null() {
            return None;
        }
        // SAFETY: entries are C strings. The program's own code has not started, so nothing
        // changes them.
        let text = unsafe { CStr::from_ptr(text) };
        let value = text.to_bytes_with_nul().strip_prefix(name);
        if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: this entry was not the last.
        entry = unsafe { entry.add(1) };
    }
    None
}
