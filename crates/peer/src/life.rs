//! Whether another process has the same: what a fork copied, and nobody has closed since.
//!
//! A value that several processes may have keeps a [`Life`], a descriptor of its own. As one of
//! them gives its copy up, the kernel says whether others are left: a set of epoll(7) has a file
//! for as long as any process has it open.

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::descriptor::kept;
use super::error::Error;
use super::fork::{self, Here};

/// What all copies of a value have in common, closed on exec, and with the process.
#[derive(Debug)]
pub struct Life {
    /// Can always be read.
    file: OwnedFd,
    /// Where it was made, and how many forks had been noticed by then.
    here: Here,
    forks: u64,
}

impl Life {
    /// # Errors
    /// [`Error::System`] where there is no descriptor to be had.
    pub fn new() -> Result<Self, Error> {
        let here = Here::now();
        let forks = fork::forks();
        let made = kept(rustix::event::eventfd(1, EventfdFlags::CLOEXEC));
        let file =
            made.map_err(Error::system("make a descriptor that tells of other processes"))?;
        Ok(Self { file, here, forks })
    }

    /// Ends this copy; whether it was the last one. Where the kernel cannot tell, for want of a
    /// descriptor, it counts as not the last. Costs nothing where there was no fork, else some
    /// system calls.
    pub fn was_last(self) -> bool {
        if self.here.is_here() && self.forks == fork::forks() {
            return true;
        }
        self.leave_and_check().unwrap_or(false)
    }

    /// Closes this copy, and says whether there are no others.
    fn leave_and_check(self) -> Result<bool, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &self.file, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        drop(self.file);
        let mut found = [epoll::Event { flags: epoll::EventFlags::empty(), data: NO_DATA }];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&set, &mut found[..], Some(&now))?;
        Ok(count == 0)
    }
}

const NO_DATA: epoll::EventData = epoll::EventData::new_u64(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_elsewhere_is_seen_until_it_is_closed() {
        let life = |file: &OwnedFd| Life {
            file: file.try_clone().unwrap(),
            here: Here::now(),
            forks: fork::forks().wrapping_sub(1),
        };
        let made = Life::new().unwrap();
        let copy = made.file.try_clone().unwrap();
        assert!(!life(&copy).was_last());
        drop(made);
        assert!(!life(&copy).was_last());
        let last = life(&copy);
        drop(copy);
        assert!(last.was_last());
        assert!(Life::new().unwrap().was_last(), "without a fork there is no other");
    }
}
