//! The Unix sockets of vhost-user: a path taken, with care for what is there, and how two sides
//! meet at it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::error::Error;
use crate::peer::caller::Caller;
use crate::peer::closer;
use crate::peer::descriptor::{keep, kept};
use crate::peer::fork::Here;
use crate::peer::listening::{self, Bound};
use crate::peer::socket;

/// Who listens on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// This side: the other one connects, and connects again.
    #[default]
    Server,
    /// The other side: this one connects, again and again until somebody listens.
    Client,
}

/// Ends the waiting of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Wake(Arc<OwnedFd>);

impl Wake {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = kept(event).map_err(|reason| Error::System {
            attempt: "make an event",
            reason: reason.into(),
            remedy: "raise the limit of files (ulimit -n)",
        })?;
        Ok(Self(Arc::new(event)))
    }

    /// For good.
    pub(crate) fn wake(&self) {
        // One that is full wakes as well.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Waits for it, or so long.
    pub(crate) fn pause(&self, nanoseconds: i64) {
        let mut ready = [PollFd::new(&*self.0, PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        // Nothing but a pause.
        let _ = poll(&mut ready, Some(&pause));
    }
}

/// What calls the other side.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn caller() -> Result<Caller, Error> {
    Caller::new().map_err(|reason| Error::System {
        attempt: "set up calls to the other side (io_setup)",
        reason,
        remedy: "let this process call io_setup and io_submit, and raise the limit of contexts \
                 (sysctl fs.aio-max-nr)",
    })
}

/// Nanoseconds between two attempts to meet the other side.
pub(crate) const RETRY_NS: i64 = 50_000_000;

/// How the other side is met.
#[derive(Debug)]
pub(crate) enum Meeting {
    Listening(Listening),
    Connecting(PathBuf),
}

impl Meeting {
    /// A server's socket is there when this returns.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(crate) fn new(path: &Path, role: Role) -> Result<Self, Error> {
        // Both roles ask for a path that a socket can have.
        socket::address_of(path).map_err(|reason| refused(path, reason))?;
        Ok(match role {
            Role::Server => Self::Listening(listen(path)?),
            Role::Client => Self::Connecting(path.into()),
        })
    }

    /// A connection to the other side; `None` after a while without one, or when woken.
    pub(crate) fn wait(&self, wake: &Wake) -> Option<UnixStream> {
        match self {
            Self::Listening(listening) => {
                let listener = listening.socket.as_ref()?;
                let mut ready =
                    [PollFd::new(listener, PollFlags::IN), PollFd::new(&*wake.0, PollFlags::IN)];
                let waited = poll(&mut ready, None);
                let is_over = socket::is_over(ready[0].revents());
                let accepted = waited
                    .and_then(|_| kept(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)));
                match accepted {
                    Ok(socket) => Some(UnixStream::from(socket)),
                    // The front end has gone again, or the thread was woken.
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) if !is_over => None,
                    // It may last: a process that may open no more files, or a socket that
                    // another process, which has it too, has shut down.
                    Err(_) => self.after_a_pause(wake),
                }
            }
            Self::Connecting(path) => {
                let connected = UnixStream::connect(path).ok();
                let connected = connected.and_then(|socket| keep(socket.into()).ok());
                connected.map(UnixStream::from).or_else(|| self.after_a_pause(wake))
            }
        }
    }

    /// Nothing, but not at once.
    fn after_a_pause(&self, wake: &Wake) -> Option<UnixStream> {
        wake.pause(RETRY_NS);
        None
    }
}

/// A socket that front ends connect to. Its path goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Until it is closed.
    socket: Option<OwnedFd>,
    bound: Bound,
    /// The process that listens: a child of fork leaves the path alone.
    here: Here,
}

/// Connections that wait while one front end is served.
const BACKLOG: i32 = 16;

/// Listens at a path, for this user alone. A socket that nobody listens on any more is replaced.
///
/// # Errors
/// [`Error::Path`].
fn listen(path: &Path) -> Result<Listening, Error> {
    let refused = |reason: std::io::Error| refused(path, reason);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = kept(made).map_err(|reason| refused(reason.into()))?;
    let address = socket::address_of(path).map_err(refused)?;
    // The file gets the socket's own mode, so there is no instant at which others may connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)
        .map_err(|reason| refused(reason.into()))?;
    let bound =
        listening::take(path, &address, &socket).map_err(|reason| refused(reason.into()))?;
    if let Err(reason) = rustix::net::listen(&socket, BACKLOG) {
        bound.remove();
        return Err(refused(reason.into()));
    }
    Ok(Listening { socket: Some(socket), bound, here: Here::now() })
}

fn refused(path: &Path, reason: std::io::Error) -> Error {
    let remedy = match reason.kind() {
        std::io::ErrorKind::AddrInUse => "another process has it: choose another path",
        std::io::ErrorKind::InvalidInput => "choose a path of 1 to 107 bytes",
        _ => "choose a folder that exists and is yours",
    };
    Error::Path { attempt: "use the socket", path: path.into(), reason, remedy }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.here.is_here() {
            self.bound.remove();
            // Who waits to be accepted may have sent descriptors already.
            closer::close(self.socket.take());
        }
    }
}
