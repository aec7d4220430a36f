//! Memory files: creates them, and maps a peer's file under a contract.
//!
//! If a mapped file shrinks, an access to the mapping kills the process with SIGBUS. So a peer's
//! file is mapped only under a contract that excludes this. The caller names the contract. A peer
//! can still punch holes into the file, but a guard handles an access to a hole ([`guarded`]).
//! [`Sealed`] is the contract of a peer that seals its memory: seals and size are checked before
//! the file is mapped, and pages are allocated before they are accessed. The contract of a
//! virtual machine's memory, which is not sealed, is in [`guest`](super::guest).

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::LazyLock;

use haul_heap::guard::Guard;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::descriptor::kept;
use super::error::Error;

/// A contract that the kernel enforces: its seals cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// The size is sealed: both ends read and write, and neither end can add a seal.
    Size,
    /// The size is sealed, and all pages are allocated. This is for memory that is handed over to
    /// the receiving process, which may add seals.
    Handover,
    /// The size and the bytes are sealed, and all pages are allocated: no process can ever write
    /// to the memory.
    Bytes,
}

impl Sealed {
    fn seals(self) -> SealFlags {
        let size = SealFlags::SHRINK | SealFlags::GROW;
        match self {
            Self::Size => size | SealFlags::SEAL,
            Self::Handover => size,
            Self::Bytes => size | SealFlags::SEAL | SealFlags::WRITE,
        }
    }

    fn has_all_pages(self) -> bool {
        self != Self::Size
    }
}

/// TMPFS_MAGIC of linux/magic.h: the file system of memfd_create without MFD_HUGETLB. Memory from
/// hugetlbfs is refused, because its pool of huge pages can be empty at an access, which raises
/// SIGBUS even with seals.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The unit of `st_blocks`, stat(2).
const BLOCK_BYTES: u64 = 512;

/// Creates a memory file of this size, closed on exec. Seals can be added to it.
pub fn create_file(size_bytes: usize) -> Result<OwnedFd, Error> {
    create_named(c"haul-channel", size_bytes)
}

/// Creates a memory file with a sealed size. `/proc/PID/maps` shows its name.
pub fn create_sealed(name: &CStr, size_bytes: usize) -> Result<OwnedFd, Error> {
    let file = create_named(name, size_bytes)?;
    seal(&file, Sealed::Size)?;
    Ok(file)
}

fn create_named(name: &CStr, size_bytes: usize) -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = kept(rustix::fs::memfd_create(name, flags)).map_err(Error::system("make memory"))?;
    size(&file, size_bytes)?;
    Ok(file)
}

/// The size of the largest file that this process may create: RLIMIT_FSIZE, which also applies to
/// memory files.
pub fn file_bytes_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Sets the size of a memory file. Refuses a size above the limit, because the kernel would end
/// the process with SIGXFSZ.
fn size(file: &OwnedFd, size_bytes: usize) -> Result<(), Error> {
    let limit = file_bytes_max();
    if size_bytes as u64 > limit {
        let reason = format!(
            "{size_bytes} B exceed this process's limit on file sizes, {limit} B (RLIMIT_FSIZE)"
        );
        let reason = io::Error::new(io::ErrorKind::FileTooLarge, reason);
        return Err(Error::System { attempt: "size memory", reason });
    }
    rustix::fs::ftruncate(file, size_bytes as u64).map_err(Error::system("size memory"))
}

/// Creates a memory file of this size, and allocates all its pages. If `is_huge`, these are pages
/// of 2 MiB from the kernel's pool.
///
/// # Errors
/// [`Error::System`] if there is no memory for the pages.
pub fn create_filled(size_bytes: usize, is_huge: bool) -> Result<OwnedFd, Error> {
    let kind =
        if is_huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind;
    let made = kept(rustix::fs::memfd_create(c"haul-packets", flags));
    let file = made.map_err(Error::system("make memory"))?;
    size(&file, size_bytes)?;
    reserve(file.as_fd(), 0, size_bytes)?;
    Ok(file)
}

/// One call allocates the pages for this many bytes, in about 1 ms. If a signal interrupts the
/// call, kernels up to version 6.1 (Debian 12) free all its pages. So in a program with a timer,
/// the allocation of a large message in one call might never end. After an interruption, the next
/// call allocates half as much, down to a page, so that a timer of any rate cannot prevent the
/// allocation.
const RESERVE_BYTES: usize = 4 << 20;

/// Bytes of the smallest page on this architecture.
pub const PAGE_BYTES: usize = 4096;

/// Guards a mapping of a file with pages of `page_bytes` bytes. If a peer has removed a page, an
/// access does not end the process, and the guard records it. The caller must drop the guard
/// before it unmaps the mapping.
///
/// # Errors
/// [`Error::System`].
pub fn guarded(base: NonNull<u8>, size_bytes: usize, page_bytes: usize) -> Result<Guard, Error> {
    let size_bytes = size_bytes.next_multiple_of(page_bytes);
    let guard = Guard::new(base.addr().get(), size_bytes, page_bytes);
    guard.map_err(Error::system("guard memory that a peer can take away"))
}

/// Allocates the pages of a part of a memory file.
pub fn reserve(file: BorrowedFd<'_>, offset: usize, length: usize) -> Result<(), Error> {
    let (mut done, mut most) = (0, RESERVE_BYTES);
    loop {
        let (at, piece) = (offset + done, (length - done).min(most));
        match rustix::fs::fallocate(file, FallocateFlags::empty(), at as u64, piece as u64) {
            Err(Errno::INTR) => {
                most = (piece / 2).max(PAGE_BYTES);
                continue;
            }
            result => result.map_err(Error::system("allocate pages of shared memory"))?,
        }
        done += piece;
        if done == length {
            return Ok(());
        }
    }
}

/// Adds the seals of the contract.
///
/// # Errors
/// [`Error::System`].
pub fn seal(file: impl AsFd, contract: Sealed) -> Result<(), Error> {
    rustix::fs::fcntl_add_seals(file, contract.seals()).map_err(Error::system("seal memory"))
}

/// Whether memory has the seals of the contract.
pub fn is_sealed(file: impl AsFd, contract: Sealed) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(contract.seals()))
}

/// Refuses a descriptor that is not a memory file, or does not meet the contract.
///
/// # Errors
/// [`Error::Memory`], [`Error::System`].
pub fn check(file: BorrowedFd<'_>, size_bytes: usize, contract: Sealed) -> Result<(), Error> {
    let refuse = |found: String, expected| Err(Error::Memory { found, expected });
    // The seals are read first, because a size that is read before the seal may be outdated.
    // Also, a file without seals may be in a file system that the peer provides, which may never
    // answer.
    let Ok(found) = rustix::fs::fcntl_get_seals(file) else {
        return refuse("a descriptor that cannot be sealed".into(), "a memory file");
    };
    if !found.contains(contract.seals()) {
        return refuse(format!("memory with the seals {found:?}"), "memory whose size is sealed");
    }
    let status = rustix::fs::fstat(file).map_err(Error::system("inspect the peer's memory"))?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if kind != FileType::RegularFile {
        return refuse(format!("a descriptor of kind {kind:?}"), "a memory file");
    }
    let system = rustix::fs::fstatfs(file).map_err(Error::system("inspect the peer's memory"))?;
    if system.f_type as u64 != TMPFS_MAGIC {
        return refuse("memory of another file system".into(), "ordinary shared memory");
    }
    if status.st_size as u64 != size_bytes as u64 {
        return refuse(format!("memory of {} B", status.st_size), "the size that was agreed on");
    }
    // If no process may write to the memory any more, a missing page can never be allocated, so
    // an access might fail. Memory that is handed over must also be complete.
    let blocks = status.st_blocks as u64;
    if contract.has_all_pages() && blocks * BLOCK_BYTES < size_bytes as u64 {
        return refuse(format!("memory with {blocks} blocks"), "memory without holes");
    }
    Ok(())
}

/// Allocates every page of mapped, sealed memory before an access. The memory may have holes,
/// because the blocks that [`check`] counted may be after its end. With strict overcommit, an
/// access to a hole can fail and raise SIGBUS. Without strict overcommit it cannot fail, and this
/// function does nothing.
///
/// # Errors
/// [`Error::Memory`].
pub fn fill_holes(base: NonNull<u8>, size_bytes: usize) -> Result<(), Error> {
    static IS_STRICT: LazyLock<bool> = LazyLock::new(|| {
        let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
        mode.is_ok_and(|mode| mode.trim() == "2")
    });
    if *IS_STRICT { populate(base, size_bytes) } else { Ok(()) }
}

fn populate(base: NonNull<u8>, size_bytes: usize) -> Result<(), Error> {
    // SAFETY: the call reads pages of a mapping of this size that the caller owns, and does not
    // change the mapping.
    let result =
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), size_bytes, Advice::LinuxPopulateRead) };
    match result {
        // Linux before 5.14 does not support the advice.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(reason) => Err(Error::Memory {
            found: format!("memory with holes that cannot be filled ({reason})"),
            expected: "memory without holes",
        }),
    }
}

/// Maps a memory file that was checked, or that this process created.
pub fn map_file(
    file: BorrowedFd<'_>,
    size_bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    map_file_at(0, file, size_bytes, protection, flags)
}

/// Like [`map_file`], but at this address if nothing is mapped there. The flags must not replace
/// existing mappings.
pub fn map_file_at(
    address: usize,
    file: BorrowedFd<'_>,
    size_bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    map(address, file, (0, size_bytes), protection, flags)
}

/// Maps a part of a memory file, shared. `offset` must be a page boundary.
pub fn map_part(
    file: BorrowedFd<'_>,
    offset: usize,
    length: usize,
    protection: ProtFlags,
) -> Result<NonNull<u8>, Error> {
    map(0, file, (offset, length), protection, MapFlags::SHARED)
}

/// Maps a whole memory file for reading and writing at a multiple of `align`, a power of two, and
/// requests transparent huge pages.
///
/// # Errors
/// [`Error::System`].
pub fn map_aligned(
    file: BorrowedFd<'_>,
    size_bytes: usize,
    align: usize,
) -> Result<NonNull<u8>, Error> {
    let (none, anonymous) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    let whole = size_bytes + align;
    // SAFETY: a new mapping at an unused address affects no other memory.
    let free = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, none, anonymous) };
    let free = free.map_err(Error::system("reserve addresses"))?.cast::<u8>();
    let before = free.addr().next_multiple_of(align) - free.addr();
    let base = free.wrapping_add(before);
    let (flags, protection) =
        (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the replaced pages are inside the addresses that were just reserved here.
    let mapped = unsafe { rustix::mm::mmap(base.cast(), size_bytes, protection, flags, file, 0) };
    let unmap_part = |start: *mut u8, length: usize| {
        if let Some(start) = NonNull::new(start).filter(|_| length > 0) {
            unmap(start, length);
        }
    };
    match mapped {
        Ok(_) => {
            unmap_part(free, before);
            unmap_part(base.wrapping_add(size_bytes), align - before);
            // SAFETY: advice about a mapping that was just made does not change its content.
            let advice =
                unsafe { rustix::mm::madvise(base.cast(), size_bytes, Advice::LinuxHugepage) };
            // Kernels without transparent huge pages refuse the advice; then small pages suffice.
            let _ = advice;
        }
        Err(_) => unmap_part(free, whole),
    }
    mapped.map_err(Error::system("map memory"))?;
    NonNull::new(base).ok_or_else(|| Error::System {
        attempt: "map memory",
        reason: io::Error::from(io::ErrorKind::OutOfMemory),
    })
}

/// Populates the page table of a mapping, so that no later access causes a page fault. Linux
/// before 5.14 cannot do this, so the accesses populate the page table.
pub fn populate_to_write(base: NonNull<u8>, size_bytes: usize) {
    let advice = Advice::LinuxPopulateWrite;
    // SAFETY: the call populates pages of a mapping of this size that the caller owns, and does
    // not change their content.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), size_bytes, advice) };
}

fn map(
    address: usize,
    file: BorrowedFd<'_>,
    (offset, length): (usize, usize),
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<NonNull<u8>, Error> {
    debug_assert!(!flags.contains(MapFlags::FIXED), "the mapping must not replace another one");
    let address = std::ptr::without_provenance_mut(address);
    // SAFETY: a new mapping at an unused address affects no other memory.
    let base = unsafe { rustix::mm::mmap(address, length, protection, flags, file, offset as u64) };
    let base = base.map_err(Error::system("map memory"))?;
    NonNull::new(base.cast()).ok_or_else(|| Error::System {
        attempt: "map memory",
        reason: io::Error::from(io::ErrorKind::OutOfMemory),
    })
}

/// Unmaps a mapping that the caller owns. The caller must have no more references into it.
pub fn unmap(base: NonNull<u8>, size_bytes: usize) {
    // SAFETY: callers pass a mapping of exactly this size that they created and do not use any
    // more.
    let result = unsafe { rustix::mm::munmap(base.as_ptr().cast(), size_bytes) };
    debug_assert!(result.is_ok(), "munmap: {result:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_allocates_exactly_pages_of_range() {
        let size_bytes = 3 * RESERVE_BYTES;
        for (offset, length) in [(0, 4096), (4096, 2 * RESERVE_BYTES + 4096), (0, size_bytes)] {
            let file = create_file(size_bytes).unwrap();
            reserve(file.as_fd(), offset, length).unwrap();
            let blocks = rustix::fs::fstat(&file).unwrap().st_blocks as u64;
            assert_eq!(blocks * BLOCK_BYTES, length as u64, "{length} B at {offset}");
        }
        assert!(reserve(create_file(1).unwrap().as_fd(), 0, 0).is_err());
    }

    /// Pages after the end of a file count like other pages, so a file with such pages can have
    /// undetected holes.
    #[test]
    fn populate_fills_holes_hidden_by_blocks_behind_end() {
        let size_bytes = 64 << 10;
        let blocks = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks as u64;
        let file = create_file(size_bytes).unwrap();
        let (end, behind) = (size_bytes as u64, FallocateFlags::KEEP_SIZE);
        rustix::fs::fallocate(&file, behind, end, end).unwrap();
        seal(&file, Sealed::Bytes).unwrap();
        check(file.as_fd(), size_bytes, Sealed::Bytes).unwrap();
        let before = blocks(&file);
        let base = map_file(file.as_fd(), size_bytes, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
        populate(base, size_bytes).unwrap();
        assert_eq!((blocks(&file) - before) * BLOCK_BYTES, size_bytes as u64);
        unmap(base, size_bytes);
        // A page after the end of a file never exists.
        let base = map_file(file.as_fd(), 2 * size_bytes, ProtFlags::READ, MapFlags::PRIVATE);
        let result = populate(base.as_ref().copied().unwrap(), 2 * size_bytes);
        assert!(matches!(result, Err(Error::Memory { .. })), "{result:?}");
        unmap(base.unwrap(), 2 * size_bytes);
    }
}
