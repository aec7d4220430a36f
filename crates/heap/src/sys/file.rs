//! Files: memory files without a name, files of shared memory by name, small files read into a
//! buffer of the caller. Paths are built in place: nothing here allocates.

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

    /// Appends `piece`; one that does not fit makes the path unusable.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        // One byte stays for the end mark.
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

/// What the kernel says of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The user it belongs to.
    pub(crate) owner: u32,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Whether it is a regular file (memory files are).
    pub(crate) is_regular: bool,
    /// Its file system and its number there: no two files have both at once.
    pub(crate) identity: [u64; 2],
}

/// A new memory file without a name, of size zero, closed on exec: sharing it with a new program
/// is the caller's act.
pub(crate) fn create_unnamed(label: &CStr) -> Result<OwnedFd, Errno> {
    above_streams(fs::memfd_create(label, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
}

/// A new memory file without a name whose memory comes from the pool of huge pages of this size.
pub(crate) fn create_unnamed_huge(label: &CStr, size: HugeSize) -> Result<OwnedFd, Errno> {
    let size = match size {
        HugeSize::Mib2 => MemfdFlags::HUGE_2MB,
        HugeSize::Gib1 => MemfdFlags::HUGE_1GB,
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | size;
    above_streams(fs::memfd_create(label, flags)?)
}

/// Bytes of a page of the pool that the file's memory comes from; `None` for a file of plain
/// memory.
pub(crate) fn huge_page_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    /// `HUGETLBFS_MAGIC` of the kernel's `include/uapi/linux/magic.h`.
    const HUGETLBFS: u32 = 0x9584_58f6;
    let told = fs::fstatfs(file).ok()?;
    (told.f_type as u32 == HUGETLBFS).then(|| told.f_bsize.max(0) as u64)
}

/// A new file at `path` for this user alone; `EXIST` where the name is taken.
pub(crate) fn create_named(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    above_streams(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Opens the file at `path` for reading and writing; a symbolic link is refused with `LOOP`.
pub(crate) fn open_named(path: &CStr) -> Result<OwnedFd, Errno> {
    // NONBLOCK: a FIFO planted under the name must not hold us up.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    above_streams(fs::open(path, flags, Mode::empty())?)
}

/// A handle of a file that a process has open, by its link in `/proc`, to ask what it is. It opens
/// nothing: a device does something when it is opened.
pub(crate) fn handle(path: &CStr) -> Result<OwnedFd, Errno> {
    fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// A handle of what this process has open under a number.
pub(crate) fn handle_of_own(number: u32) -> Result<OwnedFd, Errno> {
    handle(own_link(number).as_c_str()?)
}

/// Opens the file of a handle for reading and writing.
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

/// [`Facts::identity`] as the kernel has it at hand: a file system in another process is not asked,
/// which may never answer.
pub(crate) fn cached_identity(file: BorrowedFd<'_>) -> Result<[u64; 2], Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = fs::statx(file, c"", flags, StatxFlags::INO)?;
    Ok([fs::makedev(told.stx_dev_major, told.stx_dev_minor), told.stx_ino])
}

/// The number of the file system that a path leads into.
pub(crate) fn device_at(path: &CStr) -> Result<u64, Errno> {
    fs::stat(path).map(|stat| stat.st_dev)
}

/// The number of the file that a path leads to, through links too.
pub(crate) fn number_of(path: &CStr) -> Result<u64, Errno> {
    fs::stat(path).map(|stat| stat.st_ino)
}

/// The user of what is at a path, a link itself and not what it leads to.
pub(crate) fn owner_at(path: &CStr) -> Result<u32, Errno> {
    fs::lstat(path).map(|stat| stat.st_uid)
}

/// Takes the name away; the file lives on until the last mapping of it goes.
pub(crate) fn remove_named(path: &CStr) -> Result<(), Errno> {
    fs::unlink(path)
}

/// Asks the kernel what an open file is. One system call.
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

/// Sets the size in bytes; what is new reads as zeros and takes no memory. `FBIG` where the process
/// may make no file so long (RLIMIT_FSIZE): asked for all the same, the kernel would not only
/// refuse it but also send SIGXFSZ, which ends a program.
pub(crate) fn set_size(file: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    can_have_size(bytes)?;
    fs::ftruncate(file, bytes)
}

/// Whether this process may make a file so long.
pub(crate) fn can_have_size(bytes: u64) -> Result<(), Errno> {
    if bytes <= limit::of(Resource::Fsize) { Ok(()) } else { Err(Errno::FBIG) }
}

/// Keeps everybody from making a memory file shorter, so that no mapping of it can lose its end.
/// Only files without a name can be sealed; `INVAL` for others.
pub(crate) fn seal_size(file: BorrowedFd<'_>) -> Result<(), Errno> {
    fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

/// Whether nobody can make the file shorter. That stays so: a seal is never taken off.
pub(crate) fn is_size_sealed(file: BorrowedFd<'_>) -> bool {
    fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Gives a part of the file memory, or none of it: `NOSPC` where its file system is full.
pub(crate) fn allocate(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
    loop {
        match fs::fallocate(file, fs::FallocateFlags::KEEP_SIZE, offset, bytes) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Bytes that are free in the file's file system; all there could be where it has no limit.
pub(crate) fn free_bytes(file: BorrowedFd<'_>) -> u64 {
    match fs::fstatfs(file) {
        // A memory file system without a limit tells no blocks at all.
        Ok(told) if told.f_blocks > 0 => told.f_bavail.saturating_mul(told.f_bsize.max(0) as u64),
        _ => u64::MAX,
    }
}

/// A second descriptor of the same file, closed on exec.
pub(crate) fn duplicate(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(file, FIRST_NUMBER).map_err(|errno| match errno {
        // The limit of open files lies below the number: fcntl(2).
        Errno::INVAL => Errno::MFILE,
        errno => errno,
    })
}

/// The lowest number of a descriptor that is kept: below are the standard streams, which a program
/// may have closed, and to whose numbers it and its libraries write all the same.
const FIRST_NUMBER: i32 = 3;

/// The same file under a number that is none of the standard streams'. No system call unless it has
/// one of those.
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

/// Reads exactly `buffer.len()` bytes at `offset`: false where the file is shorter.
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

/// Reads exactly `buffer.len()` bytes at `offset` of the file at `path`: false where it is shorter.
pub(crate) fn read_path_at(path: &CStr, buffer: &mut [u8], offset: u64) -> Result<bool, Errno> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_at(file.as_fd(), buffer, offset)
}

/// The decimal number that `text` begins with; `None` without a digit or past 64 bits.
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
    fn a_path_is_built_and_bounded() {
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
    fn a_file_is_known_before_it_is_opened() {
        let file = create_unnamed(c"haul-test").unwrap();
        let handle = handle_of_own(file.as_raw_fd() as u32).unwrap();
        let identity = facts(file.as_fd()).unwrap().identity;
        assert_eq!(cached_identity(handle.as_fd()), Ok(identity));
        // It is open for nothing.
        assert!(rustix::io::write(&handle, &[1]).is_err());
        let again = reopen(handle.as_fd()).unwrap();
        assert_eq!(facts(again.as_fd()).unwrap().identity, identity);
        assert_eq!(rustix::io::write(&again, &[1]), Ok(1));
    }

    #[test]
    fn a_sealed_file_keeps_its_size() {
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
