//! The errors of a port. Each message ends with the remedy.

use std::io;
use std::path::PathBuf;

/// Why a port could not be opened, or can no longer be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused a call.
    #[error("cannot {attempt}: {reason}; {remedy}")]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The system's error.
        reason: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A socket, a file or an interface that cannot be used.
    #[error("cannot {attempt} {}: {reason}; {remedy}", path.display())]
    Path {
        /// What was attempted.
        attempt: &'static str,
        /// The path or name of the socket, file or interface.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A value outside the limits.
    #[error("{what} {value} is not possible: {limit}")]
    Value {
        /// The name of the value: `a rate of`, `a packet size of`.
        what: &'static str,
        /// The value.
        value: String,
        /// The values that are possible, as a sentence.
        limit: &'static str,
    },
    /// The system or the heap has no memory for a pool.
    #[error(
        "cannot allocate memory for {packets} packets ({bytes} B): {reason}; free memory, raise \
         the limits of the process (ulimit), or use fewer packets"
    )]
    Memory {
        /// The number of buffers that the caller requested.
        packets: u32,
        /// The size of these buffers in bytes.
        bytes: usize,
        /// The error of the system or the heap.
        reason: String,
    },
    /// The other side violated the protocol.
    #[error("port {port}: the peer {found}, expected {expected}; restart the peer")]
    Peer {
        /// The port's name.
        port: String,
        /// What the peer did.
        found: String,
        /// What the protocol demands instead.
        expected: &'static str,
    },
}
