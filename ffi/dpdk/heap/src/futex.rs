//! Waiting for a word that another process changes.

use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while the word has this value, at most so long; returns early at will.
pub(crate) fn wait(word: &AtomicU32, value: u32, most: Duration) {
    let most = libc::timespec {
        tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: the word and the time live until the call returns; FUTEX_WAIT reads both.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const most)
    };
}

/// Wakes everyone who waits for the word, in all processes.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE does not touch the word, whose address is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_waiter_is_woken() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                word.store(1, Ordering::Release);
                wake(&word);
            });
            while word.load(Ordering::Acquire) == 0 {
                wait(&word, 0, Duration::from_secs(60));
            }
        });
    }

    #[test]
    fn a_wait_ends_by_itself() {
        wait(&AtomicU32::new(7), 7, Duration::from_millis(1));
        wait(&AtomicU32::new(7), 8, Duration::from_secs(3600));
    }
}
