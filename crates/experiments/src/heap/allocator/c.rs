//! malloc and its family, called in the same way as by a C program: the functions of the C
//! library, or of the preloaded library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use super::Allocator;
use crate::dynamic;
use crate::heap::peers::Peer;

/// The alignment of every malloc on a 64-bit machine (`alignof(max_align_t)` of the System V ABIs
/// of x86-64 and AArch64), in bytes. A larger alignment needs `posix_memalign`.
const MALLOC_ALIGN: usize = 16;

/// The process's malloc.
pub(in crate::heap) struct C {
    peer: Peer,
    version: String,
}

impl C {
    /// The malloc of this process, which must belong to this peer.
    ///
    /// # Errors
    /// The process has a different malloc: the library was not preloaded.
    pub(in crate::heap) fn new(peer: Peer) -> Result<Self, String> {
        let version = match peer {
            Peer::Mimalloc => mimalloc_version(),
            Peer::Jemalloc => jemalloc_version(),
            Peer::Tcmalloc => tcmalloc_version(),
            _ => libc_version().or_else(|| Some("of this system".into())),
        };
        let name = peer.name();
        version.map(|version| Self { peer, version }).ok_or_else(|| {
            format!("{name} was not preloaded: the dynamic linker ignored LD_PRELOAD; run a program without set-user-id")
        })
    }
}

// SAFETY: malloc, posix_memalign and realloc promise exactly that (C11 7.22.3, POSIX).
unsafe impl Allocator for C {
    #[inline]
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if align <= MALLOC_ALIGN {
            // SAFETY: malloc accepts every size.
            return NonNull::new(unsafe { libc::malloc(size) }.cast());
        }
        let mut block = ptr::null_mut();
        // SAFETY: the location of the result is writable, and the alignment is a power of two
        // above the alignment of a pointer.
        let status = unsafe { libc::posix_memalign(&raw mut block, align, size) };
        if status == 0 { NonNull::new(block.cast()) } else { None }
    }

    fn allocate_zeroed(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if align <= MALLOC_ALIGN {
            // SAFETY: calloc accepts every size.
            return NonNull::new(unsafe { libc::calloc(1, size) }.cast());
        }
        let block = self.allocate(size, align)?;
        // SAFETY: the block was allocated a line above, with this size.
        unsafe { block.as_ptr().write_bytes(0, size) };
        Some(block)
    }

    #[inline]
    unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: the caller promises that this heap allocated the block and that nothing refers to
        // it.
        unsafe { libc::free(block.as_ptr().cast()) };
    }

    unsafe fn reallocate(
        &self,
        block: NonNull<u8>,
        old_size: usize,
        size: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        if align <= MALLOC_ALIGN {
            // SAFETY: the caller promises that this heap allocated the block; `size` is not 0.
            return NonNull::new(unsafe { libc::realloc(block.as_ptr().cast(), size) }.cast());
        }
        // C has no realloc that keeps an alignment, so that a program does these three steps.
        let new = self.allocate(size, align)?;
        // SAFETY: both blocks are live, do not overlap, and are at least as long as the shorter
        // size.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), new.as_ptr(), old_size.min(size)) };
        // SAFETY: the caller promises that this heap allocated the block and that nothing refers
        // to it.
        unsafe { self.free(block) };
        Some(new)
    }

    fn give_back(&self) {
        match self.peer {
            Peer::Mimalloc => mimalloc_give_back(),
            Peer::Jemalloc => jemalloc_give_back(),
            Peer::Tcmalloc => tcmalloc_give_back(),
            _ => libc_give_back(),
        }
    }

    fn version(&self) -> String {
        self.version.clone()
    }
}

/// `int malloc_trim(size_t)`, which only glibc has.
fn libc_give_back() {
    let Some(address) = dynamic::global(c"malloc_trim") else { return };
    // SAFETY: malloc_trim(3) declares this signature.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> c_int>(address.as_ptr())
    };
    // SAFETY: it has no preconditions.
    let _ = unsafe { function(0) };
}

/// `void mi_collect(bool force)`.
fn mimalloc_give_back() {
    let Some(address) = dynamic::global(c"mi_collect") else { return };
    // SAFETY: mimalloc.h declares this signature.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(bool)>(address.as_ptr()) };
    // SAFETY: it has no preconditions.
    unsafe { function(true) };
}

/// `void MallocExtension_ReleaseFreeMemory(void)`, of gperftools/malloc_extension_c.h.
fn tcmalloc_give_back() {
    let Some(address) = dynamic::global(c"MallocExtension_ReleaseFreeMemory") else { return };
    // SAFETY: its header declares this signature.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(address.as_ptr()) };
    // SAFETY: it has no preconditions.
    unsafe { function() };
}

/// `mallctl("thread.tcache.flush", ...)` and `"arena.4096.purge"`: of all arenas.
fn jemalloc_give_back() {
    let Some(mallctl) = mallctl() else { return };
    for name in [c"thread.tcache.flush", c"arena.4096.purge"] {
        let (old, size, new) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the name is a C string, and these two neither read nor write anything.
        let _ = unsafe { mallctl(name.as_ptr(), old, size, new, 0) };
    }
}

/// `gnu_get_libc_version` returns `2.36`; other C libraries do not have it.
fn libc_version() -> Option<String> {
    let address = dynamic::global(c"gnu_get_libc_version")?;
    // SAFETY: gnu/libc-version.h declares `const char *gnu_get_libc_version(void)`.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(
            address.as_ptr(),
        )
    };
    // SAFETY: it has no preconditions.
    let text = unsafe { function() };
    // SAFETY: it returns a C string that lives as long as the process.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// `tc_version` returns `gperftools 2.10`, and writes numbers to its arguments unless they are
/// null.
fn tcmalloc_version() -> Option<String> {
    type Version =
        unsafe extern "C" fn(*mut c_int, *mut c_int, *mut *const c_char) -> *const c_char;
    let address = dynamic::global(c"tc_version")?;
    // SAFETY: gperftools/tcmalloc.h declares this signature.
    let function = unsafe { std::mem::transmute::<*mut c_void, Version>(address.as_ptr()) };
    // SAFETY: each of the arguments may be null.
    let text = unsafe { function(ptr::null_mut(), ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: it returns a C string that lives as long as the process.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// `mi_version` returns 209 for 2.0.9.
fn mimalloc_version() -> Option<String> {
    let address = dynamic::global(c"mi_version")?;
    // SAFETY: mimalloc.h declares `int mi_version(void)`.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(address.as_ptr())
    };
    // SAFETY: it has no preconditions.
    let number = unsafe { function() };
    Some(format!("{}.{}.{}", number / 100, number / 10 % 10, number % 10))
}

type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

fn mallctl() -> Option<Mallctl> {
    let address = dynamic::global(c"mallctl")?;
    // SAFETY: jemalloc(3) declares this signature.
    Some(unsafe { std::mem::transmute::<*mut c_void, Mallctl>(address.as_ptr()) })
}

/// `mallctl("version", ...)` returns `5.3.0-0-g...`.
fn jemalloc_version() -> Option<String> {
    let mallctl = mallctl()?;
    let mut text: *const c_char = ptr::null();
    let mut length = size_of::<*const c_char>();
    // SAFETY: the name is a C string, "version" returns a pointer, and location and length are
    // those of `text`.
    let status = unsafe {
        mallctl(c"version".as_ptr(), (&raw mut text).cast(), &raw mut length, ptr::null_mut(), 0)
    };
    if status != 0 || text.is_null() {
        return None;
    }
    // SAFETY: jemalloc returns a C string that lives as long as the process.
    let whole = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Some(whole.split('-').next().unwrap_or_default().to_owned())
}
