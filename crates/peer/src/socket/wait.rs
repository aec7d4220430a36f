//! Waits for a socket.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::message::{Packet, receive};
use crate::error::Error;

/// Waits for the next packet until the instant `until`.
pub fn receive_until(socket: &OwnedFd, limit: Duration, until: Instant) -> Result<Packet, Error> {
    loop {
        match receive(socket) {
            Ok(Some(packet)) => return Ok(packet),
            Ok(None) => {}
            Err(_) => return Err(Error::Gone),
        }
        let is_late = Instant::now() >= until;
        if is_late || !wait_readable(socket.as_fd(), Some(until))? {
            let waited = limit + until.elapsed();
            return Err(Error::Late { waited, limit });
        }
    }
}

/// Waits until a descriptor is readable or its other end is gone. Returns false if the time is
/// over.
pub fn wait_readable(file: BorrowedFd<'_>, until: Option<Instant>) -> Result<bool, Error> {
    wait_for(file, until).map(|found| found.is_some())
}

/// Like [`wait_readable`], but returns the events; `None` if the time is over.
pub(super) fn wait_for(
    file: BorrowedFd<'_>,
    until: Option<Instant>,
) -> Result<Option<PollFlags>, Error> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut set = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
        match rustix::event::poll(&mut set, time.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(set[0].revents())),
            Err(Errno::INTR) => {}
            Err(reason) => return Err(Error::system("wait for the socket")(reason)),
        }
    }
}
