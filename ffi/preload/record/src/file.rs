//! The trace's file: created, grown a block at a time, and mapped. System calls only, and none of
//! them through libc, which would change `errno` and be a place where a thread is cancelled.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use haul_model::trace::{HEADER_BYTES, Header, PROGRAM_BYTES};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;

use crate::filter;

/// How far apart blocks begin, in bytes: about 8,000 events, so that one in 8,000 calls costs the
/// few microseconds of a new block; a multiple of every page size, for each is mapped.
pub(crate) const BLOCK_BYTES: u32 = 64 << 10;

/// Where the first block begins: the largest page of a supported machine, for it is mapped.
const FIRST_BLOCK_AT: u64 = 64 << 10;

/// The longest name of a trace's file, in bytes: Linux's PATH_MAX.
pub(crate) const PATH_BYTES: usize = 4096;

/// How many names are tried for a process that replaced itself by another program (`exec`).
const NAMES_MAX: u32 = 100;

/// The most that is kept ready for a process that filters its system calls, in bytes: some two
/// million events. It is taken from the disk whether it is used or not.
const RESERVE_BYTES: u64 = 16 << 20;

/// The descriptor that the last process to begin a trace keeps, and its file: a forked child closes
/// what it inherits.
static KEPT: AtomicI32 = AtomicI32::new(NONE);
static KEPT_DEVICE: AtomicU64 = AtomicU64::new(0);
static KEPT_INODE: AtomicU64 = AtomicU64::new(0);
const NONE: i32 = -1;

/// The file that one process writes. Zeros stand for none, as a forked child finds it.
pub(crate) struct File {
    path: UnsafeCell<[u8; PATH_BYTES]>,
    device: AtomicU64,
    inode: AtomicU64,
    end: AtomicU64,
    /// The most bytes that it may grow to.
    limit: AtomicU64,
    /// Times count from here: `CLOCK_MONOTONIC`, in nanoseconds.
    clock_ns: AtomicU64,
    /// What was mapped beforehand for a process that filters its system calls, and how much of it
    /// was given out.
    reserve: AtomicPtr<u8>,
    reserve_bytes: AtomicU64,
    reserve_used: AtomicU64,
    /// Whether a thread has begun to map that: one does.
    is_reserving: AtomicBool,
    pub(crate) process: AtomicU32,
}

/// Why there is no trace, or no more of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The kernel said so.
    System(Errno),
    /// The limit of `HAUL_RECORD_LIMIT` or of the process (RLIMIT_FSIZE).
    Limit,
    /// Under the trace's name stands another file.
    Replaced,
    /// The file was made shorter than what of it was mapped.
    Cut,
    /// The process filters its system calls, and what was mapped beforehand is used up.
    Filtered,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl File {
    /// Creates the file: `base` with `%p` in its last part replaced by the process, or with the
    /// process appended; and with a number where that exists. Called once in a process.
    pub(crate) fn create(&self, base: &[u8], parent: u32, limit: u64) -> Result<(), Failure> {
        let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
        close_inherited();
        let file = self.open_new(base, process)?;
        let begun = self.begin(&file, process, parent, limit);
        if begun.is_err()
            && let Ok(name) = self.name()
        {
            // It is ours, and says nothing.
            let _ = rustix::fs::unlinkat(CWD, name, AtFlags::empty());
        }
        begun
    }

    fn begin(&self, file: &OwnedFd, process: u32, parent: u32, limit: u64) -> Result<(), Failure> {
        let status = rustix::fs::fstat(file)?;
        self.device.store(status.st_dev, Ordering::Relaxed);
        self.inode.store(status.st_ino, Ordering::Relaxed);
        self.end.store(FIRST_BLOCK_AT, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        self.clock_ns.store(clock_ns(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
        self.allocate(file, 0, FIRST_BLOCK_AT)?;
        let header = Header {
            header_bytes: FIRST_BLOCK_AT as u32,
            block_bytes: BLOCK_BYTES,
            process,
            parent,
            started_unix_ns: clock_ns(libc::CLOCK_REALTIME),
            clock_ns: self.clock_ns.load(Ordering::Relaxed),
            program: program(),
        };
        if rustix::io::pwrite(file, &header.to_bytes(), 0)? != HEADER_BYTES {
            return Err(Errno::IO.into());
        }
        keep(file, status.st_dev, status.st_ino);
        Ok(())
    }

    /// Nanoseconds since the trace began, of a time that [`clock_ns`] told.
    pub(crate) fn since_start_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_sub(self.clock_ns.load(Ordering::Relaxed))
    }

    /// A block of the file, mapped: zeros, which the caller alone writes. Where there is a reserve
    /// it comes from there, without a system call; else the file grows.
    pub(crate) fn map_block(&self) -> Result<NonNull<u8>, Failure> {
        if let Some(reserve) = NonNull::new(self.reserve.load(Ordering::Acquire)) {
            let used = self.reserve_used.fetch_add(BLOCK_BYTES.into(), Ordering::Relaxed);
            if used < self.reserve_bytes.load(Ordering::Relaxed) {
                // SAFETY: the reserve is a whole number of blocks, and this one lies in it.
                return Ok(unsafe { reserve.add(used as usize) });
            }
        }
        if filter::is_on() {
            return Err(Failure::Filtered);
        }
        self.grow(BLOCK_BYTES.into())
    }

    /// Maps blocks beforehand, as many as there is room for, so that the next ones take no system
    /// call.
    pub(crate) fn reserve(&self) {
        if self.is_reserving.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut length = RESERVE_BYTES;
        while length >= BLOCK_BYTES.into() {
            if let Ok(reserve) = self.grow(length) {
                self.reserve_bytes.store(length, Ordering::Relaxed);
                self.reserve.store(reserve.as_ptr(), Ordering::Release);
                return;
            }
            length /= 2;
        }
    }

    /// Whether a block is of the reserve, which stays as it is: a part of it that was unmapped
    /// would be replaced with the rest where the trace is cut, whoever has it by then.
    pub(crate) fn is_reserved(&self, block: NonNull<u8>) -> bool {
        let (reserve, length) = self.reserved();
        !reserve.is_null() && block.addr().get().wrapping_sub(reserve.addr()) < length
    }

    /// Where the reserve lies, and how long it is.
    pub(crate) fn reserved(&self) -> (*mut u8, usize) {
        let reserve = self.reserve.load(Ordering::Acquire);
        (reserve, self.reserve_bytes.load(Ordering::Relaxed) as usize)
    }

    /// Grows the file by whole blocks and maps them.
    fn grow(&self, bytes: u64) -> Result<NonNull<u8>, Failure> {
        let opened = self.open_again();
        let file = match &opened {
            Ok(file) => file.as_fd(),
            Err(Failure::Replaced) => return Err(Failure::Replaced),
            // The name leads nowhere for this process any more: another user, another root.
            Err(failure) => self.kept().ok_or(*failure)?,
        };
        let at = self.end.fetch_add(bytes, Ordering::Relaxed);
        if let Err(failure) = self.allocate(file, at, bytes) {
            // The next may ask for less. Where another thread has grown the file meanwhile, it has
            // a hole.
            let (end, now) = (at + bytes, Ordering::Relaxed);
            let _ = self.end.compare_exchange(end, at, now, now);
            return Err(failure);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = bytes as usize;
        // SAFETY: a new mapping, at no address that anything else has. The file was grown beyond
        // it, so that a store into it finds its page.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, at)
        }?;
        NonNull::new(mapped.cast()).ok_or(Failure::System(Errno::NOMEM))
    }

    fn open_new(&self, base: &[u8], process: u32) -> Result<OwnedFd, Failure> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // SAFETY: nobody reads the path before `create`, which calls this, is over.
        let path = unsafe { &mut *self.path.get() };
        for attempt in 0..NAMES_MAX {
            let name = name(path, base, process, attempt).ok_or(Errno::NAMETOOLONG)?;
            match rustix::fs::openat(CWD, name, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                opened => return Ok(above_streams(opened?)?),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Opens the file by its name, and makes sure that it is the one that was created.
    fn open_again(&self) -> Result<OwnedFd, Failure> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = above_streams(rustix::fs::openat(CWD, self.name()?, flags, Mode::empty())?)?;
        if self.is_ours(file.as_fd()) { Ok(file) } else { Err(Failure::Replaced) }
    }

    fn name(&self) -> Result<&CStr, Errno> {
        // SAFETY: it was written before the first block was asked for, and never since.
        let path = unsafe { &*self.path.get() };
        CStr::from_bytes_until_nul(path).map_err(|_| Errno::NAMETOOLONG)
    }

    /// The descriptor that was kept, where the program has left it open, and the file is still
    /// there.
    fn kept(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = KEPT.load(Ordering::Relaxed);
        if descriptor == NONE {
            return None;
        }
        // SAFETY: it is not -1. Whether it is open, and what it is, is asked next; a program that
        // closes it in between gets an error, for it is used at once.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        self.is_ours(file).then_some(file)
    }

    /// Whether a descriptor is of the file that was created, and that still has a name.
    fn is_ours(&self, file: BorrowedFd<'_>) -> bool {
        let (device, inode) = (&self.device, &self.inode);
        is_of(file, device.load(Ordering::Relaxed), inode.load(Ordering::Relaxed))
    }

    /// Makes the file's bytes real: a store into a hole of a full disk would end the program.
    fn allocate(&self, file: impl AsFd, at: u64, length: u64) -> Result<(), Failure> {
        // Beyond this limit the kernel would not only refuse but also send SIGXFSZ.
        let allowed = rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if at.saturating_add(length) > allowed.min(self.limit.load(Ordering::Relaxed)) {
            return Err(Failure::Limit);
        }
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file.as_fd(), at, length),
            allocated => Ok(allocated?),
        }
    }
}

/// The same file under a number that is none of the standard streams': another thread of a program
/// that closed one may write to its number meanwhile.
fn above_streams(file: OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST_NUMBER: i32 = 3;
    match file.as_raw_fd() < FIRST_NUMBER {
        true => rustix::io::fcntl_dupfd_cloexec(&file, FIRST_NUMBER),
        false => Ok(file),
    }
}

/// Keeps a descriptor for the time when the file cannot be opened by its name. High, for programs
/// count on the lowest to be free.
fn keep(file: &OwnedFd, device: u64, inode: u64) {
    // Above it the kernel's table for this process would grow.
    const HIGHEST: u64 = 1024;
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(HIGHEST);
    let from = limit.min(HIGHEST) * 15 / 16;
    let kept =
        rustix::io::fcntl_dupfd_cloexec(file, from as i32).map_or(NONE, OwnedFd::into_raw_fd);
    KEPT_DEVICE.store(device, Ordering::Relaxed);
    KEPT_INODE.store(inode, Ordering::Relaxed);
    KEPT.store(kept, Ordering::Relaxed);
}

/// Closes what the parent kept, where it is still that.
fn close_inherited() {
    let descriptor = KEPT.swap(NONE, Ordering::Relaxed);
    if descriptor == NONE {
        return;
    }
    // SAFETY: it is not -1, and what it is, is asked before anything else.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if is_of(file, KEPT_DEVICE.load(Ordering::Relaxed), KEPT_INODE.load(Ordering::Relaxed)) {
        // SAFETY: it is the recorder's own, and nothing else leads to it any more.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

fn is_of(file: BorrowedFd<'_>, device: u64, inode: u64) -> bool {
    rustix::fs::fstat(file).is_ok_and(|status| {
        status.st_dev == device
            && status.st_ino == inode
            && status.st_nlink > 0
            && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
    })
}

/// Writes zeros, where the file system has no call for it.
fn fill(file: BorrowedFd<'_>, at: u64, length: u64) -> Result<(), Failure> {
    static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    let mut written = 0;
    while written < length {
        let rest = (length - written).min(ZEROS.len() as u64) as usize;
        let zeros = ZEROS.get(..rest).unwrap_or(&ZEROS);
        match rustix::io::pwrite(file, zeros, at + written)? {
            0 => return Err(Errno::NOSPC.into()),
            more => written += more as u64,
        }
    }
    Ok(())
}

/// Gives a mapped block back.
///
/// # Safety
/// It came from [`File::map_block`] and is not used any more.
pub(crate) unsafe fn unmap_block(block: NonNull<u8>) {
    // SAFETY: the whole mapping, by the caller's promise. It cannot fail for one that is there.
    let _ = unsafe { rustix::mm::munmap(block.as_ptr().cast(), BLOCK_BYTES as usize) };
}

/// A clock in nanoseconds; 0 where it cannot be read. No system call where the kernel has a page
/// for it.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec, which is ours. It leaves errno alone where it succeeds, and
    // these two clocks are always there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The program's name, as the kernel has it.
fn program() -> [u8; PROGRAM_BYTES] {
    let mut name = [0; PROGRAM_BYTES];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(CWD, c"/proc/self/comm", flags, Mode::empty()) {
        let _ = rustix::io::read(&file, &mut name);
    }
    for byte in &mut name {
        *byte = if *byte == b'\n' { 0 } else { *byte };
    }
    name
}

/// `base` with each `%p` of its last part replaced by the process, or else with the process
/// appended; a second attempt has its number appended.
fn name<'a>(
    path: &'a mut [u8; PATH_BYTES],
    base: &[u8],
    process: u32,
    attempt: u32,
) -> Option<&'a CStr> {
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        let end = length + bytes.len();
        path.get_mut(length..end)?.copy_from_slice(bytes);
        length = end;
        Some(())
    };
    let mut digits = [0; 10];
    let process = decimal(process, &mut digits);
    // A folder of this name is one that is there.
    let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    put(base.get(..folder)?)?;
    let mut rest = base.get(folder..)?;
    let mut has_process = false;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        put(rest.get(..at)?)?;
        put(process)?;
        rest = rest.get(at + 2..)?;
        has_process = true;
    }
    put(rest)?;
    if !has_process {
        put(b".")?;
        put(process)?;
    }
    if attempt > 0 {
        put(b".")?;
        put(decimal(attempt, &mut [0; 10]))?;
    }
    put(b"\0")?;
    CStr::from_bytes_until_nul(path).ok()
}

/// A number in decimal, in the last bytes of `digits`.
pub(crate) fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut start = digits.len();
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        start = index;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or_default()
}
