//! Completion by callbacks, on the thread that the caller names.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use haul_peer::fork::Lock;

use crate::outcome::Failed;
use crate::pending::Pending;
use crate::task::Task;

/// Callbacks that run on the thread that calls [`run`](Self::run).
///
/// ```
/// use haul_engine::{Callbacks, Copy, Queue};
/// let (queue, callbacks) = (Queue::worker()?, Callbacks::new());
/// let copy = queue.submit(Copy::new(vec![0; 1000], vec![1; 1000]));
/// callbacks.add(copy, |copy, result| assert_eq!((copy.target[999], result), (1, Ok(()))));
/// while callbacks.run(16) == 0 {}
/// # Ok::<(), haul_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Callbacks {
    ready: Arc<Ready>,
}

pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// Held while a thread uses a list of callbacks, so that no list is half changed in a child of
/// fork.
static LISTS: Lock<()> = Lock::new((), |()| {});

/// Callbacks whose operations have ended.
#[derive(Default)]
struct Ready(Mutex<VecDeque<Callback>>);

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ready", self.count())
    }
}

impl Ready {
    /// Uses the list. `act` runs and drops no callback.
    fn with<R>(&self, act: impl FnOnce(&mut VecDeque<Callback>) -> R) -> R {
        let _all = LISTS.lock();
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self) -> usize {
        self.with(|list| list.len())
    }
}

/// A callback whose operation is pending. Its waker moves it to the ready ones.
struct Waiting {
    callback: Mutex<Option<Callback>>,
    ready: Arc<Ready>,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ready.with(|list| list.extend(callback));
    }
}

impl Callbacks {
    /// No callbacks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `callback` run in a later [`run`](Self::run), once the operation has ended.
    ///
    /// Cost: two allocations.
    pub fn add<W>(
        &self,
        pending: Pending<W>,
        callback: impl FnOnce(W, Result<W::Output, Failed>) + Send + 'static,
    ) where
        W: Task + Send + 'static,
    {
        let armed = pending.armed();
        let waker = self.waker(Box::new(move || {
            let (task, result) = pending.wait();
            callback(task, result);
        }));
        if !armed.arm(&waker) {
            waker.wake();
        }
    }

    /// A waker that lets `callback` run in a later [`run`](Self::run).
    pub(crate) fn waker(&self, callback: Callback) -> Waker {
        let callback = Mutex::new(Some(callback));
        Waker::from(Arc::new(Waiting { callback, ready: Arc::clone(&self.ready) }))
    }

    /// Runs callbacks of operations that have ended, at most `at_most` and only those that were
    /// ready at the beginning: a callback that submits again does not keep this call busy.
    /// Returns their number. If a callback panics, the next call runs the others.
    pub fn run(&self, at_most: usize) -> usize {
        let most = self.ready.count().min(at_most);
        for count in 0..most {
            // The others stay ready if this one panics.
            let Some(callback) = self.ready.with(VecDeque::pop_front) else { return count };
            callback();
        }
        most
    }
}
