//! The errors of a channel.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haul_model::Bytes;

use haul_peer as peer;

use super::names::Mechanism;

/// Why a channel could not be made, or a transfer failed. In every case, no part of an incomplete
/// message is handed out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The Unix socket could not be made, bound or connected.
    Socket {
        /// The attempt: `bind`, `connect to`.
        attempt: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The system refused another request.
    System {
        /// The attempt.
        attempt: &'static str,
        /// The system's reason.
        reason: io::Error,
    },
    /// The peer's packet is not a handshake of a channel, or not of this version.
    Handshake {
        /// The part of the handshake.
        what: &'static str,
        /// The value that arrived.
        found: String,
        /// The value that was expected.
        expected: String,
    },
    /// The process at the other end belongs to a user that is not allowed, see [`Settings::users`].
    ///
    /// [`Settings::users`]: crate::Settings::users
    OtherUser {
        /// The attempt: `connect`, `accept`.
        attempt: &'static str,
        /// The process at the other end; `None` if this PID namespace cannot see it.
        process: Option<i32>,
        /// The user of that process.
        user: u32,
        /// Whether that number stands for all users that have no number in this user namespace.
        is_unknown: bool,
        /// The users that are allowed.
        allowed: Vec<u32>,
    },
    /// A descriptor or memory that the peer handed over is not safe to use.
    Memory {
        /// The value that arrived.
        found: String,
        /// The value that is safe.
        expected: &'static str,
    },
    /// The peer sent an impossible length, count or index.
    Protocol {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: u64,
        /// The limit, or the expected value.
        limit: u64,
    },
    /// Too many descriptors that peers handed over are not closed yet, so no new channel begins.
    /// A peer can delay the closing of some kinds of descriptors.
    Unclosed {
        /// Descriptors that are not closed yet.
        held: usize,
        /// If this number of descriptors is not closed yet, no new channel begins.
        limit: usize,
    },
    /// The peer died, or closed its end, before the transfer was complete.
    PeerGone {
        /// The attempt: `send`, `receive`, `connect`.
        attempt: &'static str,
        /// Bytes that had moved.
        done: Bytes,
        /// Bytes of the message; zero if it had not begun.
        size: Bytes,
    },
    /// The peer closed its end between two messages: it sends no more messages.
    Closed,
    /// The peer lives but makes no progress.
    Deadline {
        /// The attempt: `send`, `receive`, `connect`.
        attempt: &'static str,
        /// Bytes that had moved.
        done: Bytes,
        /// Bytes of the message.
        size: Bytes,
        /// The time waited.
        waited: Duration,
        /// The time allowed.
        limit: Duration,
    },
    /// The target is smaller than the message. The message stays in the channel.
    TooSmall {
        /// The message's size.
        needed: Bytes,
        /// The target's size.
        has: Bytes,
    },
    /// The message is longer than the limit.
    TooLong {
        /// The message's size.
        size: Bytes,
        /// The limit in force.
        limit: Bytes,
    },
    /// The mechanism that the settings name is not available.
    Unavailable {
        /// The mechanism.
        mechanism: Mechanism,
        /// Why the mechanism is not available.
        reason: &'static str,
    },
    /// The bytes that arrived differ from those that were sent, see [`Settings::integrity`].
    ///
    /// [`Settings::integrity`]: crate::Settings::integrity
    Damaged {
        /// The message's size.
        size: Bytes,
        /// The checksum of the bytes that arrived.
        found: u64,
        /// The checksum that the sender sent.
        expected: u64,
    },
    /// The sender gave the transfer up before it was complete.
    GivenUp {
        /// Bytes that had moved.
        done: Bytes,
        /// Bytes of the message.
        size: Bytes,
    },
    /// A fork copied this end, and another process uses it.
    TakenOver {
        /// The process that uses this end.
        by: &'static str,
    },
    /// A transfer failed earlier, so the shared state is no longer reliable.
    Broken,
}

impl Error {
    /// A page of the shared memory was missing when it was accessed.
    #[cold]
    pub(crate) fn memory_gone() -> Self {
        let found = "shared memory with a hole, which the system has no page for".into();
        Self::Memory { found, expected: "memory that stays" }
    }

    /// An impossible value from the peer, see [`Error::Protocol`].
    pub(crate) fn protocol(what: &'static str, value: u64, limit: u64) -> Self {
        Self::Protocol { what, value, limit }
    }

    /// Maps the system's reason, see [`Error::System`].
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
