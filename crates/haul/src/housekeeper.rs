//! The thread that keeps a heap in order.

use std::io;
use std::ops::Deref;
use std::process;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haul_heap::{Heap, Maintenance};

/// How long housekeeping pauses where nothing else is said: a dead process's blocks are back, and
/// memory is ready ahead, within that time, for some ten system calls and a read of the metadata.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A thread that calls [`Heap::maintain`] again and again, until this value is dropped: memory is
/// ready before it is needed, idle memory goes back, and the dead are reaped, with nobody waiting.
///
/// A child of fork has the heap and not the thread: it starts one of its own. Dropping this value
/// there ends nothing, and what led the thread to the heap is never dropped.
///
/// ```
/// use haul::heap::{Heap, Housekeeper, Node, PAUSE};
/// use std::sync::Arc;
///
/// let heap = Arc::new(Heap::builder().grow_ahead(8 << 20).build()?);
/// let housekeeper = Housekeeper::start(Arc::clone(&heap), PAUSE)?;
/// let block = heap.alloc(4096, 4096, Node::ANY)?;
/// // SAFETY: allocated here, and not used again.
/// unsafe { heap.free(block) }?;
/// drop(housekeeper);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Housekeeper {
    order: Arc<Order>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is of.
    process: u32,
}

/// What the thread and its owner say to each other.
#[derive(Debug, Default)]
struct Order {
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
    /// Starts the thread. `heap` is whatever leads to one: an [`Arc`], or a reference that lives as
    /// long as the program. The first round begins at once, and each next one `pause` after the
    /// last.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start<H>(heap: H, pause: Duration) -> io::Result<Self>
    where
        H: Deref<Target = Heap> + Send + 'static,
    {
        let order = Arc::new(Order::default());
        let theirs = Arc::clone(&order);
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
        Ok(Self { order, thread: Some(thread), process: process::id() })
    }

    /// What the last round did, and how many rounds there were. In a child of fork there were none.
    pub fn last(&self) -> (Maintenance, u64) {
        if !self.is_here() {
            return (Maintenance::default(), 0);
        }
        let state = self.order.lock();
        (state.last, state.rounds)
    }

    /// Whether the thread is of this process. In a child of fork it is not, and it may have held
    /// the lock when the child came.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }
}

impl Drop for Housekeeper {
    /// Ends the thread, after the round that it is in. In a child of fork there is none to end.
    fn drop(&mut self) {
        if !self.is_here() {
            // Dropped, it would detach a thread that is not there.
            std::mem::forget(self.thread.take());
            return;
        }
        self.order.lock().is_over = true;
        self.order.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends by returning; a panic in it would be told by its own thread.
            let _ = thread.join();
        }
    }
}

impl Order {
    /// The state is whole at every instant, so a panic elsewhere does not spoil it.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(heap: &Heap, pause: Duration, order: &Order) {
    loop {
        let done = heap.maintain();
        let mut state = order.lock();
        state.rounds += 1;
        state.last = done;
        let waited = order
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
    use haul_heap::Node;
    use std::panic::AssertUnwindSafe;
    use std::time::Instant;

    #[test]
    fn memory_is_ready_before_it_is_needed_and_the_thread_ends() {
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

    /// A heap, and a housekeeper of it that is in a round at nearly every moment.
    fn busy() -> (Arc<Heap>, Housekeeper) {
        let heap = Heap::builder().limit(64 << 20).nodes(1).grow_ahead(8 << 20);
        let heap = Arc::new(heap.decay(Some(0)).build().unwrap());
        let housekeeper = Housekeeper::start(Arc::clone(&heap), Duration::ZERO).unwrap();
        (heap, housekeeper)
    }

    #[test]
    fn a_child_of_fork_drops_what_is_not_there_and_starts_one_of_its_own() {
        for turn in 0..50 {
            let (heap, housekeeper) = busy();
            thread::sleep(Duration::from_micros(turn * 20));
            // SAFETY: libc's malloc can be used in the child, which takes no other lock of a thread
            // that is not there, and leaves by _exit.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "fork failed");
            if child == 0 {
                let work = AssertUnwindSafe(move || in_child(&heap, housekeeper));
                let is_right = std::panic::catch_unwind(work);
                // SAFETY: ends the child without running what belongs to its parent.
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
        rounds == 0 && own.last().1 >= 2 && heap.alloc(64, 64, Node::ANY).is_ok()
    }

    /// The exit status of a child; `None` where it had to be ended.
    fn status_of(child: i32) -> Option<i32> {
        let start = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: `status` is an int of ours.
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
    fn a_long_pause_does_not_hold_the_end_up() {
        let heap = Arc::new(Heap::builder().limit(64 << 20).nodes(1).build().unwrap());
        let start = Instant::now();
        drop(Housekeeper::start(heap, Duration::from_secs(3600)).unwrap());
        assert!(start.elapsed().as_secs() < 60);
    }
}
