//! Functions that are found by name at run time.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

/// The dynamic linker's function of this name, in the libraries with which the program started.
pub(crate) fn global(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name is a C string, and RTLD_DEFAULT a handle that is always valid.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// A library that stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(NonNull<c_void>);

impl Library {
    /// Loads a library with all of its dependencies.
    ///
    /// # Errors
    /// The message of the dynamic linker.
    pub(crate) fn load(path: &OsStr) -> Result<Self, String> {
        let path = CString::new(path.as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the path is a C string. The library's constructors run, which is safe because
        // the user installed the library for this purpose.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        NonNull::new(handle).map(Self).ok_or_else(last_error)
    }

    /// The library's function of this name.
    ///
    /// # Errors
    /// The library does not contain the function.
    pub(crate) fn function(self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the handle belongs to a library that is never closed, and the name is a C string.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or_else(last_error)
    }
}

fn last_error() -> String {
    // SAFETY: dlerror has no preconditions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker reports no reason".into();
    }
    // SAFETY: dlerror returns a C string that is valid until this thread's next call of the dynamic
    // linker, and it is copied before.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
