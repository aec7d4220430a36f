//! Memory for tests: pages that can be protected and unmapped.

use core::ffi::c_void;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE_BYTES: usize = 4096;

/// Pages at an address of their own.
pub(crate) struct Pages {
    start: *mut u8,
    count: usize,
}

impl Pages {
    pub(crate) fn new(count: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), count * PAGE_BYTES, access, MapFlags::PRIVATE) };
        Self { start: start.unwrap().cast(), count }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.addr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.count * PAGE_BYTES
    }

    /// Sets each byte from its index.
    pub(crate) fn fill(&self, byte: impl Fn(usize) -> u8) {
        for index in 0..self.len() {
            // SAFETY: the byte is within the mapping.
            let target = unsafe { self.start.add(index) };
            // SAFETY: the tests call this while all pages are writable.
            unsafe { target.write_volatile(byte(index)) };
        }
    }

    /// A copy of the bytes; pages must be readable.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let read = |index: usize| {
            // SAFETY: the byte is within the mapping.
            let source = unsafe { self.start.add(index) };
            // SAFETY: the tests call this while all pages are readable.
            unsafe { source.read_volatile() }
        };
        (0..self.len()).map(read).collect()
    }

    /// Changes the access to the pages from `page` on.
    pub(crate) fn protect_from(&self, page: usize, flags: MprotectFlags) {
        let (start, length) = self.tail(page);
        // SAFETY: the range is this mapping's own; the tests access it no more than it allows.
        unsafe { mprotect(start, length, flags) }.unwrap();
    }

    /// Removes the pages from `page` on.
    pub(crate) fn unmap_from(&self, page: usize) {
        let (start, length) = self.tail(page);
        // SAFETY: as above.
        unsafe { munmap(start, length) }.unwrap();
    }

    fn tail(&self, page: usize) -> (*mut c_void, usize) {
        // SAFETY: the page is within the mapping.
        let start = unsafe { self.start.add(page * PAGE_BYTES) };
        (start.cast(), (self.count - page) * PAGE_BYTES)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (start, length) = self.tail(0);
        // SAFETY: the range is this mapping's own, or was removed, and no test uses it any more.
        let _ = unsafe { munmap(start, length) };
    }
}
