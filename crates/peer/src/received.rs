//! Descriptors that the peer handed over. Closing such a descriptor may wait for the peer: if it
//! is a file in the peer's own file system (FUSE), the kernel asks the peer, and a socket with
//! SO_LINGER waits for unsent bytes. No deadline ends this wait. So this process keeps only
//! descriptors that the kernel can close without the peer: memory and pidfds. Background threads
//! close all other descriptors: see `closer`.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::LazyLock;

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::caller::is_event;
use super::closer;
use super::error::Error;

/// The descriptor that came with a packet.
#[derive(Debug, Default)]
pub enum Received {
    /// No descriptor arrived.
    #[default]
    Nothing,
    /// Memory, or a pidfd.
    File(OwnedFd),
    /// More than one descriptor arrived; all were closed.
    Several,
    /// A descriptor of another kind, whose closing may wait for the peer. A background thread
    /// closes it.
    Foreign,
    /// This process may have no more descriptors, so the kernel dropped descriptors of the
    /// packet.
    Lost,
}

impl Received {
    /// Keeps the descriptor of a packet if it is memory or a pidfd.
    pub fn of(files: Vec<OwnedFd>, is_cut: bool) -> Self {
        let is_known = |file: &OwnedFd| is_memory(file) || is_process(file);
        let (mut known, foreign): (Vec<_>, Vec<_>) = files.into_iter().partition(is_known);
        if !foreign.is_empty() {
            closer::close(foreign);
            return Self::Foreign;
        }
        match (known.len(), is_cut) {
            (_, true) => Self::Lost,
            (0, _) => Self::Nothing,
            (1, _) => known.pop().map_or(Self::Nothing, Self::File),
            _ => Self::Several,
        }
    }

    /// Returns the descriptor, if exactly one arrived and it was kept.
    ///
    /// # Errors
    /// [`Error::Memory`], and [`Error::System`] if this process may have no more descriptors.
    pub fn file(self, expected: &'static str) -> Result<OwnedFd, Error> {
        let found = match self {
            Self::File(file) => return Ok(file),
            Self::Lost => {
                return Err(Error::system("take a descriptor from the peer")(Errno::MFILE));
            }
            Self::Nothing => "no descriptor",
            Self::Several => "several descriptors at once",
            Self::Foreign => "a descriptor that is not of memory",
        };
        Err(Error::Memory { found: found.into(), expected })
    }
}

/// Closes descriptors that this process does not keep, without waiting for the peer.
pub fn let_go(files: Vec<OwnedFd>) {
    let is_foreign = |file: &OwnedFd| !is_memory(file) && !is_event(file);
    let foreign: Vec<_> = files.into_iter().filter(is_foreign).collect();
    if !foreign.is_empty() {
        closer::close(foreign);
    }
}

/// Whether a descriptor is a memory file: only memory files have seals. The check calls no file
/// system.
fn is_memory(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok()
}

/// Whether a descriptor is a pidfd: only pidfds accept a signal, here signal 0. The check calls
/// no file system.
fn is_process(file: &OwnedFd) -> bool {
    /// Whether the kernel itself answers the call, and not a filter of system calls.
    static IS_ASKED: LazyLock<bool> = LazyLock::new(|| send_nothing(-1) == Err(libc::EBADF));
    // Errors for a pidfd: the process has ended, or this process may not send signals to its user
    // or its PID namespace.
    let known = [libc::ESRCH, libc::EPERM, libc::EINVAL];
    *IS_ASKED
        && send_nothing(file.as_raw_fd()).map_or_else(|error| known.contains(&error), |()| true)
}

/// Sends signal 0 to a process by its pidfd. Returns the kernel's error.
fn send_nothing(number: RawFd) -> Result<(), i32> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the call takes numbers and a null pointer instead of a description of the signal.
    // Signal 0 is never sent.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, number, 0, none, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    if sent == 0 { Ok(()) } else { Err(error.unwrap_or(0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn pipe() -> OwnedFd {
        rustix::pipe::pipe().unwrap().0
    }

    fn memory() -> OwnedFd {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create(c"received", flags).unwrap()
    }

    #[test]
    fn file_keeps_only_single_descriptor_of_expected_kind() {
        let device = || OwnedFd::from(File::open("/dev/null").unwrap());
        let of = |files, is_cut| Received::of(files, is_cut).file("memory");
        assert!(of(vec![memory()], false).is_ok());
        let own = crate::process::own_watch();
        assert!(own.is_none_or(|own| of(vec![own], false).is_ok()));
        let said = |files, is_cut| match of(files, is_cut).unwrap_err() {
            Error::Memory { found, .. } => found,
            Error::System { reason, .. } => {
                assert_eq!(reason.raw_os_error(), Some(libc::EMFILE));
                "ulimit -n".into()
            }
            other => panic!("{other:?}"),
        };
        assert!(said(vec![], false).contains("no descriptor"));
        assert!(said(vec![pipe()], false).contains("not of memory"));
        assert!(said(vec![device()], false).contains("not of memory"));
        assert!(said(vec![memory(), device()], false).contains("not of memory"));
        assert!(said(vec![memory(), memory()], false).contains("several"));
        assert!(said(vec![memory()], true).contains("ulimit -n"));
    }
}
