//! System calls: sleeping on a word, events, and the processors of a thread.

use std::time::Duration;

use crate::sync::AtomicU32;

/// Sleeps while the word has this value, at most for this time. May return early.
#[cfg(not(all(test, loom)))]
pub(crate) fn sleep(word: &AtomicU32, value: u32, at_most: Option<Duration>) {
    use rustix::thread::futex;
    let timeout = at_most.map(|time| rustix::fs::Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    // Every reason to return, an error too, leads to another check of the word.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, timeout.as_ref());
}

/// Wakes all threads that sleep on the word.
#[cfg(not(all(test, loom)))]
pub(crate) fn wake_all(word: &AtomicU32) {
    use rustix::thread::futex;
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// loom's threads do not sleep: they let another thread run.
#[cfg(all(test, loom))]
pub(crate) fn sleep(_word: &AtomicU32, _value: u32, _at_most: Option<Duration>) {
    loom::thread::yield_now();
}

#[cfg(all(test, loom))]
pub(crate) fn wake_all(_word: &AtomicU32) {}
