//! Memory that is shared with a peer, mapped under a contract of [`memory`].
//!
//! The peer may change its content at any time. So single words are read once, atomically, and
//! bytes are copied to private memory before they are used.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use haul_copy::Hint;
use haul_heap::guard::Guard;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use super::error::Error;
use super::memory::{self, Sealed};

/// Shared memory, mapped to read and write.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    size_bytes: usize,
    file: OwnedFd,
    /// `None` while this is dropped: the guard ends before the mapping.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to this value alone and is reached only by atomics and by copies of
// bytes, both of which tolerate whatever another thread or process does at the same time.
unsafe impl Send for Region {}
// SAFETY: as above: nothing is handed out but atomics and copies.
unsafe impl Sync for Region {}

impl Region {
    /// Makes shared memory of this size: sealed, zeroed, without pages yet.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn create(size_bytes: usize) -> Result<Self, Error> {
        let file = memory::create_file(size_bytes)?;
        memory::seal(&file, Sealed::Size)?;
        Self::map(file, size_bytes)
    }

    /// Maps the peer's shared memory, if it fulfils this contract and has this size.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::System`].
    pub fn open(file: OwnedFd, size_bytes: usize, contract: Sealed) -> Result<Self, Error> {
        memory::check(file.as_fd(), size_bytes, contract)?;
        Self::map(file, size_bytes)
    }

    fn map(file: OwnedFd, size_bytes: usize) -> Result<Self, Error> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let base = memory::map_file(file.as_fd(), size_bytes, flags, MapFlags::SHARED)?;
        let mut region = Self { base, size_bytes, file, guard: None };
        region.guard = Some(memory::guarded(base, size_bytes, memory::PAGE_BYTES)?);
        Ok(region)
    }

    /// Whether a page was missing when it was accessed: the peer has punched a hole, and the system
    /// had no page for it. The page is now private to this process.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }

    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Its memory file.
    #[must_use]
    #[inline]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Allocates the pages of a part now, so that no later access can fail.
    ///
    /// # Errors
    /// [`Error::System`] if there is no memory for the pages.
    pub fn reserve(&self, offset: usize, length: usize) -> Result<(), Error> {
        memory::reserve(self.file(), offset, length)
    }

    /// The 4-byte word at `offset`.
    ///
    /// # Panics
    /// If the word is outside the region, or not aligned.
    #[inline]
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, size_of::<u32>()).cast();
        assert!(at.is_aligned(), "offset {offset} is not aligned for a word of 4 bytes");
        // SAFETY: four bytes inside the mapping, aligned, which live as long as `self`; this
        // process accesses them only atomically, and a peer that accesses them otherwise can only
        // make the value wrong.
        unsafe { at.as_ref() }
    }

    /// The 8-byte word at `offset`.
    ///
    /// # Panics
    /// If the word is outside the region, or not aligned.
    #[inline]
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, size_of::<u64>()).cast();
        assert!(at.is_aligned(), "offset {offset} is not aligned for a word of 8 bytes");
        // SAFETY: as for `word32`.
        unsafe { at.as_ref() }
    }

    /// The words of the cache line at `offset`.
    ///
    /// # Panics
    /// Panics if the line is outside the region, or not aligned to 8 bytes.
    #[inline]
    #[must_use]
    pub fn line(&self, offset: usize) -> &[AtomicU64; LINE_BYTES / 8] {
        let at = self.at(offset, LINE_BYTES).cast::<[AtomicU64; LINE_BYTES / 8]>();
        assert!(at.is_aligned(), "offset {offset} is not aligned for words of 8 bytes");
        // SAFETY: as for `word32`.
        unsafe { at.as_ref() }
    }

    /// Copies `target.len()` bytes at `offset` to private memory. The peer may have written any
    /// bytes.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8], hint: Hint) {
        let source = self.at(offset, target.len()).as_ptr();
        // SAFETY: the source is inside the mapping, whose pages are guarded; the target is a slice
        // of that length in private memory. The peer may write meanwhile: any bytes will do.
        unsafe { hint.copy_raw(target.as_mut_ptr(), source, target.len()) }
    }

    /// Copies `source` into the shared memory at `offset`.
    #[inline]
    pub fn write(&self, offset: usize, source: &[u8], hint: Hint) {
        let target = self.at(offset, source.len()).as_ptr();
        // SAFETY: the target is inside the mapping, whose pages are guarded; no reference to these
        // bytes exists anywhere in this process.
        unsafe { hint.copy_raw(target, source.as_ptr(), source.len()) }
    }

    /// Prefetches a part of the region into this processor's cache, without waiting.
    #[inline]
    pub fn fetch(&self, offset: usize, length: usize, way: Fetch) {
        let start = self.at(offset, length);
        for at in (0..length).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `length`, which was just checked to be inside the mapping.
            way.line(unsafe { start.add(at) });
        }
    }

    /// The address of `length` bytes. Accesses must tolerate concurrent writes of the peer.
    #[inline]
    pub fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.size_bytes && length <= self.size_bytes - offset,
            "{length} bytes at {offset} are not inside a region of {}",
            self.size_bytes
        );
        // SAFETY: just checked to be inside the mapping, or one past its end.
        unsafe { self.base.add(offset) }
    }
}

/// The length of a cache line of x86-64 and of most other processors.
const LINE_BYTES: usize = 64;

/// The purpose of a prefetch.
#[derive(Clone, Copy, Debug)]
pub enum Fetch {
    /// The other end's cache keeps the line too.
    ToRead,
    /// The other end's cache loses the line.
    ToWrite,
}

impl Fetch {
    /// Prefetches the line of `at`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn line(self, at: NonNull<u8>) {
        let at = at.as_ptr();
        match self {
            // SAFETY: a prefetch never faults, changes no memory, and uses no stack and no flags.
            Self::ToRead => unsafe {
                core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            },
            // SAFETY: as above; processors without this instruction do nothing.
            Self::ToWrite => unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            },
        }
    }

    /// Does nothing, because prefetches were measured on x86-64 only.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    fn line(self, _at: NonNull<u8>) {}
}

impl Drop for Region {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: this value owns the mapping. References to it borrow this value, so that none
        // exists. The guard was dropped above.
        unsafe { memory::unmap(self.base, self.size_bytes) };
    }
}
