//! Memory that is shared with the kernel.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags};

/// A mapping of what the kernel shares. Words by which parts of it change hands are atomic; a part
/// is touched only while it is this side's.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// What a socket shares at this offset, with its pages.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn of(socket: impl AsFd, bytes: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let hint = std::ptr::null_mut();
        // SAFETY: a new mapping of a socket's, at a place that the kernel chooses.
        let base = unsafe { rustix::mm::mmap(hint, bytes, protection, flags, socket, offset) }?;
        Ok(Self::at(base.cast(), bytes))
    }

    /// Memory of this process alone, with its pages, for the kernel to be shown.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let hint = std::ptr::null_mut();
        // SAFETY: a new mapping of no file, at a place that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(hint, bytes, protection, flags) }?;
        Ok(Self::at(base.cast(), bytes))
    }

    fn at(base: *mut u8, bytes: usize) -> Self {
        Self { base: NonNull::new(base).expect("the kernel maps nothing at 0"), bytes }
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `length` bytes from `at` on.
    #[inline(always)]
    fn place(&self, at: usize, length: usize) -> *mut u8 {
        assert!(at <= self.bytes && length <= self.bytes - at, "outside what is shared");
        // SAFETY: `at` was just seen to be inside the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// A word that both sides read and write.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, 4).cast::<u32>();
        assert!(place.is_aligned(), "a shared word is aligned");
        // SAFETY: it lies inside the mapping, is aligned, and lives as long as it; the kernel
        // touches it by single accesses.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// A word of a part that is this side's.
    #[inline(always)]
    pub(crate) fn number(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Sets a word of a part that is this side's.
    #[inline(always)]
    pub(crate) fn set_number(&self, at: usize, number: u32) {
        self.word(at).store(number, Ordering::Relaxed);
    }

    /// Bytes of a part that is this side's, and stays so while they are looked at.
    #[inline(always)]
    pub(crate) fn part(&self, at: usize, length: usize) -> &[u8] {
        let place = self.place(at, length);
        // SAFETY: they lie inside the mapping, live as long as it, are initialised by the kernel,
        // and the kernel leaves them alone while they are this side's; this value is borrowed.
        unsafe { std::slice::from_raw_parts(place, length) }
    }

    /// The same, to be written.
    #[inline(always)]
    pub(crate) fn part_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        let place = self.place(at, length);
        // SAFETY: as in `part`; this value is borrowed for writing, so that no other slice of it is
        // there.
        unsafe { std::slice::from_raw_parts_mut(place, length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, whose slices have all gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
