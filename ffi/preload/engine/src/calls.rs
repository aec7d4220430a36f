//! Functions of libc on files: a queue of the fake opens, maps, accepts descriptors and closes.
//!
//! `open` has a third argument only if it creates a file. On the platforms of this library, an
//! absent argument is an unused register, so that the functions take it always.

use core::ffi::{c_char, c_int, c_void};
use std::io;

use crate::real::{real, set_errno};
use crate::{device, paths, portal};

type Mode = libc::mode_t;

/// Opens a queue of the fake; `None` if the path is none of its queues.
///
/// # Safety
/// `path` must be null or a C string.
unsafe fn open_queue(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let queue = unsafe { paths::queue(path) }?;
    let folder = paths::folder()?;
    if !haul_engine::dsa::fake::tree::has_queue(folder, queue) {
        set_errno(libc::ENOENT);
        return Some(-1);
    }
    let opened = device::open(folder, queue).and_then(|open| {
        // A character device with a descriptor of its own. Nothing is read or written there.
        let flags = libc::O_RDWR | flags & libc::O_CLOEXEC;
        let null = c"/dev/null".as_ptr();
        // SAFETY: the path is a C string.
        let file = unsafe { real_open(null, flags, 0) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        if !device::add_file(file, open) {
            // SAFETY: the file was just opened, and no one else knows it.
            unsafe { real_close(file) };
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(file)
    });
    Some(opened.unwrap_or_else(|error| failed(&error)))
}

/// Sets `errno`, and returns -1.
fn failed(error: &io::Error) -> c_int {
    set_errno(error.raw_os_error().unwrap_or(libc::EINVAL));
    -1
}

/// # Safety
/// The obligations of libc's function.
unsafe fn real_close(file: c_int) -> c_int {
    real!(close(file => c_int) -> c_int, else -1)
}

/// # Safety
/// `path` must be null or a C string.
unsafe fn real_open(path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    real!(open(path => *const c_char, flags => c_int, mode => Mode) -> c_int, else -1)
}

/// # Safety
/// `path` must be null or a C string.
unsafe fn open_any(path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(file) = unsafe { open_queue(path, flags) } {
        return file;
    }
    // SAFETY: as above.
    let replaced = unsafe { paths::replaced(path) };
    let path = replaced.as_ref().map_or(path, |path| path.as_ptr());
    // SAFETY: the path is a C string that lives until the call returns.
    unsafe { real_open(path, flags, mode) }
}

/// # Safety
/// `path` must be null or a C string.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(file) = unsafe { open_queue(path, flags) } {
        return file;
    }
    // SAFETY: as above.
    let replaced = unsafe { paths::replaced(path) };
    let path = replaced.as_ref().map_or(path, |path| path.as_ptr());
    real!(openat(
        folder => c_int,
        path => *const c_char,
        flags => c_int,
        mode => Mode
    ) -> c_int, else -1)
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(path, flags, mode) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: Mode) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(path, flags, mode) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(path, flags, 0) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_any(path, flags, 0) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: Mode,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(folder, path, flags, mode) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: Mode,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_at(folder, path, flags, mode) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: usize) -> isize {
    let Some(open) = device::file(file) else {
        return real!(write(
            file => c_int,
            bytes => *const c_void,
            count => usize
        ) -> isize, else -1);
    };
    if bytes.is_null() {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: the caller promises that the bytes can be read.
    let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), count) };
    // SAFETY: the program submits these descriptors, and keeps what they name.
    match unsafe { open.write(bytes) } {
        Ok(taken) => taken as isize,
        Err(error) => failed(&error) as isize,
    }
}

/// # Safety
/// The obligations of libc's function.
unsafe fn map(
    start: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let open = if flags & libc::MAP_ANONYMOUS == 0 { device::file(file) } else { None };
    let Some(open) = open else {
        return real!(mmap(
            start => *mut c_void,
            length => usize,
            access => c_int,
            flags => c_int,
            file => c_int,
            offset => libc::off_t
        ) -> *mut c_void, else libc::MAP_FAILED);
    };
    if length > device::PORTAL_BYTES || length == 0 || offset != 0 {
        set_errno(libc::EINVAL);
        return libc::MAP_FAILED;
    }
    portal::map(open).unwrap_or_else(|error| {
        failed(&error);
        libc::MAP_FAILED
    })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(start, length, access, flags, file, offset) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(start, length, access, flags, file, offset) }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, length: usize) -> c_int {
    // The queue closes here if its file is closed already, before the address is free again.
    drop(device::remove_portal(start.addr()));
    real!(munmap(start => *mut c_void, length => usize) -> c_int, else -1)
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    // As the kernel's, the last close waits for what is pending.
    drop(device::remove_file(file));
    // SAFETY: the caller's promise.
    unsafe { real_close(file) }
}
