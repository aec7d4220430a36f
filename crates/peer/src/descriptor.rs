//! Descriptors that this library keeps: none of them is 0, 1 or 2.
//!
//! A program that has closed its standard input, output or error, as a daemon does, gets these
//! numbers for the next files that it opens. Whoever prints afterwards, a library among them,
//! writes into what is there by then: a socket, or memory. So everything that makes or receives a
//! descriptor to keep passes it through [`keep`].

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};

/// The first number behind standard input, output and error.
const FIRST: RawFd = 3;

/// The same file by a number that nobody prints to. A system call more only where standard input,
/// output or error was closed.
///
/// # Errors
/// What fcntl(2) says, where the process may have no more descriptors; the file is closed then.
pub fn keep(made: OwnedFd) -> Result<OwnedFd, Errno> {
    if made.as_raw_fd() >= FIRST {
        return Ok(made);
    }
    rustix::io::fcntl_dupfd_cloexec(&made, FIRST)
}

/// As [`keep`], for one that a crate received without MSG_CMSG_CLOEXEC: from here on no program
/// that this process starts inherits it.
///
/// # Errors
/// As [`keep`]; what fcntl(2) says.
pub fn keep_received(received: OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_setfd(&received, FdFlags::CLOEXEC)?;
    keep(received)
}

/// As [`keep`], for a call that makes one.
///
/// # Errors
/// What the call said, or as [`keep`].
pub fn kept<E>(made: Result<OwnedFd, E>) -> Result<OwnedFd, E>
where
    E: From<Errno>,
{
    Ok(keep(made?)?)
}
