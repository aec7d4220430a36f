//! A process that a test forks.
//!
//! The child has a copy of every descriptor of this process, including those of other tests. Such
//! descriptors would stay open where these tests expect a close. Therefore one test runs at a time,
//! and this program holds no other tests.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No other test runs while the returned guard lives.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A forked process, which is killed if no call waits for it.
pub(crate) struct Child(libc::pid_t);

/// A hanging child is killed after this time.
const LIMIT_SECONDS: u32 = 100;

impl Child {
    /// Runs `act` in a child, which exits with 0 unless `act` panics.
    pub(crate) fn start(act: impl FnOnce()) -> Self {
        // SAFETY: the child has one thread, a copy of this one; libc keeps its allocator usable,
        // and everything else that is used there is under test.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the call takes only a number.
                unsafe { libc::alarm(LIMIT_SECONDS) };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
                // SAFETY: ends this process, and does not affect the parent.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                Self(child)
            }
        }
    }

    /// The exit code, or the negated number of the signal that killed the child.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits only for a child of this process.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0);
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    pub(crate) fn kill(self) {
        // SAFETY: a child of this process, for which no call has waited yet.
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
