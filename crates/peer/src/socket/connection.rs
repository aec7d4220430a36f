//! Makes, connects and accepts sockets.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::Socket;
use super::wait::wait_for;
use crate::deadline::after;
use crate::descriptor::{keep, kept};
use crate::error::Error;

/// The largest number of waiting connections: the kernel's own default (SOMAXCONN).
pub const BACKLOG: i32 = 4096;

/// Creates a non-blocking socket that the caller will bind to `path` or connect to it. `path` is
/// only for the error.
pub fn new_socket(path: &Path, kind: SocketType) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    kept(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None))
        .map_err(|reason| at("make", path)(reason.into()))
}

/// Maps a system error of the socket at `path`.
pub fn at(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = PathBuf::from(path);
    move |reason| Error::Socket { attempt, path, reason }
}

/// Two connected sockets: one for this process, and one that another process inherits or
/// receives. Both are closed on exec.
///
/// # Errors
/// [`Error::System`].
pub fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(Error::system("make a pair of sockets"))?;
    let failed = || Error::system::<Errno>("make a pair of sockets");
    Ok((keep(one).map_err(failed())?, keep(other).map_err(failed())?))
}

/// The address of a socket's path. An empty path, perhaps from a missing setting, is refused,
/// because the kernel would choose an address that all users can reach.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: the path is empty or too long.
pub fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is empty"));
    }
    Ok(SocketAddrUnix::new(path)?)
}

/// Connects to the socket for packets at `path`.
pub fn connect(path: &Path) -> Result<OwnedFd, Error> {
    connect_to(path, SocketType::SEQPACKET)
}

/// Connects to the socket at `path`, which must have this type, without waiting. If its backlog
/// is full, the reason is [`io::ErrorKind::WouldBlock`].
pub fn connect_to(path: &Path, kind: SocketType) -> Result<OwnedFd, Error> {
    let address = address_of(path).map_err(at("connect to", path))?;
    let socket = new_socket(path, kind)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        // The system returns the same error for a file that is not a socket as for a socket
        // without a listener.
        Err(Errno::CONNREFUSED) if is_other_file(path) => {
            Err(at("connect to", path)(io::Error::other("it is not a socket")))
        }
        Err(reason) => Err(at("connect to", path)(reason.into())),
    }
}

fn is_other_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| !facts.file_type().is_socket())
}

/// Accepts the next connection. Returns `None` if no process connects in time.
///
/// # Errors
/// [`Error::System`], for example if the listener was shut down, perhaps by another process that
/// has a copy of its descriptor.
pub fn accept(socket: &OwnedFd, wait: Option<Duration>) -> Result<Option<OwnedFd>, Error> {
    let until = wait.map(after);
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match kept(rustix::net::accept_with(socket, flags)) {
            Ok(connection) => return Ok(Some(connection)),
            // There was no connection, or the connection ended before it was accepted, or a
            // signal interrupted the call.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => {}
            Err(reason) => return Err(Error::system("accept a connection")(reason)),
        }
        match wait_for(socket.as_fd(), until)? {
            Some(found) if is_over(found) => {
                let reason = "the listener was shut down: listen anew";
                return Err(Error::system("accept a connection")(io::Error::other(reason)));
            }
            // Another process accepted the connection, or the connection ended. Try again.
            Some(_) if until.is_none_or(|until| Instant::now() < until) => {}
            _ => return Ok(None),
        }
    }
}

/// Whether poll(2) reports that a listener is shut down, which is permanent.
pub fn is_over(found: PollFlags) -> bool {
    found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Refuses new connections, and closes those that wait to be accepted.
pub fn stop_listening(socket: &OwnedFd) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    for _ in 0..BACKLOG {
        let accepted = kept(rustix::net::accept_with(socket, SocketFlags::CLOEXEC));
        let Ok(connection) = accepted else { return };
        // Drops the connection as a `Socket`, so that packets that the other end has already sent
        // do not delay its closing.
        drop(Socket::adopt(connection));
    }
}

/// The process, the user and the group at the other end at the time when that end connected; for
/// a listener, when it began to listen. The process is 0 if it is not visible in this PID
/// namespace.
pub fn other_end(socket: impl AsFd) -> Result<(i32, u32, u32), Error> {
    let socket = socket.as_fd();
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes to a structure of this length, and to the length; both live
    // longer than the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok((credentials.pid, credentials.uid, credentials.gid)),
        _ => {
            Err(Error::system("read the credentials of the other end")(io::Error::last_os_error()))
        }
    }
}
