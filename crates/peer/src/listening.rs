//! The path of a listener: taken, and given back. A process that is killed leaves its socket there,
//! which nobody listens on any more. The next one finds that out and takes its place.

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

/// Tries for the lock of a folder, and time between two: half a second, a thousand times what a
/// holder takes.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A path with the socket that was made there.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    /// Device and inode of the socket; `None` where the system did not say.
    socket: Option<(u64, u64)>,
}

impl Bound {
    fn of(path: &Path) -> Self {
        Self { path: path.into(), socket: inode(path) }
    }

    /// Gives the socket that was made there this mode; an error where another file is there by now,
    /// a link among them.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&file)?;
        if self.socket != Some((status.st_dev, status.st_ino)) {
            return Err(Errno::STALE);
        }
        // Of what a descriptor of this kind stands for, the mode is changed by its name alone.
        rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
    }

    /// Takes the path away, unless another socket is there by now; while one's own is open, no
    /// other has its inode.
    pub fn remove(&self) {
        if self.socket.is_some() && inode(&self.path) == self.socket {
            // It may have gone this moment; nobody is left to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let status = fs::symlink_metadata(path).ok()?;
    Some((status.dev(), status.ino()))
}

/// A socket at `path`, for this user alone or for everybody that reaches it, where so many may wait
/// to be accepted. One that nobody listens on any more is replaced.
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
    // The file gets the socket's own mode, so there is no instant at which others may connect.
    rustix::fs::fchmod(&socket, if is_for_all { all } else { own })
        .map_err(|reason| at("protect", path)(reason.into()))?;
    let bound = take(path, &address, &socket).map_err(at("bind", path))?;
    // What bind() made has the mode less the umask.
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

/// Binds, also in the place of a socket that no process has any more, with the folder locked: of
/// two that found one abandoned the second does not remove what the first has made, and nobody
/// finds one that is about to be bound. Without the lock nothing is replaced.
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

/// Whether a socket is there that no process has. Asked for as a socket of another type, so that
/// whoever listens there does not notice: the kernel refuses the type where there is a socket, and
/// the connection where there is none.
fn is_abandoned(path: &Path, address: &SocketAddrUnix) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|status| status.file_type().is_socket()) {
        return false;
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let probe = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    probe.is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// A lock of a folder. It is given back as this is dropped, and not only as the descriptor is
/// closed: a child that another thread forked meanwhile has a copy of that.
#[derive(Debug)]
struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        // Fails on nothing that is locked.
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

    fn open(path: &Path) -> Result<(OwnedFd, Bound), Error> {
        listen(path, SocketType::SEQPACKET, 16, false)
    }

    fn address(path: &Path) -> SocketAddrUnix {
        SocketAddrUnix::new(path).unwrap()
    }

    #[test]
    fn only_a_socket_that_nobody_has_is_abandoned() {
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
        assert!(path.exists(), "it is another's by now");
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

    /// Of many that find it abandoned at once one has the path, and it is the one that lives.
    #[test]
    fn of_many_at_once_one_takes_the_place() {
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
            assert!(socket::connect(&path).is_ok(), "whoever has it is not there");
            bound.remove();
            drop(socket);
        }
    }
}
