//! System calls, and words that belong to one thread.

use core::ffi::{CStr, c_long};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI64, AtomicU64};

/// Makes a system call without libc, which would change `errno`. The result is negative if it
/// failed.
///
/// # Safety
/// The obligations of the call.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise. The kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise. The kernel changes x0 only.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// Numbers of system calls (`asm/unistd.h`): x86-64, then aarch64.
mod number {
    use core::ffi::c_long;

    macro_rules! numbers {
        ($($name:ident $x86:literal $aarch64:literal;)*) => {$(
            pub(super) const $name: c_long =
                if cfg!(target_arch = "x86_64") { $x86 } else { $aarch64 };
        )*};
    }
    numbers! {
        READ 0 63;
        CLOSE 3 57;
        FSTAT 5 80;
        MMAP 9 222;
        PWRITE 18 68;
        MADVISE 28 233;
        GETPID 39 172;
        GETEUID 107 175;
        OPENAT 257 56;
        UNLINKAT 263 35;
        LINKAT 265 37;
        READLINKAT 267 78;
        FALLOCATE 285 47;
        PRLIMIT 302 261;
    }
}

/// The folder to which relative paths refer (`linux/fcntl.h`): AT_FDCWD.
const HERE: usize = -100_isize as usize;

/// Flags of `open` (`asm-generic/fcntl.h`, and `asm/fcntl.h` of aarch64 for NOFOLLOW).
const READ_ONLY: usize = 0;
pub(crate) const READ_WRITE: usize = 2;
pub(crate) const CREATE_NEW: usize = 0o300;
pub(crate) const NONBLOCK: usize = 0o4000;
pub(crate) const NOFOLLOW: usize = if cfg!(target_arch = "x86_64") { 0o400_000 } else { 0o100_000 };
const CLOEXEC: usize = 0o2_000_000;

/// An open file, closed when dropped.
pub(crate) struct File(usize);

impl File {
    /// Opens a file; the error is the kernel's number.
    pub(crate) fn open(path: &CStr, flags: usize) -> Result<Self, isize> {
        const OWNER_ONLY: usize = 0o600;
        let at = path.as_ptr().expose_provenance();
        // SAFETY: the kernel reads the path up to its end.
        let file = unsafe { call(number::OPENAT, [HERE, at, flags | CLOEXEC, OWNER_ONLY, 0, 0]) };
        usize::try_from(file).map(Self).map_err(|_| file)
    }

    /// Reads until the buffer is full or the file ends, and returns the bytes.
    fn read<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            let at = rest.as_mut_ptr().expose_provenance();
            // SAFETY: the kernel writes at most the rest of the buffer.
            let read = unsafe { call(number::READ, [self.0, at, rest.len(), 0, 0, 0]) };
            match usize::try_from(read) {
                Ok(read) if read > 0 => length = length.saturating_add(read),
                _ => break,
            }
        }
        buffer.get(..length).unwrap_or_default()
    }

    /// The length of a regular file of this user; `None` for any other file.
    pub(crate) fn length_if_own(&self) -> Option<usize> {
        // The bytes of `struct stat` (`asm/stat.h`): 144 on x86-64, 128 on aarch64.
        let mut status: [u64; 18] = core::array::from_fn(|_| 0);
        let at = status.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes one status, which fits.
        let result = unsafe { call(number::FSTAT, [self.0, at, 0, 0, 0, 0]) };
        // x86-64: st_nlink at 16, st_mode at 24, st_uid at 28, st_size at 48.
        // aarch64: st_mode at 16, st_nlink at 20, st_uid at 24, st_size at 48.
        let (mode, user) = match cfg!(target_arch = "x86_64") {
            true => (status[3] as u32, (status[3] >> 32) as u32),
            false => (status[2] as u32, status[3] as u32),
        };
        const KIND: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        // SAFETY: the call has no conditions.
        let own = unsafe { call(number::GETEUID, [0; 6]) };
        let is_own = mode & KIND == REGULAR && i64::from(user) == own as i64;
        (result == 0 && is_own).then_some(status[6] as usize)
    }

    /// Reserves disk space, so that no store into the mapped file fails later. Does not try if the
    /// file would exceed the limit of this process, because the kernel would send a signal.
    pub(crate) fn reserve(&self, length: usize) -> bool {
        /// RLIMIT_FSIZE (`asm-generic/resource.h`).
        const FILE_SIZE: usize = 1;
        let mut limits = [0_u64; 2];
        let at = limits.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes the two limits of this process.
        let got = unsafe { call(number::PRLIMIT, [0, FILE_SIZE, 0, at, 0, 0]) };
        if got != 0 || limits[0] < length as u64 {
            return false;
        }
        // SAFETY: the call changes this file only.
        unsafe { call(number::FALLOCATE, [self.0, 0, 0, length, 0, 0]) == 0 }
    }

    /// Writes bytes at an offset.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: usize) -> bool {
        let at = bytes.as_ptr().expose_provenance();
        // SAFETY: the kernel reads the bytes.
        let written = unsafe { call(number::PWRITE, [self.0, at, bytes.len(), offset, 0, 0]) };
        usize::try_from(written) == Ok(bytes.len())
    }

    /// Maps the file for reading and writing, shared with other processes.
    pub(crate) fn map(&self, length: usize) -> Option<*mut u8> {
        const SHARED: usize = 1;
        map([0, length, READ_AND_WRITE, SHARED, self.0, 0])
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { call(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Reads a file into the buffer, as much as fits; the error is the kernel's number.
pub(crate) fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], isize> {
    File::open(path, READ_ONLY | NONBLOCK).map(|file| file.read(buffer))
}

/// Protection of a mapping (`asm-generic/mman-common.h`).
const READ_AND_WRITE: usize = 3;

fn map(arguments: [usize; 6]) -> Option<*mut u8> {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let mapped = unsafe { call(number::MMAP, arguments) };
    usize::try_from(mapped).ok().map(core::ptr::with_exposed_provenance_mut)
}

/// New memory that the kernel sets to zeros in a forked child; `None` if it cannot.
pub(crate) fn memory_wiped_on_fork(length: usize) -> Option<*mut u8> {
    /// MAP_PRIVATE and MAP_ANONYMOUS; MADV_WIPEONFORK (`asm-generic/mman-common.h`).
    const PRIVATE_ANONYMOUS: usize = 0x22;
    const WIPE_ON_FORK: usize = 18;
    let memory = map([0, length, READ_AND_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0])?;
    // SAFETY: it is the whole mapping that was just created.
    let result = unsafe { call(number::MADVISE, [memory.addr(), length, WIPE_ON_FORK, 0, 0, 0]) };
    (result == 0).then_some(memory)
}

/// Sets memory to zeros byte by byte: `[0; BYTES]` would be a call of memset.
#[inline(always)]
pub(crate) fn zeroed<const BYTES: usize>(memory: &mut MaybeUninit<[u8; BYTES]>) -> &mut [u8] {
    let first = memory.as_mut_ptr().cast::<u8>();
    for at in 0..BYTES {
        // SAFETY: the byte lies in the array.
        unsafe { first.wrapping_add(at).write(0) };
    }
    // SAFETY: all bytes were written.
    unsafe { memory.assume_init_mut() }
}

/// Gives a file a second name, which must not exist yet.
pub(crate) fn link(from: &CStr, to: &CStr) -> bool {
    let (from, to) = (from.as_ptr().expose_provenance(), to.as_ptr().expose_provenance());
    // SAFETY: the kernel reads both paths.
    unsafe { call(number::LINKAT, [HERE, from, HERE, to, 0, 0]) == 0 }
}

/// Removes a name of a file.
pub(crate) fn unlink(path: &CStr) {
    let at = path.as_ptr().expose_provenance();
    // SAFETY: the kernel reads the path.
    unsafe { call(number::UNLINKAT, [HERE, at, 0, 0, 0, 0]) };
}

/// Reads the target of a symbolic link, as much as fits.
pub(crate) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    let (path, at) = (path.as_ptr().expose_provenance(), buffer.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel reads the path and writes at most the buffer.
    let length = unsafe { call(number::READLINKAT, [HERE, path, at, buffer.len(), 0, 0]) };
    buffer.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default()
}

/// The process ID.
pub(crate) fn process_id() -> u32 {
    // SAFETY: the call has no conditions.
    unsafe { call(number::GETPID, [0; 6]) as u32 }
}

/// The words of one thread, all 0 at first. Only the thread and its signal handlers use them.
#[repr(C)]
pub(crate) struct ThreadWords {
    /// The work until the next sample.
    pub(crate) countdown: AtomicI64,
    /// References to the process and the thread in the file, in the upper and the lower half.
    pub(crate) entry: AtomicU64,
    /// The state of the random distances.
    pub(crate) random: AtomicU64,
}

const _: () = assert!(size_of::<ThreadWords>() == 24);

// At a fixed distance from the thread pointer, so that no access allocates. The dynamic linker
// reserves room for such variables even in libraries that a program opens later.
core::arch::global_asm!(
    ".pushsection .tbss.haul_copy_thread,\"awT\",%nobits",
    ".balign 8",
    ".type haul_copy_thread,%object",
    ".size haul_copy_thread,24",
    ".hidden haul_copy_thread",
    ".globl haul_copy_thread",
    "haul_copy_thread:",
    ".zero 24",
    ".popsection",
);

/// The words of the calling thread. Only after the constructor has run.
#[inline(always)]
pub(crate) fn thread_words() -> &'static ThreadWords {
    let words: *const ThreadWords;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fs:0 has the thread pointer (ELF Handling For Thread-Local Storage, 3.4.6), and this
    // library's constructor has run, so the dynamic linker has written the offset.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr fs:[0]",
            "add {words}, qword ptr [rip + haul_copy_thread@GOTTPOFF]",
            words = out(reg) words,
            options(nostack, readonly, pure)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the thread pointer and the offset are as on x86-64.
    unsafe {
        core::arch::asm!(
            "mrs {words}, tpidr_el0",
            "adrp {offset}, :gottprel:haul_copy_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:haul_copy_thread]",
            "add {words}, {words}, {offset}",
            words = out(reg) words,
            offset = out(reg) _,
            options(nostack, readonly, pure)
        );
    }
    // SAFETY: the words live as long as the thread, which is the only one that gets this
    // reference, and zeros are a valid value.
    unsafe { &*words }
}
