//! Whether this process alone reaches a memory file, so that the file may be handed over unsealed.
//!
//! The kernel counts those open descriptions of a file that can write. Each mapping and each copy
//! of a descriptor holds its description open. The kernel grants a lease for writing (fcntl(2),
//! `F_SETLEASE`) only if there is a single such description. The kernel does not count the
//! description that memfd_create(2) makes. So [`open_anew`] opens the memory again when it is
//! made, and the memory is mapped through that description. The memory is opened once more when
//! it is handed over, and the description that a fork may have copied is closed. The count shows
//! neither pinned pages (a registered buffer of io_uring) nor the uncounted description. So this
//! check is for ends that trust each other, and detects accidents.

use std::os::fd::AsRawFd;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use haul_peer::descriptor::kept;

/// Opens the same memory through a new description. Returns `None` without `/proc`, or if no
/// descriptor is free.
pub(crate) fn open_anew(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let opened = kept(rustix::fs::open(path, flags, Mode::empty())).ok()?;
    // Another file system may be mounted at /proc.
    let status = |file: BorrowedFd<'_>| rustix::fs::fstat(file).ok();
    let (old, new) = (status(file)?, status(opened.as_fd())?);
    ((old.st_dev, old.st_ino) == (new.st_dev, new.st_ino)).then_some(opened)
}

/// F_SETSIG of linux/fcntl.h. `F_SETSIG` has the same value on every machine that haul is built
/// for.
const F_SETSIG: libc::c_int = 10;

/// Whether this is the only counted description that can write, so that no mapping through
/// another description exists. Also false if the kernel does not grant leases: for a file of
/// another user, or if leases are disabled.
pub(crate) fn is_exclusive(file: BorrowedFd<'_>) -> bool {
    let set = |command: libc::c_int, number: libc::c_int| {
        // SAFETY: either command takes only a number, no pointer.
        unsafe { libc::fcntl(file.as_raw_fd(), command, number) == 0 }
    };
    // If a process opens the file through this process's folder in /proc during the lease, that
    // process waits until the lease ends, and the kernel signals the lease holder. The signal is
    // SIGIO, which kills, unless another signal is set.
    set(F_SETSIG, libc::SIGURG)
        && set(libc::F_SETLEASE, libc::F_WRLCK)
        && set(libc::F_SETLEASE, libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;
    use haul_peer::memory;

    #[test]
    fn is_exclusive_detects_other_descriptions_and_mappings() {
        let made = memory::create_file(4096).unwrap();
        let first = open_anew(made.as_fd());
        drop(made);
        let Some(first) = first.filter(|first| is_exclusive(first.as_fd())) else {
            eprintln!(
                "SKIPPED: exclusive memory: no leases: mount /proc, set fs.leases-enable to 1"
            );
            return;
        };
        assert!(
            is_exclusive(first.as_fd()) && is_exclusive(first.as_fd()),
            "the lease is given back"
        );
        let second = open_anew(first.as_fd()).unwrap();
        assert!(!is_exclusive(second.as_fd()), "the first one writes");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = memory::map_file(first.as_fd(), 4096, protection, MapFlags::SHARED).unwrap();
        drop(first);
        assert!(!is_exclusive(second.as_fd()), "its mapping writes");
        memory::unmap(base, 4096);
        assert!(is_exclusive(second.as_fd()));
        let copy = second.try_clone().unwrap();
        assert!(is_exclusive(copy.as_fd()), "another number of the same description");
    }
}
