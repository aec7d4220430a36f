//! Functions of libc on paths: a path of the fake is replaced, and the rest is libc's.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::paths;
use crate::real::real;

/// Exports functions that replace the path in one of their arguments.
macro_rules! on_path {
    ($($name:ident([$($before:ident: $before_type:ty),*] path [$($after:ident: $after_type:ty),*])
        -> $result:ty, else $default:expr;)*) => {$(
        /// # Safety
        /// The obligations of libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)* path: *const c_char $(, $after: $after_type)*
        ) -> $result {
            // SAFETY: the caller promises a C string or null.
            let replaced = unsafe { paths::replaced(path) };
            let path = replaced.as_ref().map_or(path, |path| path.as_ptr());
            real!($name(
                $($before => $before_type,)* path => *const c_char $(, $after => $after_type)*
            ) -> $result, else $default)
        }
    )*};
}

on_path! {
    opendir([] path []) -> *mut c_void, else core::ptr::null_mut();
    fopen([] path [mode: *const c_char]) -> *mut c_void, else core::ptr::null_mut();
    fopen64([] path [mode: *const c_char]) -> *mut c_void, else core::ptr::null_mut();
    access([] path [mode: c_int]) -> c_int, else -1;
    faccessat([folder: c_int] path [mode: c_int, flags: c_int]) -> c_int, else -1;
    stat([] path [about: *mut c_void]) -> c_int, else -1;
    stat64([] path [about: *mut c_void]) -> c_int, else -1;
    lstat([] path [about: *mut c_void]) -> c_int, else -1;
    lstat64([] path [about: *mut c_void]) -> c_int, else -1;
    fstatat([folder: c_int] path [about: *mut c_void, flags: c_int]) -> c_int, else -1;
    fstatat64([folder: c_int] path [about: *mut c_void, flags: c_int]) -> c_int, else -1;
    statx([folder: c_int] path [flags: c_int, mask: c_uint, about: *mut c_void]) -> c_int, else -1;
    __xstat([version: c_int] path [about: *mut c_void]) -> c_int, else -1;
    __xstat64([version: c_int] path [about: *mut c_void]) -> c_int, else -1;
    __lxstat([version: c_int] path [about: *mut c_void]) -> c_int, else -1;
    __lxstat64([version: c_int] path [about: *mut c_void]) -> c_int, else -1;
    readlink([] path [into: *mut c_char, size: usize]) -> isize, else -1;
    readlinkat([folder: c_int] path [into: *mut c_char, size: usize]) -> isize, else -1;
    realpath([] path [into: *mut c_char]) -> *mut c_char, else core::ptr::null_mut();
    scandir([] path [names: *mut c_void, filter: *mut c_void, order: *mut c_void]) -> c_int, else -1;
    scandir64([] path [names: *mut c_void, filter: *mut c_void, order: *mut c_void]) -> c_int, else -1;
}
