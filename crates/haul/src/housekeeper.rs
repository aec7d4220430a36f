//! The thread that maintains a heap.

use std::io;
use std::ops::Deref;
use std::process;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haul_heap::{Heap, Maintenance};

/// The default pause between two rounds. Within that time, the blocks of a dead process become
/// free again, and memory becomes ready before it is needed. The cost per round is some ten
/// system calls and a read of the metadata.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A thread that calls [`Heap::maintain`] repeatedly until this value is dropped. The thread
/// makes memory ready before it is needed, returns idle memory to the system, and frees the
/// blocks of dead processes. No allocation waits for this work.
///
/// The child of a fork has the heap but not the thread, and must start another housekeeper.
/// Dropping this value in the child ends no thread, and never drops the `heap` argument of
/// [`Housekeeper::start`].
///
/// ```
/// use haul::heap::{Heap, Housekeeper, PAUSE, Request};
/// use std::sync::Arc;
///
/// let heap = Arc::new(Heap::builder().grow_ahead(8 << 20).build()?);
/// let housekeeper = Housekeeper::start(Arc::clone(&heap), PAUSE)?;
/// let block = heap.alloc(Request::new(4096).aligned(4096))?;
/// // SAFETY: allocated here, and not used again.
/// unsafe { heap.free(block) }?;
/// drop(housekeeper);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Housekeeper {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    /// The ID of the process in which the thread runs.
    process: u32,
}

/// The state that the thread shares with its owner.
#[derive(Debug, Default)]
struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    rounds: u64,
    last: Maintenance,
}

impl Housekeeper {
    /// Starts the thread. `heap` is any pointer to a heap, such as an [`Arc`] or a `'static`
    /// reference. The first round begins at once, and each later round begins `pause` after the
    /// end of the previous one.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start<H>(heap: H, pause: Duration) -> io::Result<Self>
    where
        H: Deref<Target = Heap> + Send + 'static,
    {
        let control = Arc::new(Control::default());
        let theirs = Arc::clone(&control);
        let thread = thread::Builder::new()
            .name("haul-heap".into())
            .spawn(move || keep(&heap, pause, &theirs))
            .map_err(|reason| {
                let message = format!(
                    "cannot start a thread for the heap's housekeeping: {reason}; raise the limit of \
                     processes (ulimit -u)"
                );
                io::Error::new(reason.kind(), message)
            })?;
        Ok(Self { control, thread: Some(thread), process: process::id() })
    }

    /// The result of the last round, and the number of rounds so far. In the child of a fork,
    /// there was no round.
    pub fn last(&self) -> (Maintenance, u64) {
        if !self.is_here() {
            return (Maintenance::default(), 0);
        }
        let state = self.control.lock();
        (state.last, state.rounds)
    }

    /// Whether the thread belongs to this process. In the child of a fork, it does not, and the
    /// thread may have held the lock at the fork.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }
}

impl Drop for Housekeeper {
    /// Ends the thread after its current round. In the child of a fork, there is no thread to
    /// end.
    fn drop(&mut self) {
        if !self.is_here() {
            // Dropping the handle would detach a thread that does not exist here.
            std::mem::forget(self.thread.take());
            return;
        }
        self.control.lock().is_over = true;
        self.control.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread ends when its function returns. If it panics, the panic message is
            // already on standard error.
            let _ = thread.join();
        }
    }
}

impl Control {
    /// Locks the state, even after a panic of another thread, because the state is valid at all
    /// times.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(heap: &Heap, pause: Duration, control: &Control) {
    loop {
        let done = heap.maintain();
        let mut state = control.lock();
        state.rounds += 1;
        state.last = done;
        let waited = control
            .changed
            .wait_timeout_while(state, pause, |state| !state.is_over)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.0.is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_heap::{Node, Request};
    use std::panic::AssertUnwindSafe;
    use std::time::Instant;

    #[test]
    fn housekeeper_makes_memory_ready_and_ends_its_thread() {
        let heap =
            Arc::new(Heap::builder().limit(64 << 20).nodes(1).grow_ahead(8 << 20).build().unwrap());
        let housekeeper = Housekeeper::start(Arc::clone(&heap), Duration::from_millis(1)).unwrap();
        let start = Instant::now();
        while housekeeper.last().1 < 3 {
            assert!(start.elapsed().as_secs() < 60, "no round in a minute");
            thread::yield_now();
        }
        assert_eq!(heap.stats(Node::ANY).ready_bytes, 8 << 20);
        drop(housekeeper);
        assert_eq!(Arc::strong_count(&heap), 1);
    }

    /// A heap with a housekeeper that is in a round almost all the time.
    fn busy() -> (Arc<Heap>, Housekeeper) {
        let heap = Heap::builder().limit(64 << 20).nodes(1).grow_ahead(8 << 20);
        let heap = Arc::new(heap.decay(Some(0)).build().unwrap());
        let housekeeper = Housekeeper::start(Arc::clone(&heap), Duration::ZERO).unwrap();
        (heap, housekeeper)
    }

    #[test]
    fn child_of_fork_drops_housekeeper_and_starts_its_own() {
        for turn in 0..50 {
            let (heap, housekeeper) = busy();
            thread::sleep(Duration::from_micros(turn * 20));
            // SAFETY: libc's malloc can be used in the child, which takes no other lock of a
            // missing thread and leaves by _exit.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "fork failed");
            if child == 0 {
                let work = AssertUnwindSafe(move || in_child(&heap, housekeeper));
                let is_right = std::panic::catch_unwind(work);
                // SAFETY: ends the child without running exit handlers of its parent.
                unsafe { libc::_exit(i32::from(!is_right.unwrap_or(false))) };
            }
            assert_eq!(status_of(child), Some(0), "turn {turn}");
            drop(housekeeper);
            assert_eq!(Arc::strong_count(&heap), 1);
        }
    }

    fn in_child(heap: &Arc<Heap>, housekeeper: Housekeeper) -> bool {
        let rounds = housekeeper.last().1;
        drop(housekeeper);
        let own = Housekeeper::start(Arc::clone(heap), Duration::from_millis(1)).unwrap();
        let start = Instant::now();
        while own.last().1 < 2 && start.elapsed().as_secs() < 20 {
            thread::yield_now();
        }
        rounds == 0 && own.last().1 >= 2 && heap.alloc(Request::new(64)).is_ok()
    }

    /// The exit status of a child; `None` if it had to be killed.
    fn status_of(child: i32) -> Option<i32> {
        let start = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: `status` is a local int.
            let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
            if waited == child {
                return Some(status);
            }
            if start.elapsed().as_secs() > 30 {
                // SAFETY: no pointers are involved; the child was not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn drop_does_not_wait_for_a_long_pause() {
        let heap = Arc::new(Heap::builder().limit(64 << 20).nodes(1).build().unwrap());
        let start = Instant::now();
        drop(Housekeeper::start(heap, Duration::from_secs(3600)).unwrap());
        assert!(start.elapsed().as_secs() < 60);
    }
}
