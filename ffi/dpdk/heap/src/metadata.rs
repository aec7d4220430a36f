//! The memory of a heap's metadata. The metadata is a sparse file next to DPDK's files in DPDK's
//! runtime directory, and every process maps the file. If that directory is on a disk, the
//! metadata is in an unnamed memory file instead, which other processes open through the primary
//! process's descriptor.
//!
//! The metadata is not in DPDK's memory, because DPDK's memory is never sparse, and no device
//! reads metadata.

use core::ffi::{CStr, c_int};
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::dpdk::Functions;
use crate::leaving::Leaving;
use crate::location::HeapLocation;

/// Metadata uses at most the size of the data divided by this number: 2 bytes for each 64 bytes
/// and for each of their multiples, and less than that again for everything else.
const METADATA_SHARE: usize = 8;

/// Bytes that must stay free for DPDK's own files and for the caches of threads.
const ROOM_BYTES: u64 = 4 << 20;

/// Bytes of the file behind the heap's metadata, which contain only [`Leaving`].
const TAIL_BYTES: usize = 4096;

/// Metadata that this process keeps mapped until its end.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) start: *mut u8,
    /// The size of the heap's metadata in bytes, a multiple of 8.
    pub(crate) bytes: usize,
    /// The file's inode number.
    pub(crate) file_number: u64,
    /// The file's descriptor in the primary process, if it has no name.
    pub(crate) descriptor: Option<c_int>,
    file: File,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is never unmapped.
unsafe impl Send for Metadata {}
// SAFETY: as above; only the heap accesses the memory, by atomic accesses.
unsafe impl Sync for Metadata {}

impl Metadata {
    /// Creates the metadata of one socket's heap, all zeros, in the primary process.
    pub(crate) fn create(folder: &Path, socket: c_int, bytes: usize) -> Result<Self> {
        let is_memory = is_in_memory(folder);
        let size = (bytes + TAIL_BYTES) as u64;
        // The size is checked before the file exists, because the kernel would end the process
        // instead of returning an error.
        check_size(size)?;
        let file = if is_memory { create_file(&path(folder, socket))? } else { create_nameless()? };
        let file = above_streams(file)?;
        file.set_len(size)?;
        let file_number = file.metadata()?.ino();
        let mut metadata = Self::map(file, file_number, bytes)?;
        metadata.descriptor = (!is_memory).then(|| metadata.file.as_raw_fd());
        Ok(metadata)
    }

    /// Maps the metadata that the primary process created.
    pub(crate) fn attach(folder: &Path, primary: u32, location: &HeapLocation) -> Result<Self> {
        let (path, follow) = match location.descriptor {
            Some(descriptor) => (PathBuf::from(format!("/proc/{primary}/fd/{descriptor}")), 0),
            None => (path(folder, location.range.socket), libc::O_NOFOLLOW),
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(follow | libc::O_CLOEXEC)
            .open(path)?;
        let file = above_streams(file)?;
        let about = file.metadata()?;
        let heap_bytes = about.len().checked_sub(TAIL_BYTES as u64);
        if about.ino() != location.file_number || heap_bytes != Some(location.metadata_bytes) {
            return Err(Error::new(ErrorKind::InvalidData, "the file belongs to another run"));
        }
        let bytes = usize::try_from(location.metadata_bytes).map_err(Error::other)?;
        Self::map(file, location.file_number, bytes)
    }

    /// Maps the heap's `bytes` and the [`TAIL_BYTES`] after them.
    fn map(file: File, file_number: u64, bytes: usize) -> Result<Self> {
        if !bytes.is_multiple_of(align_of::<Leaving>()) {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the size of the file is not one of metadata",
            ));
        }
        let all = bytes + TAIL_BYTES;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let (null, none) = (core::ptr::null_mut(), libc::PROT_NONE);
        // The mapping has no access at first, so that the kernel populates nothing even if the
        // program has locked all its future memory. Then the mapping is unlocked, and then made
        // accessible. SAFETY: a new mapping at an address of the kernel's choice replaces
        // nothing.
        let start = unsafe { libc::mmap(null, all, none, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: just mapped; unlocking changes no content.
        unsafe { libc::munlock(start, all) };
        // SAFETY: just mapped, and nothing refers to it yet.
        if unsafe { libc::mprotect(start, all, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self { start: start.cast(), bytes, file_number, descriptor: None, file })
    }

    /// The word for leaving processes. The word is in this file because it is written when DPDK's
    /// memory is already unmapped.
    pub(crate) fn leaving(&self) -> &Leaving {
        // SAFETY: the mapping has TAIL_BYTES behind the heap's metadata.
        let leaving = unsafe { self.start.add(self.bytes) };
        // SAFETY: the mapping is never unmapped; the address is aligned, because the mapping begins
        // with a page and `map` checks its size; and any bytes are a valid atomic integer.
        unsafe { &*leaving.cast() }
    }

    /// Whether the file system has space for the metadata of `data_bytes` more bytes of data,
    /// with a reserve. A write to a page without space would end the process. Another program can
    /// still fill the file system at any time; DPDK's own files have the same risk.
    pub(crate) fn has_room(&self, data_bytes: usize) -> bool {
        // SAFETY: every field of the structure is an integer, for which zero is a value.
        let mut about: libc::statvfs = unsafe { core::mem::zeroed() };
        // SAFETY: the descriptor is open, and the call writes the structure.
        let failed = unsafe { libc::fstatvfs(self.file.as_raw_fd(), &raw mut about) } != 0;
        // A file system that reports nothing, or 0 blocks of 0, has no limit.
        failed || about.f_blocks == 0 || {
            let free = about.f_bavail.saturating_mul(about.f_frsize);
            free >= (data_bytes / METADATA_SHARE) as u64 + ROOM_BYTES
        }
    }
}

/// DPDK's runtime directory, if this application keeps its configuration there, so that other
/// processes can attach.
pub(crate) fn shared_folder(functions: &Functions) -> Option<PathBuf> {
    // SAFETY: the function returns a string that DPDK created before it initialised its memory.
    let text = unsafe { (functions.rte_eal_get_runtime_dir)() };
    if text.is_null() {
        return None;
    }
    // SAFETY: the string is a C string in static memory.
    let text = unsafe { CStr::from_ptr(text) };
    // The real path is needed, because /var/run is a link.
    let folder = std::fs::canonicalize(OsStr::from_bytes(text.to_bytes())).ok()?;
    // The directory may belong to another application, and opening DPDK's files would drop DPDK's
    // locks. The memory maps of this process also name the file, and reading them has neither
    // problem.
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let wanted = folder.join("config");
    maps.split(|&byte| byte == b'\n')
        .any(|line| line.ends_with(wanted.as_os_str().as_bytes()))
        .then_some(folder)
}

/// Removes the file of one socket's heap. Processes that have the file mapped keep it.
pub(crate) fn remove(folder: &Path, socket: c_int) {
    // A missing file is not an error.
    let _ = std::fs::remove_file(path(folder, socket));
}

fn path(folder: &Path, socket: c_int) -> PathBuf {
    folder.join(format!("haul_rte_malloc_{socket}"))
}

/// Whether the files of a folder are in memory and never written to a disk.
fn is_in_memory(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: every field of the structure is an integer, for which zero is a value.
    let mut about: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the path is a C string, and the call writes the structure.
    let failed = unsafe { libc::statfs(path.as_ptr(), &raw mut about) } != 0;
    !failed && about.f_type == libc::TMPFS_MAGIC
}

/// Checks whether this process may create a file of this size (RLIMIT_FSIZE).
fn check_size(bytes: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the structure.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0;
    if failed || limit.rlim_cur == libc::RLIM_INFINITY || bytes <= limit.rlim_cur {
        return Ok(());
    }
    let most = limit.rlim_cur;
    Err(Error::new(
        ErrorKind::FileTooLarge,
        format!("a file of {bytes} bytes, but RLIMIT_FSIZE allows {most}: raise it (ulimit -f)"),
    ))
}

/// The same file with a descriptor above the standard streams, because a program that closed a
/// stream may still write to the stream's descriptor.
fn above_streams(file: File) -> Result<File> {
    const FIRST_NUMBER: c_int = 3;
    if file.as_raw_fd() >= FIRST_NUMBER {
        return Ok(file);
    }
    // SAFETY: the call duplicates an open descriptor.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_NUMBER) };
    if number < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new and open, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(number) })
}

fn create_nameless() -> Result<File> {
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"haul_rte_malloc".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor is new and open, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Creates a new file. Removes the file of an earlier run; processes that have that file mapped
/// keep it.
fn create_file(path: &Path) -> Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SocketRange;

    fn check(folder: &Path) {
        let bytes = 1 << 20;
        let first = Metadata::create(folder, 0, bytes).expect("created");
        assert!(first.has_room(2 << 20));
        let range = SocketRange { socket: 0, base: 0, bytes: 1 << 30 };
        let location = HeapLocation {
            range,
            file_number: first.file_number,
            descriptor: first.descriptor,
            metadata_bytes: bytes as u64,
        };
        let primary = std::process::id();
        let second = Metadata::attach(folder, primary, &location).expect("attached");
        // SAFETY: the mapping has more than one byte and this test alone uses it.
        unsafe { first.start.write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { second.start.read() }, 7);
        let leave = second.leaving().begin(|| true);
        assert!(first.leaving().is_active());
        drop(leave);
        assert!(!first.leaving().is_active());

        let _later = Metadata::create(folder, 0, bytes).expect("created again");
        let other = HeapLocation { file_number: u64::MAX, ..location };
        assert!(
            Metadata::attach(folder, primary, &other).is_err(),
            "the file of another run was accepted"
        );
    }

    /// Runs `work` in a forked child, because `work` changes its process permanently.
    fn in_child(work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child does little and ends by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = work();
            // SAFETY: the call ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local int.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "ended by signal {}", libc::WTERMSIG(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn create_reports_file_size_limit_and_leaves_no_file() {
        let folder = PathBuf::from("/dev/shm").join(format!("haul-limit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("memory can be written to");
        let status = in_child(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 16, rlim_max: 1 << 16 };
            // SAFETY: `limit` is a local structure.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            let error = Metadata::create(&folder, 0, 1 << 20).err();
            let is_reported = error.is_some_and(|error| error.to_string().contains("ulimit -f"));
            i32::from(!is_reported || path(&folder, 0).exists())
        });
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert_eq!(status, 0);
    }

    #[test]
    fn create_avoids_descriptors_of_standard_streams() {
        let folder = PathBuf::from("/dev/shm").join(format!("haul-stream-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("memory can be written to");
        let status = in_child(|| {
            // SAFETY: the descriptors are the child's, which does not use them.
            (0..3).for_each(|stream| _ = unsafe { libc::close(stream) });
            let metadata = Metadata::create(&folder, 0, 1 << 20);
            i32::from(!metadata.is_ok_and(|metadata| metadata.file.as_raw_fd() >= 3))
        });
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert_eq!(status, 0);
    }

    #[test]
    fn attach_maps_file_of_same_run_only() {
        for parent in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let folder = parent.join(format!("haul-metadata-{}", std::process::id()));
            if std::fs::create_dir_all(&folder).is_ok() {
                check(&folder);
                std::fs::remove_dir_all(&folder).expect("the folder can be removed");
            }
        }
    }
}
