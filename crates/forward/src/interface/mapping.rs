//! Memory that is shared with the kernel.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags};

/// A mapping that the kernel shares. The words that hand over its parts are atomic. A part is
/// accessed only while this side owns it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the pages that a socket shares at this offset, and populates them.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn of(socket: impl AsFd, bytes: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let hint = std::ptr::null_mut();
        // SAFETY: a new mapping of a socket, at an address that the kernel chooses.
        let base = unsafe { rustix::mm::mmap(hint, bytes, protection, flags, socket, offset) }?;
        Ok(Self::at(base.cast(), bytes))
    }

    /// Populated memory that no other process maps, to be shared with the kernel.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let hint = std::ptr::null_mut();
        // SAFETY: a new anonymous mapping, at an address that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(hint, bytes, protection, flags) }?;
        Ok(Self::at(base.cast(), bytes))
    }

    fn at(base: *mut u8, bytes: usize) -> Self {
        Self { base: NonNull::new(base).expect("the kernel maps nothing at 0"), bytes }
    }

    /// The first address.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `length` bytes from `at` on.
    #[inline(always)]
    fn pointer(&self, at: usize, length: usize) -> *mut u8 {
        assert!(at <= self.bytes && length <= self.bytes - at, "an access outside the mapping");
        // SAFETY: `at` is inside the mapping, as checked above.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// A word that both sides read and write.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        let pointer = self.pointer(at, 4).cast::<u32>();
        assert!(pointer.is_aligned(), "a shared word is aligned");
        // SAFETY: the word lies inside the mapping, is aligned, and lives as long as the mapping;
        // the kernel accesses it with single accesses.
        unsafe { AtomicU32::from_ptr(pointer) }
    }

    /// Reads a word of a part that this side owns.
    #[inline(always)]
    pub(crate) fn number(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Sets a word of a part that this side owns.
    #[inline(always)]
    pub(crate) fn set_number(&self, at: usize, number: u32) {
        self.word(at).store(number, Ordering::Relaxed);
    }

    /// The bytes of a part that this side owns. This side must own the part as long as the slice
    /// lives.
    #[inline(always)]
    pub(crate) fn part(&self, at: usize, length: usize) -> &[u8] {
        let pointer = self.pointer(at, length);
        // SAFETY: the bytes lie inside the mapping, live as long as the mapping, were initialised
        // by the kernel, and the kernel does not write them while this side owns them; this value
        // is borrowed.
        unsafe { std::slice::from_raw_parts(pointer, length) }
    }

    /// Like `part`, but for writing.
    #[inline(always)]
    pub(crate) fn part_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        let pointer = self.pointer(at, length);
        // SAFETY: as in `part`; this value is borrowed mutably, so that no other slice of it
        // exists.
        unsafe { std::slice::from_raw_parts_mut(pointer, length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no slice of it exists any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
