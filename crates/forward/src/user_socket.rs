//! The Unix sockets of vhost-user: a path taken, with care for what is there, and how two sides
//! meet at it. Whose process is at the other end is asked before a word is said, by the rule of
//! channels ([`Users`]).

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
pub(crate) struct Meeting {
    place: Place,
    /// Who may be there.
    users: Users,
}

#[derive(Debug)]
enum Place {
    Listening(Listening),
    Connecting(PathBuf),
}

impl Meeting {
    /// A server's socket is there when this returns.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(crate) fn new(path: &Path, role: Role, users: &Users) -> Result<Self, Error> {
        // Both roles ask for a path that a socket can have.
        socket::address_of(path).map_err(|reason| refused(path, reason))?;
        let place = match role {
            Role::Server => Place::Listening(listen(path, users)?),
            Role::Client => Place::Connecting(path.into()),
        };
        Ok(Self { place, users: users.clone() })
    }

    /// A connection to the other side; `None` after a while without one, or when woken.
    ///
    /// # Errors
    /// Who is there may not be: why, as a person hears it. Nothing was said to it.
    pub(crate) fn wait(&self, wake: &Wake) -> Result<Option<UnixStream>, String> {
        let Some(socket) = self.connection(wake) else { return Ok(None) };
        let why = match self.users.check_other_end("meet the other side", &socket) {
            Ok(()) => return Ok(Some(UnixStream::from(socket))),
            Err(PeerError::OtherUser { process, user, is_unknown, allowed, .. }) => {
                refusal(process, user, is_unknown, &allowed, "the port's users")
            }
            Err(error) => format!("the system does not say who is at the other end: {error:?}"),
        };
        // What it sent already is no reason to wait as it is closed.
        closer::close([socket]);
        wake.pause(RETRY_NS);
        Err(why)
    }

    fn connection(&self, wake: &Wake) -> Option<OwnedFd> {
        match &self.place {
            Place::Listening(listening) => {
                let listener = listening.socket.as_ref()?;
                let mut ready =
                    [PollFd::new(listener, PollFlags::IN), PollFd::new(&*wake.0, PollFlags::IN)];
                let waited = poll(&mut ready, None);
                let is_over = socket::is_over(ready[0].revents());
                let accepted = waited
                    .and_then(|_| kept(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)));
                match accepted {
                    Ok(socket) => Some(socket),
                    // The front end has gone again, or the thread was woken.
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) if !is_over => None,
                    // It may last: a process that may open no more files, or a socket that
                    // another process, which has it too, has shut down.
                    Err(_) => after_a_pause(wake),
                }
            }
            Place::Connecting(path) => {
                // Who listens there and accepts nobody is not waited for.
                let connected = socket::connect_to(path, SocketType::STREAM).ok();
                let waits = connected.filter(|it| rustix::io::ioctl_fionbio(it, false).is_ok());
                waits.or_else(|| after_a_pause(wake))
            }
        }
    }
}

/// Nothing, but not at once.
fn after_a_pause(wake: &Wake) -> Option<OwnedFd> {
    wake.pause(RETRY_NS);
    None
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

/// Listens at a path, for this user alone unless others are allowed. A socket that nobody listens
/// on any more is replaced.
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
        _ => "choose a folder that exists and is yours",
    });
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
