//! Detects whether another process still has a copy of a value. A fork makes such copies.
//!
//! A value of which several processes may have copies contains a [`Life`], which is a separate
//! descriptor. When a process drops its copy, it asks the kernel whether other copies remain: an
//! epoll(7) set contains a file as long as any process has the file open.

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::descriptor::kept;
use super::error::Error;
use super::fork::{self, Here};

/// The descriptor that all copies of a value share. The kernel closes a process's copy on exec
/// and when the process ends.
#[derive(Debug)]
pub struct Life {
    /// A descriptor that is always readable.
    file: OwnedFd,
    /// The process that created the value, and the number of forks that were counted at that
    /// time.
    here: Here,
    forks: u64,
}

impl Life {
    /// # Errors
    /// [`Error::System`] if no descriptor can be created.
    pub fn new() -> Result<Self, Error> {
        let here = Here::now();
        let forks = fork::forks();
        let made = kept(rustix::event::eventfd(1, EventfdFlags::CLOEXEC));
        let file = made.map_err(Error::system("make a descriptor that shows other processes"))?;
        Ok(Self { file, here, forks })
    }

    /// Closes this copy and returns whether it was the last copy. If the check fails because no
    /// descriptor is free, returns false. Makes no system call if there was no fork, otherwise a
    /// few.
    pub fn was_last(self) -> bool {
        if self.here.is_here() && self.forks == fork::forks() {
            return true;
        }
        self.leave_and_check().unwrap_or(false)
    }

    /// Closes this copy and returns whether no other copy exists.
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
    use crate::fork::tests::without_starts;

    #[test]
    fn was_last_is_false_while_another_copy_is_open() {
        let _starts = without_starts();
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
