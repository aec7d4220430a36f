//! What can go wrong with a port: one error type, whose messages end with the remedy.

use std::io;
use std::path::PathBuf;

/// Why a port could not be opened, or is of no use any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("cannot {attempt}: {reason}; {remedy}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// What the system said.
        reason: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// A socket, a file or an interface that cannot be had.
    #[error("cannot {attempt} {}: {reason}; {remedy}", path.display())]
    Path {
        /// What was attempted.
        attempt: &'static str,
        /// Its path or name.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// A value that cannot be.
    #[error("{what} {value} is not possible: {limit}")]
    Value {
        /// What was given: `a rate of`, `a packet size of`.
        what: &'static str,
        /// The value.
        value: String,
        /// What is possible, as a sentence.
        limit: &'static str,
    },
    /// A pool's memory could not be had.
    #[error(
        "cannot have memory for {packets} packets ({bytes} B): {reason}; free memory, raise the \
         limits of the process (ulimit), or use fewer packets"
    )]
    Memory {
        /// Buffers that were asked for.
        packets: u32,
        /// Bytes that these take.
        bytes: usize,
        /// What the system or the heap said.
        reason: String,
    },
    /// The other side did not keep the protocol.
    #[error("port {port}: the peer {found}, expected {expected}; restart the peer")]
    Peer {
        /// The port's name.
        port: String,
        /// What it did.
        found: String,
        /// What it should have done.
        expected: &'static str,
    },
}
