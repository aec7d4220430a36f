//! The Unix sockets of vhost-user: how a path is bound without harm to an existing file of this
//! name, and how both sides connect. Before either side sends a byte, the process at the other
//! end is checked by the rule of channels ([`Users`]).

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};

use super::error::Error;
use haul_peer::caller::Caller;
use haul_peer::descriptor::kept;
use haul_peer::error::Error as PeerError;
use haul_peer::fork::Here;
use haul_peer::listening::{self, Bound};
use haul_peer::users::{Users, refusal};
use haul_peer::{closer, in_the_way, socket};

/// Which side listens on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// This side listens: the other side connects, and reconnects.
    #[default]
    Server,
    /// The other side listens: this side connects, and retries until a process listens.
    Client,
}

/// Wakes a waiting thread.
#[derive(Clone, Debug)]
pub(crate) struct Wake(Arc<OwnedFd>);

impl Wake {
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = kept(event).map_err(|reason| Error::System {
            attempt: "create an event",
            reason: reason.into(),
            remedy: "raise the limit of files (ulimit -n)",
        })?;
        Ok(Self(Arc::new(event)))
    }

    /// Wakes the thread for good: later waits return at once.
    pub(crate) fn wake(&self) {
        // A full counter wakes the thread as well.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until the thread is woken, or for `nanoseconds`.
    pub(crate) fn pause(&self, nanoseconds: i64) {
        let mut ready = [PollFd::new(&*self.0, PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        // The result does not matter: this is only a pause.
        let _ = poll(&mut ready, Some(&pause));
    }
}

/// The caller that notifies the other side.
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

/// The time between two attempts to connect in nanoseconds.
pub(crate) const RETRY_NS: i64 = 50_000_000;

/// How this side connects to the other side.
#[derive(Debug)]
pub(crate) struct Endpoint {
    kind: EndpointKind,
    /// The users that the other side may run as.
    users: Users,
}

#[derive(Debug)]
enum EndpointKind {
    Listening(Listening),
    Connecting(PathBuf),
}

impl Endpoint {
    /// A server's socket exists when this returns.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(crate) fn new(path: &Path, role: Role, users: &Users) -> Result<Self, Error> {
        // Both roles need a path that fits into a socket's address.
        socket::address_of(path).map_err(|reason| refused(path, reason))?;
        let kind = match role {
            Role::Server => EndpointKind::Listening(listen(path, users)?),
            Role::Client => EndpointKind::Connecting(path.into()),
        };
        Ok(Self { kind, users: users.clone() })
    }

    /// A connection to the other side; `None` if no connection was made for a while, or if the
    /// thread was woken.
    ///
    /// # Errors
    /// The process at the other end is not allowed: the reason, for an operator. Nothing was sent
    /// to it.
    pub(crate) fn wait(&self, wake: &Wake) -> Result<Option<UnixStream>, String> {
        let Some(socket) = self.connection(wake) else { return Ok(None) };
        let why = match self.users.check_other_end("meet the other side", &socket) {
            Ok(()) => return Ok(Some(UnixStream::from(socket))),
            Err(PeerError::OtherUser { process, user, is_unknown, allowed, .. }) => {
                refusal(process, user, is_unknown, &allowed, "the port's users")
            }
            Err(error) => format!("cannot identify the process at the other end: {error:?}"),
        };
        // The close must not block on data that the process already sent.
        closer::close([socket]);
        wake.pause(RETRY_NS);
        Err(why)
    }

    fn connection(&self, wake: &Wake) -> Option<OwnedFd> {
        match &self.kind {
            EndpointKind::Listening(listening) => {
                let listener = listening.socket.as_ref()?;
                let mut ready =
                    [PollFd::new(listener, PollFlags::IN), PollFd::new(&*wake.0, PollFlags::IN)];
                let waited = poll(&mut ready, None);
                let is_over = socket::is_over(ready[0].revents());
                let accepted = waited
                    .and_then(|_| kept(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)));
                match accepted {
                    Ok(socket) => Some(socket),
                    // The front end has disconnected again, or the thread was woken.
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) if !is_over => None,
                    // The failure may last: the process has no descriptors left, or another process
                    // that shares the socket has shut it down.
                    Err(_) => after_a_pause(wake),
                }
            }
            EndpointKind::Connecting(path) => {
                // A process that listens but accepts no connection is not waited for.
                let connected = socket::connect_to(path, SocketType::STREAM).ok();
                let waits = connected.filter(|it| rustix::io::ioctl_fionbio(it, false).is_ok());
                waits.or_else(|| after_a_pause(wake))
            }
        }
    }
}

/// Returns `None` after a pause.
fn after_a_pause(wake: &Wake) -> Option<OwnedFd> {
    wake.pause(RETRY_NS);
    None
}

/// A socket that front ends connect to. Dropping it removes its path.
#[derive(Debug)]
pub(crate) struct Listening {
    /// `None` after it was closed.
    socket: Option<OwnedFd>,
    bound: Bound,
    /// The process that listens: a child of fork does not remove the path.
    here: Here,
}

/// The largest number of connections that may wait while one front end is served.
const BACKLOG: i32 = 16;

/// Listens at a path. Only this user may connect unless others are allowed. A socket on which no
/// process listens any more is replaced.
///
/// # Errors
/// [`Error::Path`].
fn listen(path: &Path, users: &Users) -> Result<Listening, Error> {
    let listening = listening::listen(path, SocketType::STREAM, BACKLOG, users.are_others());
    let (socket, bound) = listening.map_err(|error| match error {
        PeerError::Socket { reason, .. } | PeerError::System { reason, .. } => {
            refused(path, reason)
        }
        other => refused(path, std::io::Error::other(format!("{other:?}"))),
    })?;
    Ok(Listening { socket: Some(socket), bound, here: Here::now() })
}

fn refused(path: &Path, reason: std::io::Error) -> Error {
    let remedy = in_the_way::remedy(&reason).unwrap_or(match reason.kind() {
        std::io::ErrorKind::InvalidInput => "choose a path of 1 to 107 bytes",
        _ => "choose an existing folder that this user owns",
    });
    Error::Path { attempt: "use the socket", path: path.into(), reason, remedy }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.here.is_here() {
            self.bound.remove();
            // A front end that waits in the backlog may have sent descriptors already.
            closer::close(self.socket.take());
        }
    }
}
