//! Memory between two inaccessible pages.

use core::slice;

/// `bytes` of memory, zeroed, with an inaccessible page right before and right after it.
///
/// Under Miri, the memory is an allocation of exactly that size, whose bounds Miri itself checks.
pub(crate) struct Guarded {
    start: *mut u8,
    bytes: usize,
    #[cfg(not(miri))]
    page: usize,
}

// SAFETY: it owns its memory, and no other value refers to it.
unsafe impl Send for Guarded {}

impl Guarded {
    /// At least `bytes`, rounded up to whole pages.
    #[cfg(not(miri))]
    pub(crate) fn new(bytes: usize) -> Self {
        // SAFETY: the call reads a constant and has no obligation.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("page");
        let bytes = bytes.max(1).next_multiple_of(page);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses.
        let all = unsafe {
            libc::mmap(core::ptr::null_mut(), bytes + 2 * page, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(all, libc::MAP_FAILED, "mmap of {bytes} bytes: {}", last_error());
        let start = all.cast::<u8>().wrapping_add(page);
        // SAFETY: the pages between the first and the last of the mapping just made.
        let opened =
            unsafe { libc::mprotect(start.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0, "mprotect of {bytes} bytes: {}", last_error());
        Self { start, bytes, page }
    }

    /// Exactly `bytes`, aligned like a page.
    #[cfg(miri)]
    pub(crate) fn new(bytes: usize) -> Self {
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("layout");
        // SAFETY: not empty.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!start.is_null());
        Self { start, bytes }
    }

    /// The first byte; the one before it is guarded.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The address after the last byte; it is guarded.
    pub(crate) fn end(&self) -> *mut u8 {
        self.start.wrapping_add(self.bytes)
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: owned, initialized, this long.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialized, this long, borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Guarded {
    #[cfg(not(miri))]
    fn drop(&mut self) {
        let all = self.start.wrapping_sub(self.page);
        // SAFETY: the mapping that `new` made, which nothing refers to any more.
        unsafe { libc::munmap(all.cast(), self.bytes + 2 * self.page) };
    }

    #[cfg(miri)]
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.bytes, 4096).expect("layout");
        // SAFETY: allocated by `new` with the same layout.
        unsafe { std::alloc::dealloc(self.start, layout) };
    }
}

#[cfg(not(miri))]
fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
