//! Waits until another process changes a word.

use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while the word has this value, for at most `most`. The wait may end earlier.
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

/// Wakes all threads that wait for the word, in all processes.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE does not touch the word, whose address is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    /// The duration of a wait of at most `most` on a word that has the value `holds`. The wait
    /// expects the value `value`. If `is_woken`, a second thread wakes the word repeatedly.
    fn wait_of(holds: u32, value: u32, most: Duration, is_woken: bool) -> Duration {
        let (word, is_over) = (AtomicU32::new(holds), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let start = Instant::now();
                wait(&word, value, most);
                is_over.store(true, Ordering::Release);
                start.elapsed()
            });
            // The word never changes, so only a wake or the time can end the wait.
            while is_woken && !is_over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(20));
                wake(&word);
            }
            waiter.join().unwrap()
        })
    }

    #[test]
    fn wake_ends_wait() {
        let most = Duration::from_secs(20);
        let waited = wait_of(0, 0, most, true);
        assert!(waited < most / 2, "{waited:?}");
    }

    #[test]
    fn wait_ends_after_time_and_for_other_value() {
        let most = Duration::from_millis(200);
        let waited = wait_of(7, 7, most, false);
        assert!(waited > most / 2, "the call did not wait: {waited:?}");
        // The word has another value, so the call must not wait. The limit makes a hang visible.
        let most = Duration::from_secs(20);
        let waited = wait_of(7, 8, most, false);
        assert!(waited < most / 2, "the call waited although the word had changed: {waited:?}");
    }
}
