//! A process that a test forks.
//!
//! It has a copy of every descriptor of this one, those of other tests as well, which would then
//! not be closed as these expect: so one test runs at a time, and no others are in this program.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// While this lives no other test runs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that was forked here; killed if it is not waited for.
pub(crate) struct Child(libc::pid_t);

/// A child that hangs is ended by this.
const LIMIT_SECONDS: u32 = 100;

impl Child {
    /// Does this in a child, which ends well unless it panics.
    pub(crate) fn start(act: impl FnOnce()) -> Self {
        // SAFETY: the child has one thread, a copy of this one; libc keeps its allocator usable,
        // and what else is used there is under test.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes a number alone.
                unsafe { libc::alarm(LIMIT_SECONDS) };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
                // SAFETY: ends this process, and nothing of the parent's.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                Self(child)
            }
        }
    }

    /// How it ended: its code, or the signal that killed it, less than zero.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for a child of this process alone.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0);
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    pub(crate) fn kill(self) {
        // SAFETY: a child of this process that was not waited for yet.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        assert_eq!(self.wait(), -libc::SIGKILL);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}
