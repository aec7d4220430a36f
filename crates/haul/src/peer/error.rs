//! What can go wrong between this process and another, without words for a person: the part that
//! meets the peer says it, with the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a peer could not be met, or something of its could not be used.
#[derive(Debug)]
pub(crate) enum Error {
    /// The Unix socket at this path could not be made, bound or connected.
    Socket { attempt: &'static str, path: PathBuf, reason: io::Error },
    /// The system refused something else.
    System { attempt: &'static str, reason: io::Error },
    /// A descriptor is no connected Unix socket of packets.
    NotASocket { found: &'static str },
    /// A process of this user may not be at the other end.
    OtherUser {
        attempt: &'static str,
        process: Option<i32>,
        user: u32,
        is_unknown: bool,
        allowed: Vec<u32>,
    },
    /// What was handed over does not keep the contract under which it was to be used.
    Memory { found: String, expected: &'static str },
    /// Too many descriptors that peers handed over are not closed yet.
    Unclosed { held: usize, limit: usize },
    /// The peer went before it had said what was waited for.
    Gone,
    /// The peer did not say in time what was waited for.
    Late { waited: Duration, limit: Duration },
}

impl Error {
    /// Maps what the system said.
    pub(crate) fn system<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |reason| Self::System { attempt, reason: reason.into() }
    }
}
