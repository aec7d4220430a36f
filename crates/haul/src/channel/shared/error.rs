//! What can go wrong on a channel: every message ends with the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_model::Bytes;
use rustix::process::Resource;

use crate::peer;
use crate::peer::in_the_way;
use crate::peer::users::refusal;

use super::names::Mechanism;

/// Why a channel could not be made, or a transfer did not happen. Whatever the variant, nothing of
/// a message that did not arrive whole is handed out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Unix socket could not be made, bound or connected.
    #[error(
        "cannot {attempt} the socket {}: {reason}; {}",
        shown(path),
        remedy_of_socket(attempt, path, reason)
    )]
    Socket {
        /// What was tried: `bind`, `connect to`.
        attempt: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {attempt}: {reason}; {}", remedy_of_system(reason))]
    System {
        /// What was tried.
        attempt: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// What came over the socket is not the handshake of a channel, or not of this version.
    #[error("the peer's {what} is {found}, not {expected}; use the same haul at both ends")]
    Handshake {
        /// Which part of it.
        what: &'static str,
        /// What came.
        found: String,
        /// What would have been right.
        expected: String,
    },
    /// The other end is a process of a user that may not be there, see [`Settings::users`].
    ///
    /// [`Settings::users`]: crate::channel::Settings::users
    #[error(
        "cannot {attempt}: {}",
        refusal(*process, *user, *is_unknown, allowed, "Settings::users")
    )]
    OtherUser {
        /// `connect`, `accept`.
        attempt: &'static str,
        /// Its process; `None` where it lives in a PID namespace that this one cannot see.
        process: Option<i32>,
        /// Its user.
        user: u32,
        /// Whether that number stands for all users that have none in this user namespace.
        is_unknown: bool,
        /// Users that are.
        allowed: Vec<u32>,
    },
    /// The descriptor or the memory that was handed over could not be used in safety.
    #[error("the peer handed over {found}, not {expected}; it was refused: do not trust this peer")]
    Memory {
        /// What came.
        found: String,
        /// What would have been safe.
        expected: &'static str,
    },
    /// A length, a count or an index from the peer that cannot be true.
    #[error(
        "the peer says {what} {value}, and {limit} is right; the channel is closed: do not trust this peer"
    )]
    Protocol {
        /// Which value it is.
        what: &'static str,
        /// What was said.
        value: u64,
        /// What can be true.
        limit: u64,
    },
    /// So much that peers handed over is not closed yet that nobody new is met: it is of a kind
    /// that is closed only as the peer lets it.
    #[error(
        "cannot begin a channel: {held} descriptors that peers handed over are still being closed, and fewer \
         than {limit} must be; end the peers that hold them up, or this process"
    )]
    Unclosed {
        /// Descriptors that are not closed yet.
        held: usize,
        /// From so many on nobody new is met.
        limit: usize,
    },
    /// The peer died, or closed its end, before the transfer was complete.
    #[error("cannot {attempt}: the peer left {}", went(attempt, *done, *size))]
    PeerGone {
        /// `send`, `receive`, `connect`.
        attempt: &'static str,
        /// How much had moved.
        done: Bytes,
        /// How much there was to move; zero where the message had not begun.
        size: Bytes,
    },
    /// The peer closed its end between two messages: there is nothing more to come.
    #[error("the peer closed the channel; there is nothing more to receive: connect anew for more")]
    Closed,
    /// The peer lives and does not move.
    #[error(
        "cannot {attempt}: the peer has stopped at {done} of {size} for {waited:?}, and the limit is \
         {limit:?}; look what the peer does, or allow more time (the deadline of the settings, --deadline of \
         `haul channel`)"
    )]
    Deadline {
        /// `send`, `receive`, `connect`.
        attempt: &'static str,
        /// How much had moved.
        done: Bytes,
        /// How much there was to move.
        size: Bytes,
        /// How long it was waited for.
        waited: Duration,
        /// How long it may last.
        limit: Duration,
    },
    /// The target is smaller than the message, which stays where it is.
    #[error(
        "a message of {needed} does not fit into a target of {has}; give a larger one, or call recv()"
    )]
    TooSmall {
        /// The message's size.
        needed: Bytes,
        /// The target's size.
        has: Bytes,
    },
    /// More than one message may have.
    #[error(
        "a message of {size} is over the limit of {limit}; send it in parts, or raise size_max at both ends"
    )]
    TooLong {
        /// The message's size.
        size: Bytes,
        /// The limit in force.
        limit: Bytes,
    },
    /// A mechanism that was asked for by name and cannot be had.
    #[error("{mechanism} cannot be used with this peer: {reason}; leave the choice to haul")]
    Unavailable {
        /// What was asked for.
        mechanism: Mechanism,
        /// Why not.
        reason: &'static str,
    },
    /// The bytes that arrived are not those that were sent, see [`Settings::integrity`].
    ///
    /// [`Settings::integrity`]: crate::channel::Settings::integrity
    #[error(
        "a message of {size} changed on its way: its checksum is {found:016x}, not {expected:016x}; \
         connect anew and send it again, and look at this machine's memory"
    )]
    Damaged {
        /// The message's size.
        size: Bytes,
        /// The checksum of what arrived.
        found: u64,
        /// The checksum that came with it.
        expected: u64,
    },
    /// A transfer was given up by its owner before it was complete.
    #[error("the transfer was given up after {done} of {size}; connect anew")]
    GivenUp {
        /// How much had moved.
        done: Bytes,
        /// How much there was to move.
        size: Bytes,
    },
    /// A fork made copies of this end, and a process may not use its own any more, or not yet.
    #[error(
        "this end of the channel is not this process's: {by} has used it since they were forked, or is in \
         the middle of a message; let one process use it, and connect anew in the others"
    )]
    TakenOver {
        /// The one that may.
        by: &'static str,
    },
    /// A transfer failed earlier, and nothing after it can be believed.
    #[error("the channel failed earlier; connect anew")]
    Broken,
}

impl Error {
    /// Memory that both ends share was gone as it was touched.
    #[cold]
    pub(crate) fn memory_gone() -> Self {
        let found = "shared memory with a hole, which the system has no page for".into();
        Self::Memory { found, expected: "memory that stays" }
    }

    /// A value that the peer cannot have, see [`Error::Protocol`].
    pub(crate) fn protocol(what: &'static str, value: u64, limit: u64) -> Self {
        Self::Protocol { what, value, limit }
    }

    /// Maps what the system said, see [`Error::System`].
    pub(crate) fn system<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::System { attempt, reason: reason.into() }
    }
}

impl From<peer::error::Error> for Error {
    fn from(error: peer::error::Error) -> Self {
        use peer::error::Error as Peer;
        match error {
            Peer::Socket { attempt, path, reason } => Self::Socket { attempt, path, reason },
            Peer::System { attempt, reason } => Self::System { attempt, reason },
            Peer::NotASocket { found } => Self::Handshake {
                what: "descriptor",
                found: found.into(),
                expected: "a Unix socket of type SOCK_SEQPACKET".into(),
            },
            Peer::OtherUser { attempt, process, user, is_unknown, allowed } => {
                Self::OtherUser { attempt, process, user, is_unknown, allowed }
            }
            Peer::Memory { found, expected } => Self::Memory { found, expected },
            Peer::Unclosed { held, limit } => Self::Unclosed { held, limit },
            Peer::Gone => Self::PeerGone { attempt: "connect", done: Bytes(0), size: Bytes(0) },
            Peer::Late { waited, limit } => {
                let (done, size) = (Bytes(0), Bytes(1));
                Self::Deadline { attempt: "connect", done, size, waited, limit }
            }
        }
    }
}

/// What became of it by then, and what to do.
fn went(attempt: &str, done: Bytes, size: Bytes) -> String {
    match attempt {
        "connect" => {
            "before the two had met: it may not allow this user, which it would say itself; look \
             what it says, and connect anew"
                .into()
        }
        _ => format!(
            "after {done} of {size}; nothing of the message counts: connect anew and send it again"
        ),
    }
}

/// A path that can be seen where there is none.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "\"\"".into() } else { path.display().to_string() }
}

fn remedy_of_socket(attempt: &str, path: &Path, reason: &io::Error) -> &'static str {
    if let Some(remedy) = in_the_way::remedy(reason) {
        return remedy;
    }
    match reason.kind() {
        io::ErrorKind::InvalidInput if path.as_os_str().is_empty() => "name a path",
        io::ErrorKind::NotFound if attempt != "connect to" => {
            "make the folder that it is to lie in, or name another socket"
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "start the receiver first: haul channel recv SOCKET"
        }
        io::ErrorKind::AddrInUse => "another process has it: name another path",
        io::ErrorKind::PermissionDenied => "name a socket that you may use",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "name a shorter path, 107 B at most"
        }
        _ => "name another socket",
    }
}

fn remedy_of_system(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => {
            format!("free memory, raise the limit ({}), or send in parts", limits_of_memory())
        }
        io::ErrorKind::FileTooLarge => "raise the limit (ulimit -f), or send in parts".into(),
        // What mmap(2) says of memory that is locked as it is mapped.
        io::ErrorKind::WouldBlock => {
            "raise the limit of locked memory (ulimit -l), or lock less (mlockall)".into()
        }
        io::ErrorKind::PermissionDenied => "allow it in the container's seccomp profile".into(),
        _ if reason.raw_os_error() == Some(libc::EMFILE) => "raise the limit: ulimit -n".into(),
        _ => "see `haul channel list` for what works here".into(),
    }
}

/// The limits that this process is under, of those that memory ends at; else the container's.
fn limits_of_memory() -> String {
    let all = [(Resource::As, 'v'), (Resource::Data, 'd')];
    let in_force = all.into_iter().filter_map(|(resource, letter)| {
        let bytes = rustix::process::getrlimit(resource).current?;
        Some(format!("ulimit -{letter}, which is {}", Bytes(bytes)))
    });
    let all: Vec<String> = in_force.chain(["the container's".into()]).collect();
    all.join(", ")
}
