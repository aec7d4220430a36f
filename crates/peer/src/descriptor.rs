//! Ensures that no descriptor that this library keeps is 0, 1 or 2.
//!
//! A program may have closed its standard input, output or error, like a daemon. The next files
//! that it opens then get these numbers. Code that prints afterwards, perhaps in a library, would
//! write into these files, for example a socket or memory. So all code that creates or receives a
//! descriptor and keeps it must call [`keep`].

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};

/// The first number after standard input, output and error.
const FIRST: RawFd = 3;

/// Returns a descriptor of the same file with a number that is not 0, 1 or 2. Makes one system
/// call if `made` has such a number, else none.
///
/// # Errors
/// The error of fcntl(2) if the process may have no more descriptors. The file is then closed.
pub fn keep(made: OwnedFd) -> Result<OwnedFd, Errno> {
    if made.as_raw_fd() >= FIRST {
        return Ok(made);
    }
    rustix::io::fcntl_dupfd_cloexec(&made, FIRST)
}

/// Like [`keep`], for a descriptor that was received without MSG_CMSG_CLOEXEC. From now on, no
/// program that this process starts inherits the descriptor.
///
/// # Errors
/// Those of [`keep`], or the error of fcntl(2).
pub fn keep_received(received: OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_setfd(&received, FdFlags::CLOEXEC)?;
    keep(received)
}

/// Like [`keep`], for the result of a call that creates a descriptor.
///
/// # Errors
/// The error of the call, or those of [`keep`].
pub fn kept<E>(made: Result<OwnedFd, E>) -> Result<OwnedFd, E>
where
    E: From<Errno>,
{
    Ok(keep(made?)?)
}
