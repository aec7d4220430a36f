//! What can go wrong on a channel.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haul_model::Bytes;

use haul_peer as peer;

use super::names::Mechanism;

/// Why a channel could not be made, or a transfer did not happen. Whatever the variant, nothing of
/// a message that did not arrive whole is handed out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The Unix socket could not be made, bound or connected.
    Socket {
        /// What was tried: `bind`, `connect to`.
        attempt: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The system refused something else.
    System {
        /// What was tried.
        attempt: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// What came over the socket is not the handshake of a channel, or not of this version.
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
    /// [`Settings::users`]: crate::Settings::users
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
    Memory {
        /// What came.
        found: String,
        /// What would have been safe.
        expected: &'static str,
    },
    /// A length, a count or an index from the peer that cannot be true.
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
    Unclosed {
        /// Descriptors that are not closed yet.
        held: usize,
        /// From so many on nobody new is met.
        limit: usize,
    },
    /// The peer died, or closed its end, before the transfer was complete.
    PeerGone {
        /// `send`, `receive`, `connect`.
        attempt: &'static str,
        /// How much had moved.
        done: Bytes,
        /// How much there was to move; zero where the message had not begun.
        size: Bytes,
    },
    /// The peer closed its end between two messages: there is nothing more to come.
    Closed,
    /// The peer lives and does not move.
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
    TooSmall {
        /// The message's size.
        needed: Bytes,
        /// The target's size.
        has: Bytes,
    },
    /// More than one message may have.
    TooLong {
        /// The message's size.
        size: Bytes,
        /// The limit in force.
        limit: Bytes,
    },
    /// A mechanism that was asked for by name and cannot be had.
    Unavailable {
        /// What was asked for.
        mechanism: Mechanism,
        /// Why not.
        reason: &'static str,
    },
    /// The bytes that arrived are not those that were sent, see [`Settings::integrity`].
    ///
    /// [`Settings::integrity`]: crate::Settings::integrity
    Damaged {
        /// The message's size.
        size: Bytes,
        /// The checksum of what arrived.
        found: u64,
        /// The checksum that came with it.
        expected: u64,
    },
    /// A transfer was given up by its owner before it was complete.
    GivenUp {
        /// How much had moved.
        done: Bytes,
        /// How much there was to move.
        size: Bytes,
    },
    /// A fork made copies of this end, and a process may not use its own any more, or not yet.
    TakenOver {
        /// The one that may.
        by: &'static str,
    },
    /// A transfer failed earlier, and nothing after it can be believed.
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
