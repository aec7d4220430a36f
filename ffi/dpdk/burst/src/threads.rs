//! Whether every thread has left a callback that was taken off.
//!
//! DPDK's burst functions walk their callbacks without a lock. A thread that began before a
//! callback was taken off may still be in it, or about to load the pointer to the next from it, and
//! nothing says when it is done. What is certain: the callback and that load are some hundred
//! instructions without a system call. So a thread has left them that has run for [`ENOUGH`] since,
//! that sleeps in a system call, or that has ended; one that the scheduler keeps waiting has not,
//! however long that lasts.

use std::fs;
use std::time::Duration;

/// Time on a processor after which a thread is far beyond a callback, page faults and interrupts
/// included.
const ENOUGH: Duration = Duration::from_millis(10);

/// A thread that may be in a callback.
struct Suspect {
    id: u32,
    /// When it was started; another thread may get its number.
    started: u64,
    ran: Duration,
}

/// The threads that may be in a callback which was just taken off.
pub(crate) struct Suspects(Vec<Suspect>);

/// What the kernel says of a thread.
struct Seen {
    state: u8,
    started: u64,
    ran: Duration,
}

impl Suspects {
    /// All threads of the process but this one.
    pub(crate) fn all() -> Self {
        // SAFETY: the call has no conditions.
        let own = unsafe { libc::syscall(libc::SYS_gettid) };
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let ids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let others = ids.filter(|id| i64::from(*id) != own);
        let seen = others.filter_map(|id: u32| {
            let seen = look(id)?;
            Some(Suspect { id, started: seen.started, ran: seen.ran })
        });
        Self(seen.collect())
    }

    /// Whether none of them can be in it any more. Those that have left are forgotten.
    pub(crate) fn have_left(&mut self) -> bool {
        self.0.retain(|suspect| match look(suspect.id) {
            None => false,
            Some(seen) => {
                let is_same = seen.started == suspect.started;
                let is_beyond = seen.ran.saturating_sub(suspect.ran) >= ENOUGH;
                is_same && !is_beyond && !matches!(seen.state, b'S' | b'Z' | b'X')
            }
        });
        // Without /proc nobody can be seen to have left; then nobody is seen at all.
        self.0.is_empty() && fs::exists("/proc/self/task").unwrap_or(false)
    }
}

/// `None` where the thread has ended.
fn look(id: u32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    // proc_pid_stat(5), counted from `state`: utime and stime in ticks of 10 ms, which are rounded
    // down; where the kernel counts nanoseconds, those.
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
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_runs_has_left_after_a_while_and_not_at_once() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // Wait until it runs.
            while Suspects::all().0.iter().all(|suspect| suspect.ran.is_zero()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut suspects = Suspects::all();
            let is_at_once = suspects.have_left();
            let end = Instant::now() + Duration::from_secs(20);
            while !suspects.have_left() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            assert!(!is_at_once, "a thread that runs cannot be known to have left at once");
            assert!(suspects.0.is_empty());
        });
    }

    #[test]
    fn a_thread_that_waits_or_has_ended_has_left() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || receiver.recv());
        std::thread::sleep(Duration::from_millis(50));
        // Only this test's own thread is waited for: others of the test run may be busy.
        let mut suspects = Suspects::all();
        let asleep = |id: u32| look(id).is_some_and(|seen| seen.state == b'S');
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
