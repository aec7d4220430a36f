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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    /// How long a wait for a word that holds `holds`, of at most `most`, takes while it is expected
    /// to hold `value`, if a second thread wakes it again and again where `is_woken`.
    fn waited(holds: u32, value: u32, most: Duration, is_woken: bool) -> Duration {
        let (word, is_over) = (AtomicU32::new(holds), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let start = Instant::now();
                wait(&word, value, most);
                is_over.store(true, Ordering::Release);
                start.elapsed()
            });
            // The word never changes: nothing but the wake or the time can end the wait.
            while is_woken && !is_over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(20));
                wake(&word);
            }
            waiter.join().unwrap()
        })
    }

    #[test]
    fn a_waiter_is_woken() {
        let most = Duration::from_secs(20);
        let took = waited(0, 0, most, true);
        assert!(took < most / 2, "{took:?}");
    }

    #[test]
    fn a_wait_ends_by_itself() {
        let most = Duration::from_millis(200);
        let took = waited(7, 7, most, false);
        assert!(took > most / 2, "it did not wait: {took:?}");
        // Another value than the expected one: not at all, and a hang would be told as one.
        let most = Duration::from_secs(20);
        let took = waited(7, 8, most, false);
        assert!(took < most / 2, "it waited for what was over: {took:?}");
    }
}
