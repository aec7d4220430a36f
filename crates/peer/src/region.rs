//! Memory that is shared with a peer, and mapped under a contract of [`memory`].
//!
//! The peer may change its content at any time. So a single word is read only once, atomically,
//! and bytes are copied to private memory before they are used.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use haul_copy::Hint;
use haul_heap::guard::Guard;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use super::error::Error;
use super::memory::{self, Sealed};

/// Shared memory, mapped for reading and writing.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    size_bytes: usize,
    file: OwnedFd,
    /// `None` while this value is dropped, because the guard must be dropped before the memory is
    /// unmapped.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to this value alone. Only atomics and copies of bytes access it,
// and both tolerate any access by another thread or process at the same time.
unsafe impl Send for Region {}
// SAFETY: as above: callers get only atomics and copies.
unsafe impl Sync for Region {}

impl Region {
    /// Creates shared memory of this size. It is sealed, reads as zeros, and has no pages yet.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn create(size_bytes: usize) -> Result<Self, Error> {
        let file = memory::create_file(size_bytes)?;
        memory::seal(&file, Sealed::Size)?;
        Self::map(file, size_bytes)
    }

    /// Maps the peer's shared memory, if it meets this contract and has this size.
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

    /// Whether a page was missing at an access, because the peer has punched a hole and the
    /// system had no page for it. The page that replaced it is private to this process.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }

    /// The region's length in bytes.
    #[inline]
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The region's memory file.
    #[must_use]
    #[inline]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Allocates the pages of a part now, so that no later access to the part can fail.
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
        // SAFETY: the four bytes are inside the mapping, aligned, and live as long as `self`.
        // This process accesses them only atomically. A peer that accesses them in another way
        // can only make the value wrong.
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
        // of that length in private memory. The peer may write meanwhile, but any bytes are
        // acceptable.
        unsafe { hint.copy_raw(target.as_mut_ptr(), source, target.len()) }
    }

    /// Copies `source` into the shared memory at `offset`.
    #[inline]
    pub fn write(&self, offset: usize, source: &[u8], hint: Hint) {
        let target = self.at(offset, source.len()).as_ptr();
        // SAFETY: the target is inside the mapping, whose pages are guarded. This process has no
        // reference to these bytes.
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

    /// The address of `length` bytes at `offset`. Accesses must tolerate concurrent writes by the
    /// peer.
    #[inline]
    pub fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.size_bytes && length <= self.size_bytes - offset,
            "{length} bytes at {offset} are not inside a region of {}",
            self.size_bytes
        );
        // SAFETY: the offset was just checked: it is inside the mapping, or directly at its end.
        unsafe { self.base.add(offset) }
    }
}

/// The length of a cache line on x86-64 and most other processors.
const LINE_BYTES: usize = 64;

/// The purpose of a prefetch.
#[derive(Clone, Copy, Debug)]
pub enum Fetch {
    /// The line is prefetched for reading. The other end's cache keeps the line.
    ToRead,
    /// The line is prefetched for writing. The other end's cache loses the line.
    ToWrite,
}

impl Fetch {
    /// Prefetches the cache line that contains `at`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn line(self, at: NonNull<u8>) {
        let at = at.as_ptr();
        match self {
            // SAFETY: a prefetch never faults, changes no memory, and uses no stack and no flags.
            Self::ToRead => unsafe {
                core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            },
            // SAFETY: as above; on processors without this instruction, it does nothing.
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
        memory::unmap(self.base, self.size_bytes);
    }
}
