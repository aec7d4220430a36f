//! The descriptor that an event loop polls. It is readable if the socket is readable, and while
//! this end has pending work that no event from the peer signals.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::descriptor::kept;
use super::error::Error;

/// One descriptor for both conditions: an epoll set that contains the socket and, while work is
/// pending, a descriptor that is always readable.
#[derive(Debug)]
pub struct Poller {
    set: OwnedFd,
    always: &'static OwnedFd,
    /// The directions with pending work, one bit per direction. A bit is changed only under the
    /// lock. Only the thread that uses a direction changes its bit, so this thread may read the
    /// bit without the lock.
    pending: AtomicU8,
    lock: Mutex<()>,
}

impl Poller {
    /// # Errors
    /// [`Error::System`] if no descriptor can be created.
    pub fn new(socket: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = || Error::system::<Errno>("make a descriptor to poll");
        let always = always().map_err(failed())?;
        let set = kept(epoll::create(epoll::CreateFlags::CLOEXEC)).map_err(failed())?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, socket, data, epoll::EventFlags::IN).map_err(failed())?;
        Ok(Self { set, always, pending: AtomicU8::new(0), lock: Mutex::default() })
    }

    /// Makes this descriptor a third condition, as long as it is open: the poller is readable while
    /// `file` is. A stated limit: the caller closes `file` only together with the poller.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses, because memory or watches are exhausted.
    pub fn add(&self, file: BorrowedFd<'_>) -> Result<(), Error> {
        let data = epoll::EventData::new_u64(2);
        epoll::add(&self.set, file, data, epoll::EventFlags::IN)
            .map_err(Error::system::<Errno>("add a descriptor to poll"))
    }

    /// Marks that work is pending in this direction, 0 or 1. Returns false if the kernel refuses,
    /// because memory or watches are exhausted. In this case the caller must not leave work
    /// pending.
    pub fn set_pending(&self, direction: usize) -> bool {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = self.pending.load(Relaxed);
        let data = epoll::EventData::new_u64(1);
        if pending == 0 {
            match epoll::add(&self.set, self.always, data, epoll::EventFlags::IN) {
                // EXIST: the process that forked this process uses the same set, and had work
                // pending.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(_) => return false,
            }
        }
        self.pending.store(pending | 1 << direction, Relaxed);
        true
    }

    /// Clears the mark of this direction.
    pub fn clear_pending(&self, direction: usize) {
        if self.pending.load(Relaxed) & 1 << direction == 0 {
            return;
        }
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = self.pending.load(Relaxed) & !(1 << direction);
        self.pending.store(pending, Relaxed);
        if pending == 0 {
            // The call cannot fail, because the descriptor is in the set.
            let _ = epoll::delete(&self.set, self.always);
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// A descriptor that is always readable. All pollers of the process share it.
fn always() -> Result<&'static OwnedFd, Errno> {
    static ALWAYS: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(always) = ALWAYS.get() {
        return Ok(always);
    }
    let made = kept(rustix::event::eventfd(1, EventfdFlags::CLOEXEC))?;
    Ok(ALWAYS.get_or_init(|| made))
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec};

    use super::*;
    use crate::fork::tests::without_starts;
    use crate::socket::pair;

    fn is_readable(poller: &Poller) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut set = [PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut set, Some(&now)) == Ok(1)
    }

    #[test]
    fn poller_is_readable_if_socket_is_or_work_is_pending() {
        let _starts = without_starts();
        let (socket, other) = pair().unwrap();
        let poller = Poller::new(socket.as_fd()).unwrap();
        assert!(!is_readable(&poller));
        assert!(poller.set_pending(0) && poller.set_pending(1) && poller.set_pending(0));
        assert!(is_readable(&poller) && is_readable(&poller));
        poller.clear_pending(0);
        assert!(is_readable(&poller), "work of the other direction is pending");
        poller.clear_pending(1);
        poller.clear_pending(1);
        assert!(!is_readable(&poller));
        rustix::io::write(&other, b"x").unwrap();
        assert!(is_readable(&poller));
        rustix::io::read(&socket, &mut [0; 9]).unwrap();
        assert!(!is_readable(&poller));
        drop(other);
        assert!(is_readable(&poller), "the other end is gone");
    }
}
