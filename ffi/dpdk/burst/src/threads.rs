//! Whether every thread has left a removed callback.
//!
//! DPDK's burst functions walk their callbacks without a lock. A thread that began before a
//! callback was removed may still run the callback, or may be about to load the pointer to the
//! next callback from it. DPDK does not report when the thread is done. But the callback and that
//! load are only some hundred instructions without a system call. A thread has therefore left
//! them if it has run for [`ENOUGH`] since the removal, sleeps in a system call, or has ended. A
//! thread that waits for a processor has not left, however long it waits.

use std::fs;
use std::time::Duration;

/// Processor time after which a thread has certainly left a callback, page faults and interrupts
/// included.
const ENOUGH: Duration = Duration::from_millis(10);

/// A thread that may be in a callback.
struct Suspect {
    id: u32,
    /// The start time, because another thread may get the same number later.
    started: u64,
    ran: Duration,
}

/// The threads that may be in a callback that was just removed.
pub(crate) struct Suspects(Vec<Suspect>);

/// The state of a thread as the kernel reports it.
struct Seen {
    state: u8,
    started: u64,
    ran: Duration,
}

impl Suspects {
    /// All threads of the process except this one.
    pub(crate) fn all() -> Self {
        // SAFETY: the call has no conditions.
        let own = unsafe { libc::syscall(libc::SYS_gettid) };
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let others = ids.filter(|id| i64::from(*id) != own);
        let seen = others.filter_map(|id: u32| {
            let seen = read_state(id)?;
            Some(Suspect { id, started: seen.started, ran: seen.ran })
        });
        Self(seen.collect())
    }

    /// Whether every thread has left the callback. Removes from the list the threads that have
    /// left.
    pub(crate) fn have_left(&mut self) -> bool {
        self.0.retain(|suspect| match read_state(suspect.id) {
            None => false,
            Some(seen) => {
                let is_same = seen.started == suspect.started;
                let is_beyond = seen.ran.saturating_sub(suspect.ran) >= ENOUGH;
                is_same && !is_beyond && !matches!(seen.state, b'S' | b'Z' | b'X')
            }
        });
        // Without /proc the list is always empty, so an empty list does not show that the threads
        // have left.
        self.0.is_empty() && fs::exists("/proc/self/task").unwrap_or(false)
    }
}

/// `None` if the thread has ended.
fn read_state(id: u32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    // The name, in parentheses, may contain any characters.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    // proc_pid_stat(5), counted from `state`: utime and stime in ticks of 10 ms, rounded down. If
    // the kernel reports nanoseconds, these are used instead.
    let ticks = number(11)? + number(12)?;
    let nanoseconds = fs::read_to_string(format!("/proc/self/task/{id}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    let ran = match nanoseconds {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => Duration::from_millis(10 * ticks / 2),
    };
    Some(Seen { state: *fields.first()?.as_bytes().first()?, started: number(19)?, ran })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn running_thread_has_left_after_a_while() {
        let stop = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the call has no conditions.
                let own = unsafe { libc::syscall(libc::SYS_gettid) };
                let _ = sender.send(own);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let running = receiver.recv();
            // Only that thread is kept, because other threads of the test run may be busy.
            let only_running = || {
                let mut suspects = Suspects::all();
                suspects.0.retain(|suspect| Ok(i64::from(suspect.id)) == running);
                suspects
            };
            // On a busy machine the thread may run for ENOUGH between the two calls, because this
            // thread waits for a processor meanwhile. This does not happen at every try.
            let is_at_once = (0..100).all(|_| only_running().have_left());
            let mut suspects = only_running();
            let end = Instant::now() + Duration::from_secs(20);
            while !suspects.have_left() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            assert!(!is_at_once, "a running thread cannot have left at once");
            assert!(suspects.0.is_empty());
        });
    }

    #[test]
    fn sleeping_and_ended_threads_have_left() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || receiver.recv());
        std::thread::sleep(Duration::from_millis(50));
        // Only sleeping threads are kept, because other threads of the test run may be busy.
        let mut suspects = Suspects::all();
        let asleep = |id: u32| read_state(id).is_some_and(|seen| seen.state == b'S');
        suspects.0.retain(|suspect| asleep(suspect.id));
        assert!(!suspects.0.is_empty());
        drop(sender);
        let _ = waits.join();
        let end = Instant::now() + Duration::from_secs(20);
        while !suspects.have_left() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(suspects.0.is_empty());
    }
}
