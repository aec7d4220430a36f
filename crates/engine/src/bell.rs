//! Completion by an event that a poll can wait for.

use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::outcome::Error;
use crate::sys;

/// An eventfd that is readable once an operation has ended: for `poll`, `epoll` and io_uring.
///
/// ```
/// use haul_engine::{Bell, Copy, Queue};
/// use rustix::event::{PollFd, PollFlags, poll};
/// let (queue, bell) = (Queue::worker()?, Bell::new()?);
/// let copy = queue.submit(Copy::new(vec![0; 1 << 20], vec![1; 1 << 20]));
/// copy.ring(&bell);
/// poll(&mut [PollFd::new(&bell, PollFlags::IN)], None)?;
/// assert_eq!((bell.clear(), copy.is_done()), (1, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bell {
    event: Arc<Event>,
}

#[derive(Debug)]
struct Event(OwnedFd);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        sys::set(&self.0);
    }
}

impl Bell {
    /// A new event.
    ///
    /// # Errors
    /// [`Error::System`] if the process may open no more descriptors.
    pub fn new() -> Result<Self, Error> {
        let event = sys::event();
        let event =
            event.map_err(|reason| Error::System { attempt: "create an eventfd", reason })?;
        Ok(Self { event: Arc::new(Event(event)) })
    }

    /// Makes the event unreadable, and returns how many operations have ended since the last
    /// call. Cost: one system call.
    pub fn clear(&self) -> u64 {
        sys::clear(&self.event.0)
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.event))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }
}
