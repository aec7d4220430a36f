//! Looks for ends where an engine reports none by itself, and a future, an event or a callback
//! waits.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::fork::Here;

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

/// What a watcher shares with its thread.
#[derive(Debug)]
struct Shared {
    here: Here,
    state: Mutex<State>,
    added: Condvar,
}

/// A thread that exists while something is watched.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// From [`Arc::into_raw`]; null before the first watch. A child of fork, in which the thread
    /// does not exist and another thread may have held the lock, replaces it.
    shared: AtomicPtr<Shared>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let shared = *self.shared.get_mut();
        if !shared.is_null() {
            // SAFETY: the pointer comes from Arc::into_raw, and this value owns one reference.
            drop(unsafe { Arc::from_raw(shared) });
        }
    }
}

impl Watcher {
    /// The state of this process.
    fn shared(&self) -> Arc<Shared> {
        let mut now = self.shared.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or from Arc::into_raw, and is never freed before this
            // value: a state that is replaced is leaked.
            if unsafe { now.as_ref() }.is_some_and(|shared| shared.here.is_here()) {
                // SAFETY: as above, so the count is at least 1.
                unsafe { Arc::increment_strong_count(now) };
                // SAFETY: the reference was just counted.
                return unsafe { Arc::from_raw(now) };
            }
            let (here, state) = (Here::now(), Mutex::default());
            let fresh = Arc::new(Shared { here, state, added: Condvar::new() });
            let start = Arc::into_raw(Arc::clone(&fresh)).cast_mut();
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.shared.compare_exchange(now, start, order.0, order.1) {
                Ok(_) => return fresh,
                Err(other) => {
                    // SAFETY: the pointer is from Arc::into_raw, and no other thread has seen it.
                    drop(unsafe { Arc::from_raw(start) });
                    now = other;
                }
            }
        }
    }

    /// Watches a slot until its operation has ended. If no thread can be started, this call waits
    /// for the end.
    pub(crate) fn add<T: Watched + 'static>(&self, inner: &Arc<T>, index: Index) {
        let until = inner.patience().and_then(|patience| Instant::now().checked_add(patience));
        let shared = self.shared();
        let mut state = lock(&shared.state);
        state.watched.push((index, until));
        shared.added.notify_one();
        if state.is_running {
            return;
        }
        let (own, queue) = (Arc::clone(&shared), Arc::downgrade(inner));
        let builder = thread::Builder::new().name("haul-engine-watch".into());
        state.is_running = builder.spawn(move || run(&own, &queue)).is_ok();
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

fn run<T: Watched>(shared: &Shared, queue: &Weak<T>) {
    loop {
        let mut state = lock(&shared.state);
        if state.watched.is_empty() {
            let waited = shared.added.wait_timeout(state, IDLE_MAX);
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
        lock(&shared.state).watched.extend(pending);
        drop(inner);
        if is_pending {
            thread::sleep(PAUSE);
        }
    }
}
