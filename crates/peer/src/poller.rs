//! What an event loop polls: readable as the socket is, and while this end has left something to
//! do, which nothing that comes from the peer would tell.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::descriptor::kept;
use super::error::Error;

/// One descriptor for both: a set of the socket and, now and then, of one that can always be read.
#[derive(Debug)]
pub struct Poller {
    set: OwnedFd,
    always: &'static OwnedFd,
    /// Which of the two directions have left something, a bit for each, changed under the lock.
    /// Each bit is changed by whoever has that direction alone, so to look at it takes none.
    pending: AtomicU8,
    lock: Mutex<()>,
}

impl Poller {
    /// # Errors
    /// [`Error::System`] where there is no descriptor to be had.
    pub fn new(socket: BorrowedFd<'_>) -> Result<Self, Error> {
        let failed = || Error::system::<Errno>("make a descriptor to poll");
        let always = always().map_err(failed())?;
        let set = kept(epoll::create(epoll::CreateFlags::CLOEXEC)).map_err(failed())?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, socket, data, epoll::EventFlags::IN).map_err(failed())?;
        Ok(Self { set, always, pending: AtomicU8::new(0), lock: Mutex::default() })
    }

    /// Says that there is something to do in this direction, 0 or 1. False where the kernel
    /// refuses, which has no memory or may watch no more: then nothing may be left.
    pub fn set_pending(&self, direction: usize) -> bool {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = self.pending.load(Relaxed);
        let data = epoll::EventData::new_u64(1);
        if pending == 0 {
            match epoll::add(&self.set, self.always, data, epoll::EventFlags::IN) {
                // A process that this one came of by a fork has the same set, and left something.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(_) => return false,
            }
        }
        self.pending.store(pending | 1 << direction, Relaxed);
        true
    }

    /// What was left in this direction is looked at now.
    pub fn clear_pending(&self, direction: usize) {
        if self.pending.load(Relaxed) & 1 << direction == 0 {
            return;
        }
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = self.pending.load(Relaxed) & !(1 << direction);
        self.pending.store(pending, Relaxed);
        if pending == 0 {
            // It is in the set.
            let _ = epoll::delete(&self.set, self.always);
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// A descriptor that can always be read, one for the process.
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

    use super::super::socket::pair;
    use super::*;

    fn is_readable(poller: &Poller) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut set = [PollFd::from_borrowed_fd(poller.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut set, Some(&now)) == Ok(1)
    }

    #[test]
    fn it_is_readable_as_the_socket_is_or_while_one_direction_left_something() {
        let (socket, other) = pair().unwrap();
        let poller = Poller::new(socket.as_fd()).unwrap();
        assert!(!is_readable(&poller));
        assert!(poller.set_pending(0) && poller.set_pending(1) && poller.set_pending(0));
        assert!(is_readable(&poller) && is_readable(&poller));
        poller.clear_pending(0);
        assert!(is_readable(&poller), "the other direction's");
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
