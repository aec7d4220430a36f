//! Whether nobody else in the system reaches a memory file, so that it may change hands as it is.
//!
//! The kernel counts a file's open descriptions that can write, and each mapping and each copy of a
//! descriptor holds on to its description. A lease for writing (fcntl(2), `F_SETLEASE`) is given to
//! the only one there is. The description that memfd_create(2) makes is not counted, so the memory
//! is opened once more as it is made, by [`open_anew`], and mapped from there; and once more as it
//! is handed over, so that the description goes that a fork may have. What no count shows is who
//! has its pages pinned (a registered buffer of io_uring), nor that uncounted description: hence
//! this is for ends that trust each other, and finds accidents.

use std::os::fd::AsRawFd;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};

use haul_peer::descriptor::kept;

/// The same memory by a description of its own; `None` where there is no `/proc`, or no descriptor
/// left.
pub(crate) fn open_anew(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let opened = kept(rustix::fs::open(path, flags, Mode::empty())).ok()?;
    // Whatever is mounted there.
    let status = |file: BorrowedFd<'_>| rustix::fs::fstat(file).ok();
    let (old, new) = (status(file)?, status(opened.as_fd())?);
    ((old.st_dev, old.st_ino) == (new.st_dev, new.st_ino)).then_some(opened)
}

/// F_SETSIG of linux/fcntl.h, the same on every machine that haul is built for.
const F_SETSIG: libc::c_int = 10;

/// Whether this is the only counted description that can write, and so nobody maps the file by
/// another one. False also where the kernel does not tell: of a file of another user, or without
/// leases.
pub(crate) fn is_exclusive(file: BorrowedFd<'_>) -> bool {
    let set = |command: libc::c_int, number: libc::c_int| {
        // SAFETY: a number is all that either command takes.
        unsafe { libc::fcntl(file.as_raw_fd(), command, number) == 0 }
    };
    // Whoever opens the file while there is a lease, by this process's folder in /proc, waits for
    // its end, and has the kernel send a signal here: SIGIO, which kills, unless it is told
    // another.
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
    fn a_description_or_a_mapping_elsewhere_is_seen() {
        let made = memory::create_file(4096).unwrap();
        let first = open_anew(made.as_fd());
        drop(made);
        let Some(first) = first.filter(|first| is_exclusive(first.as_fd())) else {
            eprintln!(
                "SKIPPED: who else has memory: no leases: mount /proc, set fs.leases-enable to 1"
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
