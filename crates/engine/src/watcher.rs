//! Looks for ends where an engine reports none by itself, and a future, an event or a callback
//! waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::slots::Index;

/// The pause between two rounds while something is pending.
const PAUSE: Duration = Duration::from_micros(20);
/// The thread ends after this time with nothing pending.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// What a thread watches.
pub(crate) trait Watched: Send + Sync {
    /// Lets the engine check for ends. Returns whether the operation in the slot has ended.
    fn check(&self, index: Index) -> bool;

    /// After this time without an end, the device is revoked.
    fn patience(&self) -> Option<Duration>;

    /// Makes the device give up everything that is pending. See
    /// [`Engine::revoke`](crate::Engine::revoke).
    fn revoke(&self);
}

/// The slots that are watched, and whether a thread watches them.
#[derive(Debug, Default)]
struct State {
    /// The slots, and when their patience ends.
    watched: Vec<(Index, Option<Instant>)>,
    is_running: bool,
}

/// A thread that exists while something is watched.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Watcher {
    /// Watches a slot until its operation has ended. If no thread can be started, this call waits
    /// for the end.
    pub(crate) fn add<T: Watched + 'static>(&self, inner: &Arc<T>, index: Index) {
        let until = inner.patience().map(|patience| Instant::now() + patience);
        let mut state = lock(&self.shared.0);
        state.watched.push((index, until));
        self.shared.1.notify_one();
        if state.is_running {
            return;
        }
        let (shared, queue) = (Arc::clone(&self.shared), Arc::downgrade(inner));
        let builder = thread::Builder::new().name("haul-engine-watch".into());
        state.is_running = builder.spawn(move || run(&shared, &queue)).is_ok();
        if !state.is_running {
            state.watched.clear();
            drop(state);
            while !inner.check(index) {
                thread::sleep(PAUSE);
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run<T: Watched>(shared: &(Mutex<State>, Condvar), queue: &Weak<T>) {
    loop {
        let mut state = lock(&shared.0);
        if state.watched.is_empty() {
            let waited = shared.1.wait_timeout(state, IDLE_MAX);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(inner) = queue.upgrade().filter(|_| !state.watched.is_empty()) else {
            state.is_running = false;
            return;
        };
        let watched = std::mem::take(&mut state.watched);
        drop(state);
        // A waker runs in `check`, so the lock is free meanwhile.
        let is_pending = |(index, _): &(Index, _)| !inner.check(*index);
        let mut pending: Vec<_> = watched.into_iter().filter(is_pending).collect();
        let now = Instant::now();
        let is_late = |(_, until): &(Index, Option<Instant>)| until.is_some_and(|at| now >= at);
        if pending.iter().any(is_late) {
            inner.revoke();
            pending.retain(is_pending);
            pending.iter_mut().for_each(|(_, until)| *until = None);
        }
        let is_pending = !pending.is_empty();
        lock(&shared.0).watched.extend(pending);
        drop(inner);
        if is_pending {
            thread::sleep(PAUSE);
        }
    }
}
