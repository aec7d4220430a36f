//! The trace's file: creates it, grows it block by block, and maps it. This module makes system
//! calls without libc, which would change `errno` and add cancellation points.

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

/// The size of a block in bytes: about 8,000 events. So only one call in 8,000 costs the few
/// microseconds of a new block. The size is a multiple of every page size, because each block is
/// mapped.
pub(crate) const BLOCK_BYTES: u32 = 64 << 10;

/// The offset of the first block. The offset is the largest page size of a supported machine,
/// because the block is mapped.
const FIRST_BLOCK_AT: u64 = 64 << 10;

/// The longest name of a trace's file, in bytes: Linux's PATH_MAX.
pub(crate) const PATH_BYTES: usize = 4096;

/// The number of names that are tried for a process that replaced itself with another program
/// (`exec`).
const NAMES_MAX: u32 = 100;

/// The largest reserve for a process that filters its system calls, in bytes: some two million
/// events. The reserve uses disk space even if it is not used.
const RESERVE_BYTES: u64 = 16 << 20;

/// The descriptor that is kept by the process which last began a trace, and the descriptor's
/// file. A forked child closes the inherited descriptor.
static KEPT: AtomicI32 = AtomicI32::new(NONE);
static KEPT_DEVICE: AtomicU64 = AtomicU64::new(0);
static KEPT_INODE: AtomicU64 = AtomicU64::new(0);
const NONE: i32 = -1;

/// The file that one process writes. All zeros mean that there is no file; a forked child starts
/// in this state.
pub(crate) struct File {
    path: UnsafeCell<[u8; PATH_BYTES]>,
    device: AtomicU64,
    inode: AtomicU64,
    end: AtomicU64,
    /// The largest size in bytes.
    limit: AtomicU64,
    /// The start of the recording, from which times count: `CLOCK_MONOTONIC`, in nanoseconds.
    clock_ns: AtomicU64,
    /// The blocks that were mapped in advance for a process that filters its system calls, and
    /// how many of their bytes are used.
    reserve: AtomicPtr<u8>,
    reserve_bytes: AtomicU64,
    reserve_used: AtomicU64,
    /// Whether a thread has started to map the reserve. Only one thread does.
    is_reserving: AtomicBool,
    pub(crate) process: AtomicU32,
}

/// The reason why a trace cannot begin or continue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The kernel returned an error.
    System(Errno),
    /// The limit of `HAUL_RECORD_LIMIT` or of the process (RLIMIT_FSIZE).
    Limit,
    /// Another file has the trace's name.
    Replaced,
    /// The file was truncated below its mapped part.
    Cut,
    /// The process filters its system calls, and the reserve is used up.
    Filtered,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl File {
    /// Creates the file. The file's name is `base` with each `%p` in the last part replaced by
    /// the process ID, or with the process ID appended; if that file exists, a number is
    /// appended. Each process calls this once.
    pub(crate) fn create(&self, base: &[u8], parent: u32, limit: u64) -> Result<(), Failure> {
        let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
        close_inherited();
        let file = self.open_new(base, process)?;
        let begun = self.begin(&file, process, parent, limit);
        if begun.is_err()
            && let Ok(name) = self.name()
        {
            // The file was just created and is empty.
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

    /// Converts a time of [`clock_ns`] to nanoseconds since the trace began.
    pub(crate) fn since_start_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_sub(self.clock_ns.load(Ordering::Relaxed))
    }

    /// Maps a block of the file. The block is all zeros, and only the caller writes it. If there
    /// is a reserve, the block comes from it without a system call; otherwise the file grows.
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

    /// Maps as many blocks in advance as there is room for, so that the next blocks need no system
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

    /// Whether a block belongs to the reserve, which stays mapped. If the trace is truncated, the
    /// whole reserve is replaced. If a part of it had been unmapped, its addresses could belong
    /// to another mapping by then.
    pub(crate) fn is_reserved(&self, block: NonNull<u8>) -> bool {
        let (reserve, length) = self.reserved();
        !reserve.is_null() && block.addr().get().wrapping_sub(reserve.addr()) < length
    }

    /// The address and the length of the reserve.
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
            // This process can no longer open the name, for example as another user or with another
            // root.
            Err(failure) => self.kept().ok_or(*failure)?,
        };
        let at = self.end.fetch_add(bytes, Ordering::Relaxed);
        if let Err(failure) = self.allocate(file, at, bytes) {
            // The next request may be smaller. If another thread has grown the file meanwhile, the
            // file keeps a hole.
            let (end, now) = (at + bytes, Ordering::Relaxed);
            let _ = self.end.compare_exchange(end, at, now, now);
            return Err(failure);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = bytes as usize;
        // SAFETY: a new mapping, at an address that the kernel chooses. The file reaches beyond
        // the mapping, so a store into it does not fault.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, at)
        }?;
        NonNull::new(mapped.cast()).ok_or(Failure::System(Errno::NOMEM))
    }

    fn open_new(&self, base: &[u8], process: u32) -> Result<OwnedFd, Failure> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // SAFETY: the path is not read before `create`, the caller, has returned.
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

    /// Opens the file by its name, and checks that it is the file that was created.
    fn open_again(&self) -> Result<OwnedFd, Failure> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = above_streams(rustix::fs::openat(CWD, self.name()?, flags, Mode::empty())?)?;
        if self.is_ours(file.as_fd()) { Ok(file) } else { Err(Failure::Replaced) }
    }

    fn name(&self) -> Result<&CStr, Errno> {
        // SAFETY: the path was written before the first block was requested, and not since.
        let path = unsafe { &*self.path.get() };
        CStr::from_bytes_until_nul(path).map_err(|_| Errno::NAMETOOLONG)
    }

    /// The kept descriptor, if the program has left it open and the file still exists.
    fn kept(&self) -> Option<BorrowedFd<'_>> {
        let descriptor = KEPT.load(Ordering::Relaxed);
        if descriptor == NONE {
            return None;
        }
        // SAFETY: the descriptor is not -1. `is_ours` checks that it is open and leads to the
        // trace. The descriptor is used at once; if the program closes it before that, the use
        // returns an error.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        self.is_ours(file).then_some(file)
    }

    /// Whether a descriptor leads to the file that was created, and this file still has a name.
    fn is_ours(&self, file: BorrowedFd<'_>) -> bool {
        let (device, inode) = (&self.device, &self.inode);
        is_of(file, device.load(Ordering::Relaxed), inode.load(Ordering::Relaxed))
    }

    /// Allocates disk space for the file's bytes, because a store into a hole on a full disk
    /// would end the program.
    fn allocate(&self, file: impl AsFd, at: u64, length: u64) -> Result<(), Failure> {
        // Above this limit, the kernel would also send SIGXFSZ.
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

/// Moves the file to a descriptor above the standard streams. If a program has closed a standard
/// stream, another thread of the program may write to that descriptor meanwhile.
fn above_streams(file: OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST_NUMBER: i32 = 3;
    match file.as_raw_fd() < FIRST_NUMBER {
        true => rustix::io::fcntl_dupfd_cloexec(&file, FIRST_NUMBER),
        false => Ok(file),
    }
}

/// Keeps a descriptor for a later time at which the file cannot be opened by its name. The
/// descriptor's number is high, because programs expect the lowest numbers to be free.
fn keep(file: &OwnedFd, device: u64, inode: u64) {
    // With a higher number, the kernel's table for this process would grow.
    const HIGHEST: u64 = 1024;
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(HIGHEST);
    let from = limit.min(HIGHEST) * 15 / 16;
    let kept =
        rustix::io::fcntl_dupfd_cloexec(file, from as i32).map_or(NONE, OwnedFd::into_raw_fd);
    KEPT_DEVICE.store(device, Ordering::Relaxed);
    KEPT_INODE.store(inode, Ordering::Relaxed);
    KEPT.store(kept, Ordering::Relaxed);
}

/// Closes the descriptor that the parent kept, if it still leads to the parent's trace.
fn close_inherited() {
    let descriptor = KEPT.swap(NONE, Ordering::Relaxed);
    if descriptor == NONE {
        return;
    }
    // SAFETY: it is not -1, and `is_of` checks it before any other use.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if is_of(file, KEPT_DEVICE.load(Ordering::Relaxed), KEPT_INODE.load(Ordering::Relaxed)) {
        // SAFETY: the recorder owns the descriptor, and nothing else refers to it.
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

/// Writes zeros, for file systems without `fallocate`.
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

/// Unmaps a block.
///
/// # Safety
/// The block must come from [`File::map_block`] and must not be used after this call.
pub(crate) unsafe fn unmap_block(block: NonNull<u8>) {
    // SAFETY: it is a whole mapping, by the caller's promise. The call cannot fail for an existing
    // mapping.
    let _ = unsafe { rustix::mm::munmap(block.as_ptr().cast(), BLOCK_BYTES as usize) };
}

/// The time of a clock in nanoseconds; 0 if it cannot be read. The read needs no system call if
/// the kernel provides a page for the clock.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, a local variable. The call does not change errno if
    // it succeeds, and these two clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The program's name, as the kernel stores it.
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

/// The file's name: `base` with each `%p` in its last part replaced by the process ID, or with
/// the process ID appended. From the second attempt on, the number of the attempt is appended.
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
    // `%p` in the name of a folder is not replaced, because the folder must exist.
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
