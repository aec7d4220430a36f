//! The errors between this process and a peer, without texts. The crate that communicates with
//! the peer adds the message and the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why this process could not communicate with a peer, or use the peer's descriptor. The enum is
/// exhaustive, because the crates that report this error match every variant.
#[derive(Debug)]
pub enum Error {
    /// The Unix socket at this path could not be created, bound or connected.
    Socket {
        /// The attempt: `bind`, `connect to`.
        attempt: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The system refused another operation.
    System {
        /// The attempt.
        attempt: &'static str,
        /// The system's reason.
        reason: io::Error,
    },
    /// A descriptor should be a connected Unix socket of type SOCK_SEQPACKET, but is not.
    NotASocket {
        /// The kind of the descriptor.
        found: &'static str,
    },
    /// The process at the other end belongs to a user that is not allowed.
    OtherUser {
        /// The attempt: `connect`, `accept`.
        attempt: &'static str,
        /// The process at the other end; `None` if it is not visible in this PID namespace.
        process: Option<i32>,
        /// The user of that process.
        user: u32,
        /// Whether `user` is the number for all users that have no number in this user namespace.
        is_unknown: bool,
        /// The users that are allowed.
        allowed: Vec<u32>,
    },
    /// Memory that the peer handed over does not meet its contract.
    Memory {
        /// The memory that arrived.
        found: String,
        /// The contract.
        expected: &'static str,
    },
    /// Too many descriptors that peers handed over are not closed yet.
    Unclosed {
        /// Descriptors that are not closed yet.
        held: usize,
        /// With this many, this process accepts no new peer.
        limit: usize,
    },
    /// The peer closed the connection before it had sent the expected packet.
    Gone,
    /// The peer did not send the expected packet in time.
    Late {
        /// The time that this process has waited.
        waited: Duration,
        /// The time limit.
        limit: Duration,
    },
}

impl Error {
    /// Maps the system's reason.
    pub fn system<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::System { attempt, reason: reason.into() }
    }
}
