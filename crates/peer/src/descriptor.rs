//! Descriptors that this library keeps. None of them is 0, 1 or 2.
//!
//! A program that has closed its standard input, output or error, as a daemon does, gets these
//! numbers for the next files that it opens. Code that prints afterwards, perhaps in a library,
//! then writes into these files: a socket, or memory. So all code that makes or receives a
//! descriptor to keep passes it through [`keep`].

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};

/// The first number after standard input, output and error.
const FIRST: RawFd = 3;

/// Returns a descriptor of the same file whose number is not 0, 1 or 2. Costs one system call,
/// and only if standard input, output or error was closed.
///
/// # Errors
/// The error of fcntl(2), if the process may have no more descriptors. The file is closed then.
pub fn keep(made: OwnedFd) -> Result<OwnedFd, Errno> {
    if made.as_raw_fd() >= FIRST {
        return Ok(made);
    }
    rustix::io::fcntl_dupfd_cloexec(&made, FIRST)
}

/// Like [`keep`], for a descriptor that was received without MSG_CMSG_CLOEXEC. From now on no
/// program that this process starts inherits it.
///
/// # Errors
/// Those of [`keep`], or the error of fcntl(2).
pub fn keep_received(received: OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_setfd(&received, FdFlags::CLOEXEC)?;
    keep(received)
}

/// Like [`keep`], for the result of a call that makes a descriptor.
///
/// # Errors
/// The error of the call, or those of [`keep`].
pub fn kept<E>(made: Result<OwnedFd, E>) -> Result<OwnedFd, E>
where
    E: From<Errno>,
{
    Ok(keep(made?)?)
}
