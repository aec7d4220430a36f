//! Files: memory files without a name, named files of shared memory, and small files that are
//! read into a caller's buffer. Paths are built in place, so no function here allocates.

use core::ffi::CStr;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, MemfdFlags, Mode, OFlags, SealFlags, StatxFlags};

use super::Errno;
use super::huge::HugeSize;
use super::limit::{self, Resource};

/// A path of fewer than `N` bytes, built piece by piece.
#[derive(Clone, Copy)]
pub(crate) struct Path<const N: usize> {
    bytes: [u8; N],
    length: usize,
    is_cut: bool,
}

impl<const N: usize> Path<N> {
    /// The empty path.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], length: 0, is_cut: false }
    }

    /// Appends `piece`. If `piece` does not fit, the path becomes invalid.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        // One byte is reserved for the terminating zero.
        let end = self.length + piece.len();
        if end >= N || piece.contains(&0) {
            self.is_cut = true;
            return;
        }
        self.bytes[self.length..end].copy_from_slice(piece);
        self.length = end;
    }

    /// Appends a number in decimal.
    pub(crate) fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[start..]);
    }

    /// The path for a system call.
    pub(crate) fn as_c_str(&self) -> Result<&CStr, Errno> {
        if self.is_cut {
            return Err(Errno::NAMETOOLONG);
        }
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)
    }
}

/// The attributes of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The user that owns the file.
    pub(crate) owner: u32,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether it is a regular file (memory files are).
    pub(crate) is_regular: bool,
    /// The numbers of its file system and its inode, which together are unique.
    pub(crate) identity: [u64; 2],
}

/// Creates a memory file without a name, of size zero, closed on exec. The caller decides whether
/// to share the file with a new program.
pub(crate) fn create_unnamed(label: &CStr) -> Result<OwnedFd, Errno> {
    above_streams(fs::memfd_create(label, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
}

/// Creates a memory file without a name. Its memory comes from the pool of huge pages of this
/// size.
pub(crate) fn create_unnamed_huge(label: &CStr, size: HugeSize) -> Result<OwnedFd, Errno> {
    let size = match size {
        HugeSize::Mib2 => MemfdFlags::HUGE_2MB,
        HugeSize::Gib1 => MemfdFlags::HUGE_1GB,
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | size;
    above_streams(fs::memfd_create(label, flags)?)
}

/// The page size of the pool from which the file's memory comes; `None` for plain memory.
pub(crate) fn huge_page_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    /// `HUGETLBFS_MAGIC` in the kernel's `include/uapi/linux/magic.h`.
    const HUGETLBFS: u32 = 0x9584_58f6;
    let status = fs::fstatfs(file).ok()?;
    (status.f_type as u32 == HUGETLBFS).then(|| status.f_bsize.max(0) as u64)
}

/// Creates a file at `path` for this user alone; `EXIST` if the name is in use.
pub(crate) fn create_named(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_streams(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Opens the file at `path` for reading and writing; refuses a symbolic link with `LOOP`.
pub(crate) fn open_named(path: &CStr) -> Result<OwnedFd, Errno> {
    // NONBLOCK: another user may have created a FIFO with this name, and opening it must not
    // block.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    above_streams(fs::open(path, flags, Mode::empty())?)
}

/// A handle for inspecting a file that a process has open. `path` is the file's link in `/proc`.
/// The file itself is not opened, because opening a device can have side effects.
pub(crate) fn handle(path: &CStr) -> Result<OwnedFd, Errno> {
    fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// A handle of the file that this process has open with the descriptor `number`.
pub(crate) fn handle_of_own(number: u32) -> Result<OwnedFd, Errno> {
    handle(own_link(number).as_c_str()?)
}

/// Opens the file to which a handle belongs for reading and writing.
pub(crate) fn reopen(handle: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let path = own_link(handle.as_raw_fd() as u32);
    above_streams(fs::open(path.as_c_str()?, flags, Mode::empty())?)
}

fn own_link(number: u32) -> Path<32> {
    let mut path = Path::new();
    path.push(b"/proc/self/fd/");
    path.push_number(number.into());
    path
}

/// [`Facts::identity`] from the kernel's cache. Does not ask a file system in user space, which
/// may never answer.
pub(crate) fn cached_identity(file: BorrowedFd<'_>) -> Result<[u64; 2], Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = fs::statx(file, c"", flags, StatxFlags::INO)?;
    Ok([fs::makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino])
}

/// The device number of the file system that contains a path.
pub(crate) fn device_at(path: &CStr) -> Result<u64, Errno> {
    fs::stat(path).map(|stat| stat.st_dev)
}

/// The inode number of the file at a path. Follows links.
pub(crate) fn number_of(path: &CStr) -> Result<u64, Errno> {
    fs::stat(path).map(|stat| stat.st_ino)
}

/// The owner of the file at a path. Does not follow links.
pub(crate) fn owner_at(path: &CStr) -> Result<u32, Errno> {
    fs::lstat(path).map(|stat| stat.st_uid)
}

/// Removes a file's name. The file exists until its last mapping is unmapped.
pub(crate) fn remove_named(path: &CStr) -> Result<(), Errno> {
    fs::unlink(path)
}

/// The attributes of an open file. One system call.
pub(crate) fn facts(file: BorrowedFd<'_>) -> Result<Facts, Errno> {
    let stat = fs::fstat(file)?;
    Ok(Facts {
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        size: stat.st_size.max(0) as u64,
        is_regular: fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile,
        identity: [stat.st_dev, stat.st_ino],
    })
}

/// Sets the file's size in bytes. The new part reads as zeros and uses no memory. `FBIG` if the
/// process may not create a file of this size (RLIMIT_FSIZE). The size is checked first, because
/// the kernel would also send SIGXFSZ, which ends the program.
pub(crate) fn set_size(file: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    can_have_size(bytes)?;
    fs::ftruncate(file, bytes)
}

/// An error if this process may not create a file of `bytes` bytes.
pub(crate) fn can_have_size(bytes: u64) -> Result<(), Errno> {
    if bytes <= limit::of(Resource::Fsize) { Ok(()) } else { Err(Errno::FBIG) }
}

/// Seals the size of a memory file, so that no mapping of the file can lose its end.
pub(crate) fn seal_size(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

/// Whether no process can truncate the file. A seal cannot be removed.
pub(crate) fn is_size_sealed(file: BorrowedFd<'_>) -> bool {
    fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Allocates memory for a part of the file. On an error, allocates none; the error is `NOSPC` if
/// the file system is full.
pub(crate) fn allocate(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
    loop {
        match fs::fallocate(file, fs::FallocateFlags::KEEP_SIZE, offset, bytes) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The number of free bytes in the file's file system; `u64::MAX` if the file system has no
/// limit.
pub(crate) fn free_bytes(file: BorrowedFd<'_>) -> u64 {
    match fs::fstatfs(file) {
        // A memory file system without a limit reports 0 blocks.
        Ok(status) if status.f_blocks > 0 => {
            status.f_bavail.saturating_mul(status.f_bsize.max(0) as u64)
        }
        _ => u64::MAX,
    }
}

/// A second descriptor of a file, closed on exec.
pub(crate) fn duplicate(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(file, FIRST_NUMBER).map_err(|errno| match errno {
        // The limit of open files is below `FIRST_NUMBER`: fcntl(2).
        Errno::INVAL => Errno::MFILE,
        errno => errno,
    })
}

/// The lowest descriptor that the heap keeps. Lower descriptors are the standard streams. A
/// program may have closed them, but the program and its libraries may still write to these
/// descriptors.
const FIRST_NUMBER: i32 = 3;

/// Moves a file to a descriptor above the standard streams. Makes no system call if its
/// descriptor is already above them.
fn above_streams(file: OwnedFd) -> Result<OwnedFd, Errno> {
    match file.as_raw_fd() < FIRST_NUMBER {
        true => duplicate(file.as_fd()),
        false => Ok(file),
    }
}

/// Reads at most `buffer.len()` bytes from the start of the file at `path`.
pub(crate) fn read_small<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let mut length = 0;
    while length < buffer.len() {
        match rustix::io::read(&file, &mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..length])
}

/// Reads exactly `buffer.len()` bytes at `offset`. Returns false if the file is shorter.
pub(crate) fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<bool, Errno> {
    let mut length = 0;
    while length < buffer.len() {
        match rustix::io::pread(file, &mut buffer[length..], offset + length as u64) {
            Ok(0) => return Ok(false),
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads exactly `buffer.len()` bytes at `offset` of the file at `path`. Returns false if the
/// file is shorter.
pub(crate) fn read_path_at(path: &CStr, buffer: &mut [u8], offset: u64) -> Result<bool, Errno> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_at(file.as_fd(), buffer, offset)
}

/// The decimal number at the start of `text`; `None` if there is no digit or the number exceeds
/// 64 bits.
pub(crate) fn parse_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let (number, count) = digits.fold((Some(0_u64), 0), |(number, count), digit| {
        let next = number
            .and_then(|number| number.checked_mul(10))
            .and_then(|number| number.checked_add(u64::from(digit - b'0')));
        (next, count + 1)
    });
    number.filter(|_| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    #[test]
    fn path_is_built_and_bounded() {
        let mut path = Path::<12>::new();
        path.push(b"/proc/");
        path.push_number(4071);
        assert_eq!(path.as_c_str().unwrap(), c"/proc/4071");
        path.push(b"/x");
        assert_eq!(path.as_c_str(), Err(Errno::NAMETOOLONG));
        let mut hostile = Path::<12>::new();
        hostile.push(b"a\0b");
        assert_eq!(hostile.as_c_str(), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn numbers_are_parsed_or_refused() {
        assert_eq!(parse_number(b"0"), Some(0));
        assert_eq!(parse_number(b"123 kB"), Some(123));
        assert_eq!(parse_number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b" 1", b"x", b"18446744073709551616"] {
            assert_eq!(parse_number(bad), None);
        }
    }

    #[test]
    fn handle_identifies_file_without_opening_it() {
        let file = create_unnamed(c"haul-test").unwrap();
        let handle = handle_of_own(file.as_raw_fd() as u32).unwrap();
        let identity = facts(file.as_fd()).unwrap().identity;
        assert_eq!(cached_identity(handle.as_fd()), Ok(identity));
        // It is not possible to read or write through the handle.
        assert!(rustix::io::write(&handle, &[1]).is_err());
        let again = reopen(handle.as_fd()).unwrap();
        assert_eq!(facts(again.as_fd()).unwrap().identity, identity);
        assert_eq!(rustix::io::write(&again, &[1]), Ok(1));
    }

    #[test]
    fn sealed_file_keeps_its_size() {
        let file = create_unnamed(c"haul-test").unwrap();
        set_size(file.as_fd(), 8192).unwrap();
        assert!(!is_size_sealed(file.as_fd()));
        seal_size(file.as_fd()).unwrap();
        assert!(is_size_sealed(file.as_fd()));
        assert!(set_size(file.as_fd(), 4096).is_err());
        let facts = facts(file.as_fd()).unwrap();
        assert_eq!((facts.size, facts.is_regular), (8192, true));
        let mut past = [0; 2];
        assert_eq!(read_at(file.as_fd(), &mut past, 8191), Ok(false));
        assert_eq!(read_at(file.as_fd(), &mut past, 8190), Ok(true));
    }
}
