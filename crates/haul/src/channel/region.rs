//! The memory that both ends share: anonymous, of a size that nobody can change any more.
//!
//! A mapping of a file that shrinks kills its reader with SIGBUS. So the file is sealed against
//! shrinking and growing, seals and size are checked before it is mapped, and its pages are there
//! before they are touched. What stands in it is the peer's word: single words are read once,
//! atomically; bytes are copied to private memory before anything is made of them.

use std::io;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64};

use haul_copy::Hint;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::checksum::Sum;
use super::error::Error;

/// TMPFS_MAGIC of linux/magic.h: what memfd_create gives without MFD_HUGETLB. Huge pages of
/// hugetlbfs can run out under a mapping, which ends in SIGBUS, seals or not.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// `st_blocks` counts in these, stat(2).
const BLOCK_BYTES: u64 = 512;

/// The seals without which nothing of the peer's is mapped.
pub(super) const SIZE_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The seals of memory that changes hands as it is; who gets it may seal it further.
pub(super) const HANDED_OVER_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Shared memory, mapped to read and write.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    size_bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone and is reached only by atomics and by copies of
// bytes, both of which tolerate whatever another thread or process does at the same time.
unsafe impl Send for Region {}
// SAFETY: as above: nothing is handed out but atomics and copies.
unsafe impl Sync for Region {}

impl Region {
    /// New shared memory of this size, sealed, zeroed, not yet backed by pages.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(super) fn create(size_bytes: usize) -> Result<Self, Error> {
        let file = create_file(size_bytes)?;
        rustix::fs::fcntl_add_seals(&file, SIZE_SEALS).map_err(Error::system("seal memory"))?;
        Self::map(file, size_bytes)
    }

    /// The peer's shared memory, if it can be mapped in safety and has this size.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::System`].
    pub(super) fn open(file: OwnedFd, size_bytes: usize) -> Result<Self, Error> {
        check(file.as_fd(), size_bytes, SIZE_SEALS)?;
        Self::map(file, size_bytes)
    }

    fn map(file: OwnedFd, size_bytes: usize) -> Result<Self, Error> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let base = map_file(file.as_fd(), size_bytes, flags, MapFlags::SHARED)?;
        Ok(Self { base, size_bytes, file })
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives a part of it pages now, so that no later touch can fail.
    ///
    /// # Errors
    /// [`Error::System`] where there is no memory for them.
    pub(super) fn reserve(&self, offset: usize, length: usize) -> Result<(), Error> {
        reserve(self.file(), offset, length)
    }

    pub(super) fn word32(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, size_of::<u32>()).cast();
        assert!(at.is_aligned(), "offset {offset} is no place for a word of 4 bytes");
        // SAFETY: four bytes inside the mapping, aligned, which live as long as `self`; everybody
        // who touches them does so atomically, and a peer that does not only harms the value.
        unsafe { at.as_ref() }
    }

    pub(super) fn word64(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, size_of::<u64>()).cast();
        assert!(at.is_aligned(), "offset {offset} is no place for a word of 8 bytes");
        // SAFETY: as for `word32`.
        unsafe { at.as_ref() }
    }

    /// The words of a line of the caches.
    pub(super) fn line(&self, offset: usize) -> &[AtomicU64; LINE_BYTES / 8] {
        let at = self.at(offset, LINE_BYTES).cast::<[AtomicU64; LINE_BYTES / 8]>();
        assert!(at.is_aligned(), "offset {offset} is no place for words of 8 bytes");
        // SAFETY: as for `word32`.
        unsafe { at.as_ref() }
    }

    /// Copies `target.len()` bytes at `offset` to private memory. They are the peer's word.
    pub(super) fn read(&self, offset: usize, target: &mut [u8], hint: Hint) {
        let source = self.at(offset, target.len()).as_ptr();
        // SAFETY: the source is inside the mapping, whose pages cannot go; the target is a slice
        // of that length in private memory. The peer may write meanwhile: any bytes will do.
        unsafe { haul_copy::copy_hinted_raw(target.as_mut_ptr(), source, target.len(), hint) }
    }

    /// Copies `source` into the shared memory at `offset`.
    pub(super) fn write(&self, offset: usize, source: &[u8], hint: Hint) {
        let target = self.at(offset, source.len()).as_ptr();
        // SAFETY: the target is inside the mapping, whose pages cannot go; no reference to these
        // bytes exists anywhere in this process.
        unsafe { haul_copy::copy_hinted_raw(target, source.as_ptr(), source.len(), hint) }
    }

    /// As [`read`](Self::read), and adds what was copied, which stands at `place` in its message.
    pub(super) fn read_summed(
        &self,
        offset: usize,
        target: &mut [u8],
        is_streamed: bool,
        (sum, place): (&mut Sum, u64),
    ) {
        let source = self.at(offset, target.len()).as_ptr();
        // SAFETY: as for `read`; private memory and the mapping do not overlap.
        unsafe { sum.copy(place, target.as_mut_ptr(), source, target.len(), is_streamed) }
    }

    /// As [`write`](Self::write), and adds what was copied, which stands at `place` in its message.
    pub(super) fn write_summed(
        &self,
        offset: usize,
        source: &[u8],
        is_streamed: bool,
        (sum, place): (&mut Sum, u64),
    ) {
        let target = self.at(offset, source.len()).as_ptr();
        // SAFETY: as for `write`; private memory and the mapping do not overlap.
        unsafe { sum.copy(place, target, source.as_ptr(), source.len(), is_streamed) }
    }

    /// Asks for a part of it to come into this processor's cache; does not wait for it.
    pub(super) fn fetch(&self, offset: usize, length: usize, way: Fetch) {
        let start = self.at(offset, length);
        for at in (0..length).step_by(LINE_BYTES) {
            // SAFETY: `at` is below `length`, which was just checked to be inside the mapping.
            way.line(unsafe { start.add(at) });
        }
    }

    fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.size_bytes && length <= self.size_bytes - offset,
            "{length} bytes at {offset} are not inside a region of {}",
            self.size_bytes
        );
        // SAFETY: just checked to be inside the mapping, or one past its end.
        unsafe { self.base.add(offset) }
    }
}

/// A line of the caches of x86-64 and of most others.
const LINE_BYTES: usize = 64;

/// What a line is fetched for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetch {
    /// It stays with the other end as well.
    ToRead,
    /// It goes from the other end's cache.
    ToWrite,
}

impl Fetch {
    /// Asks for the line that `at` stands in.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn line(self, at: NonNull<u8>) {
        let at = at.as_ptr();
        match self {
            // SAFETY: a prefetch never faults, changes no memory, and uses no stack and no flags.
            Self::ToRead => unsafe {
                core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            },
            // SAFETY: as above; processors without this one do nothing.
            Self::ToWrite => unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            },
        }
    }

    /// Nothing: it was measured on x86-64 alone.
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    fn line(self, _at: NonNull<u8>) {}
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.base, self.size_bytes);
    }
}

/// A memory file of this size, closed on exec, which may still be sealed.
pub(super) fn create_file(size_bytes: usize) -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file =
        rustix::fs::memfd_create(c"haul-channel", flags).map_err(Error::system("make memory"))?;
    rustix::fs::ftruncate(&file, size_bytes as u64).map_err(Error::system("size memory"))?;
    Ok(file)
}

/// Bytes that are given pages at a time: some 1 ms. Kernels up to the 6.1 of Debian 12 give all pages
/// of a call back as a signal interrupts it, so that one call for a large message would never end in
/// a program with a timer.
const RESERVE_BYTES: usize = 4 << 20;

/// Gives a part of a memory file pages.
pub(super) fn reserve(file: BorrowedFd<'_>, offset: usize, length: usize) -> Result<(), Error> {
    let mut done = 0;
    loop {
        let (at, piece) = (offset + done, (length - done).min(RESERVE_BYTES));
        match rustix::fs::fallocate(file, FallocateFlags::empty(), at as u64, piece as u64) {
            Err(Errno::INTR) => continue,
            result => result.map_err(Error::system("have pages for shared memory"))?,
        }
        done += piece;
        if done == length {
            return Ok(());
        }
    }
}

/// Refuses a descriptor whose mapping could end in SIGBUS, or that is not what it should be.
///
/// # Errors
/// [`Error::Memory`], [`Error::System`].
pub(super) fn check(
    file: BorrowedFd<'_>,
    size_bytes: usize,
    seals: SealFlags,
) -> Result<(), Error> {
    let refuse = |found: String, expected| Err(Error::Memory { found, expected });
    // The seals first: what is read of a file that can still change may not be true any more once it is
    // sealed. And whoever knows no seals may be a file system of the peer's own, which never answers.
    let Ok(found) = rustix::fs::fcntl_get_seals(file) else {
        return refuse("a descriptor that cannot be sealed".into(), "a memory file");
    };
    if !found.contains(seals) {
        return refuse(format!("memory with the seals {found:?}"), "memory whose size is sealed");
    }
    let status = rustix::fs::fstat(file).map_err(Error::system("look at the peer's memory"))?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if kind != FileType::RegularFile {
        return refuse(format!("a descriptor of kind {kind:?}"), "a memory file");
    }
    let system = rustix::fs::fstatfs(file).map_err(Error::system("look at the peer's memory"))?;
    if system.f_type as u64 != TMPFS_MAGIC {
        return refuse("memory of another file system".into(), "ordinary shared memory");
    }
    if status.st_size as u64 != size_bytes as u64 {
        return refuse(format!("memory of {} B", status.st_size), "the size that was agreed on");
    }
    // Where nothing can be written any more, what has no page now never will: a touch might fail. And what
    // changes hands comes as a whole.
    let blocks = status.st_blocks as u64;
    let is_message = seals.contains(SealFlags::WRITE) || seals == HANDED_OVER_SEALS;
    if is_message && blocks * BLOCK_BYTES < size_bytes as u64 {
        return refuse(format!("memory with {blocks} blocks"), "memory without holes");
    }
    Ok(())
}

/// Sees to it that every page of sealed memory is there, where it is mapped, before it is touched: the
/// blocks that [`check`] counted may stand behind its end. In a system with strict overcommit a touch
/// can fail, and that would be SIGBUS; in any other it cannot, and nothing is done.
///
/// # Errors
/// [`Error::Memory`].
pub(super) fn fill_holes(base: NonNull<u8>, size_bytes: usize) -> Result<(), Error> {
    static IS_STRICT: LazyLock<bool> = LazyLock::new(|| {
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        mode.is_ok_and(|mode| mode.trim() == "2")
    });
    if *IS_STRICT { populate(base, size_bytes) } else { Ok(()) }
}

fn populate(base: NonNull<u8>, size_bytes: usize) -> Result<(), Error> {
    // SAFETY: reads pages of a mapping of this size that the caller has, and changes nothing in it.
    let result =
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), size_bytes, Advice::LinuxPopulateRead) };
    match result {
        // Kernels before 5.14 cannot tell.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(reason) => Err(Error::Memory {
            found: format!("memory with holes that cannot be filled ({reason})"),
            expected: "memory without holes",
        }),
    }
}

/// Maps a memory file that was checked, or made here.
pub(super) fn map_file(
    file: BorrowedFd<'_>,
    size_bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    map_file_at(0, file, size_bytes, protection, flags)
}

/// As [`map_file`], at this address if nothing is there; flags that replace what is there are not for
/// here.
pub(super) fn map_file_at(
    place: usize,
    file: BorrowedFd<'_>,
    size_bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    map(place, file, (0, size_bytes), protection, flags)
}

/// Maps a part of such a file, shared, from a page of it on.
pub(super) fn map_part(
    file: BorrowedFd<'_>,
    offset: usize,
    length: usize,
    protection: ProtFlags,
) -> Result<NonNull<u8>, Error> {
    map(0, file, (offset, length), protection, MapFlags::SHARED)
}

fn map(
    place: usize,
    file: BorrowedFd<'_>,
    (offset, length): (usize, usize),
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    debug_assert!(!flags.contains(MapFlags::FIXED), "only a free place may be taken");
    let place = std::ptr::without_provenance_mut(place);
    // SAFETY: a new mapping where the kernel finds that nothing is touches nothing that exists.
    let base = unsafe { rustix::mm::mmap(place, length, protection, flags, file, offset as u64) };
    let base = base.map_err(Error::system("map memory"))?;
    NonNull::new(base.cast()).ok_or_else(|| Error::System {
        attempt: "map memory",
        reason: io::Error::from(io::ErrorKind::OutOfMemory),
    })
}

/// Takes a mapping away that the caller owns and has no reference into any more.
pub(super) fn unmap(base: NonNull<u8>, size_bytes: usize) {
    // SAFETY: callers pass a mapping of exactly this size that they made and now give up.
    let result = unsafe { rustix::mm::munmap(base.as_ptr().cast(), size_bytes) };
    debug_assert!(result.is_ok(), "munmap: {result:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_what_is_reserved_is_there_and_no_other() {
        let size_bytes = 3 * RESERVE_BYTES;
        for (offset, length) in [(0, 4096), (4096, 2 * RESERVE_BYTES + 4096), (0, size_bytes)] {
            let file = create_file(size_bytes).unwrap();
            reserve(file.as_fd(), offset, length).unwrap();
            let blocks = rustix::fs::fstat(&file).unwrap().st_blocks as u64;
            assert_eq!(blocks * BLOCK_BYTES, length as u64, "{length} B at {offset}");
        }
        assert!(reserve(create_file(1).unwrap().as_fd(), 0, 0).is_err());
    }

    /// Pages behind the end are counted like others, so that holes hide behind them.
    #[test]
    fn holes_that_blocks_behind_the_end_hide_are_filled() {
        let (size_bytes, seals) = (64 << 10, SIZE_SEALS.union(SealFlags::WRITE));
        let blocks = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks as u64;
        let file = create_file(size_bytes).unwrap();
        let (end, behind) = (size_bytes as u64, FallocateFlags::KEEP_SIZE);
        rustix::fs::fallocate(&file, behind, end, end).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        check(file.as_fd(), size_bytes, seals).unwrap();
        let before = blocks(&file);
        let base = map_file(file.as_fd(), size_bytes, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
        populate(base, size_bytes).unwrap();
        assert_eq!((blocks(&file) - before) * BLOCK_BYTES, size_bytes as u64);
        unmap(base, size_bytes);
        // What lies behind the end of a file never has a page.
        let base = map_file(file.as_fd(), 2 * size_bytes, ProtFlags::READ, MapFlags::PRIVATE);
        let result = populate(base.as_ref().copied().unwrap(), 2 * size_bytes);
        assert!(matches!(result, Err(Error::Memory { .. })), "{result:?}");
        unmap(base.unwrap(), 2 * size_bytes);
    }
}
