//! The errors between this process and a peer, without texts. The crate that meets the peer adds
//! the message and the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a peer could not be met, or its descriptor could not be used. The crates that report this
/// error match every variant, so the enum is exhaustive.
#[derive(Debug)]
pub enum Error {
    /// The Unix socket at this path could not be made, bound or connected.
    Socket {
        /// The attempt: `bind`, `connect to`.
        attempt: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// The system refused something else.
    System {
        /// The attempt.
        attempt: &'static str,
        /// The system's reason.
        reason: io::Error,
    },
    /// A descriptor is not a connected Unix socket of type SOCK_SEQPACKET.
    NotASocket {
        /// The kind of the descriptor.
        found: &'static str,
    },
    /// The process at the other end belongs to a user that is not allowed.
    OtherUser {
        /// The attempt: `connect`, `accept`.
        attempt: &'static str,
        /// Its process; `None` if this PID namespace cannot see it.
        process: Option<i32>,
        /// Its user.
        user: u32,
        /// Whether that number stands for all users that have no number in this user namespace.
        is_unknown: bool,
        /// The users that are allowed.
        allowed: Vec<u32>,
    },
    /// Memory that the peer handed over does not fulfil its contract.
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
        /// The number from which on no new peer is met.
        limit: usize,
    },
    /// The peer left before it had sent the expected packet.
    Gone,
    /// The peer did not send the expected packet in time.
    Late {
        /// Time spent waiting.
        waited: Duration,
        /// The time allowed.
        limit: Duration,
    },
}

impl Error {
    /// Maps the system's reason.
    pub fn system<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::System { attempt, reason: reason.into() }
    }
}
