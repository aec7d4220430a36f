//! Binds a listener to a path, and removes the path again. A process that is killed leaves a
//! socket without a listener at the path. The next process detects this and replaces the socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::Error;
use super::in_the_way::InTheWay;
use super::socket::{self, at};

/// The number of attempts to lock a folder, and the time between two attempts. All attempts
/// together take half a second. A process holds the lock for a thousandth of this time.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A path and the socket that was created there.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    /// Device and inode of the socket; `None` if the system did not report them.
    socket: Option<(u64, u64)>,
}

impl Bound {
    fn of(path: &Path) -> Self {
        Self { path: path.into(), socket: inode(path) }
    }

    /// Sets the mode of the socket. It is an error if another file, such as a link, is at the
    /// path now.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&file)?;
        if self.socket != Some((status.st_dev, status.st_ino)) {
            return Err(Errno::STALE);
        }
        // A descriptor with O_PATH does not allow a change of the mode, but its path in /proc
        // does.
        rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
    }

    /// Removes the path, unless it leads to another socket now. While this socket is open, no
    /// other socket has its inode.
    pub fn remove(&self) {
        if self.socket.is_some() && inode(&self.path) == self.socket {
            // An error is ignored: the file may just have been removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let status = fs::symlink_metadata(path).ok()?;
    Some((status.dev(), status.ino()))
}

/// Creates a listening socket at `path`, with room for `backlog` connections. Only this user may
/// connect or, if `is_for_all`, all users that can reach the path. Replaces a socket without a
/// listener.
pub fn listen(
    path: &Path,
    kind: SocketType,
    backlog: i32,
    is_for_all: bool,
) -> Result<(OwnedFd, Bound), Error> {
    let address = socket::address_of(path).map_err(at("bind", path))?;
    let socket = socket::new_socket(path, kind)?;
    let own = Mode::RUSR | Mode::WUSR;
    let all = own | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    // The file that bind() creates gets the socket's mode, so other users can never connect too
    // early.
    rustix::fs::fchmod(&socket, if is_for_all { all } else { own })
        .map_err(|reason| at("protect", path)(reason.into()))?;
    let bound = take(path, &address, &socket).map_err(at("bind", path))?;
    // The umask has cleared bits in the mode of the file that bind() created.
    if is_for_all && let Err(reason) = bound.set_mode(all) {
        bound.remove();
        return Err(at("protect", path)(reason.into()));
    }
    match rustix::net::listen(&socket, backlog) {
        Ok(()) => Ok((socket, bound)),
        Err(reason) => {
            bound.remove();
            Err(at("listen on", path)(reason.into()))
        }
    }
}

/// Binds the socket, and replaces a socket that no process has open. The folder is locked
/// meanwhile. So if two processes find a socket abandoned, the second process does not remove the
/// socket of the first. Also, no process treats a socket as abandoned while another process is
/// binding it. If the folder cannot be locked, no socket is replaced.
fn take(path: &Path, address: &SocketAddrUnix, socket: &OwnedFd) -> io::Result<Bound> {
    let lock = lock_folder(path);
    let bind = || rustix::net::bind(socket, address);
    match bind() {
        Err(Errno::ADDRINUSE) if is_abandoned(path, address) => {
            let _locked = lock?;
            match rustix::fs::unlink(path) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(reason) => {
                    return Err(InTheWay::of_abandoned(path, reason.into()).into_reason());
                }
            }
            bind()
        }
        result => result,
    }
    .map_err(|reason| match reason {
        Errno::ADDRINUSE => InTheWay::of_socket(path).into_reason(),
        reason => reason.into(),
    })?;
    Ok(Bound::of(path))
}

/// Whether the path leads to a socket that no process has open. To check this, the function
/// connects with another type of socket, so that a listener does not notice it. If a process has
/// the socket open, the kernel refuses the type; if no process has, it refuses the connection.
fn is_abandoned(path: &Path, address: &SocketAddrUnix) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|status| status.file_type().is_socket()) {
        return false;
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let probe = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    probe.is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// A lock of a folder. Dropping this value releases the lock explicitly. Closing the descriptor
/// would not suffice, because a child that another thread forked meanwhile has a copy of the
/// descriptor.
#[derive(Debug)]
struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        // Unlocking a locked file cannot fail.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

fn lock_folder(path: &Path) -> io::Result<Locked> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Locked(folder)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(LOCK_PAUSE),
            Err(reason) => return Err(reason.into()),
        }
    }
    Err(InTheWay::of_lock(&folder).into_reason())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;
    use crate::fork::tests::without_starts;

    fn open(path: &Path) -> Result<(OwnedFd, Bound), Error> {
        listen(path, SocketType::SEQPACKET, 16, false)
    }

    fn address(path: &Path) -> SocketAddrUnix {
        SocketAddrUnix::new(path).unwrap()
    }

    #[test]
    fn only_socket_without_process_is_abandoned() {
        let _starts = without_starts();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let is_abandoned = || is_abandoned(&path, &address(&path));
        assert!(!is_abandoned(), "nothing is there");
        fs::write(&path, "a file").unwrap();
        assert!(!is_abandoned());
        assert!(open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();
        let (stream, datagram) = (UnixListener::bind(&path).unwrap(), folder.path().join("other"));
        assert!(!is_abandoned());
        drop(stream);
        assert!(is_abandoned());
        let other = UnixDatagram::bind(&datagram).unwrap();
        assert!(!super::is_abandoned(&datagram, &address(&datagram)));
        drop(other);
        let (socket, _) = open(&path).unwrap();
        assert!(!is_abandoned());
        let taken = open(&path).unwrap_err();
        let is_in_use = matches!(
            &taken,
            Error::Socket { reason, .. } if reason.kind() == io::ErrorKind::AddrInUse
        );
        assert!(is_in_use, "{taken:?}");
        drop(socket);
        assert!(is_abandoned());
        let (_socket, first) = open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (_other, second) = open(&path).unwrap();
        first.remove();
        assert!(path.exists(), "it is another socket's now");
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn folder_is_unlocked_while_a_copy_of_its_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let locked = lock_folder(&path).unwrap();
        let _copy = locked.0.try_clone().unwrap();
        drop(locked);
        lock_folder(&path).unwrap();
    }

    /// If many listeners find the socket abandoned at the same time, one listener gets the path,
    /// and clients can connect to it.
    #[test]
    fn one_of_many_concurrent_listeners_gets_path() {
        let _starts = without_starts();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let all: Vec<_> = thread::scope(|scope| {
                let each = |_| scope.spawn(|| open(&path));
                let all: Vec<_> = (0..8).map(each).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let mut won = all.into_iter().flatten();
            let (socket, bound) = won.next().unwrap();
            assert!(won.next().is_none(), "two have it");
            assert!(socket::connect(&path).is_ok(), "the listener at the path is not reachable");
            bound.remove();
            drop(socket);
        }
    }
}
