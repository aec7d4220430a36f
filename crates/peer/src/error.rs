//! What can go wrong between this process and another, without words for a person: the part that
//! meets the peer says it, with the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a peer could not be met, or something of its could not be used.
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
    /// A descriptor is no connected Unix socket of packets.
    NotASocket {
        /// What the descriptor is.
        found: &'static str,
    },
    /// A process of this user may not be at the other end.
    OtherUser {
        /// The attempt: `connect`, `accept`.
        attempt: &'static str,
        /// Its process; `None` if this PID namespace cannot see it.
        process: Option<i32>,
        /// Its user.
        user: u32,
        /// Whether that number stands for all users without one in this user namespace.
        is_unknown: bool,
        /// The users that are allowed.
        allowed: Vec<u32>,
    },
    /// What was handed over does not keep the contract under which it was to be used.
    Memory {
        /// The memory that came.
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
    /// The peer went before it had said what was waited for.
    Gone,
    /// The peer did not say in time what was waited for.
    Late {
        /// Time spent waiting.
        waited: Duration,
        /// The time allowed.
        limit: Duration,
    },
}

impl Error {
    /// Maps what the system said.
    pub fn system<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::System { attempt, reason: reason.into() }
    }
}
