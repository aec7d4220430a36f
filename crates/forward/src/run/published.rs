//! What a worker counted, for others to see. It publishes a copy of its counters every few
//! milliseconds, and at once where somebody wants one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_model::pcie::Counts;

use super::super::contract::{Agreement, Link};
use super::super::counters::Counters;

/// How long a worker is given to publish: it looks every 10 us, unless it does not run.
const PATIENCE: Duration = Duration::from_millis(50);

/// What a worker counted.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Each port's name, queue and counters.
    pub ports: Vec<(String, u16, Counters)>,
    /// Whether packets go through each of them.
    pub links: Vec<Link>,
    /// What each of them agreed on with its other side, the last time that it had one.
    pub agreements: Vec<Option<Agreement>>,
    /// Why nobody is at the other side of those that know it, by the port's name.
    pub obstacles: Vec<(String, String)>,
    /// What a person ought to know of those that say so, by the port's name: [`Port::notes`].
    ///
    /// [`Port::notes`]: super::Port::notes
    pub notes: Vec<(String, String)>,
    /// What crossed the link of each that has a modelled one, by the port's name.
    pub crossed: Vec<(String, Counts)>,
    /// Cycles of the time stamp counter in rounds that moved packets.
    pub busy_cycles: u64,
    /// Cycles in rounds that found none.
    pub idle_cycles: u64,
    /// Rounds that found no packet in either direction.
    pub wasted_polls: u64,
    /// All rounds.
    pub polls: u64,
}

/// The last copy, and whether a newer one is wanted.
#[derive(Debug, Default)]
pub(super) struct Published {
    snapshot: Mutex<Snapshot>,
    is_new: Condvar,
    is_wanted: AtomicBool,
}

impl Published {
    /// Whether somebody waits for a copy; asked by the worker, which then makes one.
    pub(super) fn is_wanted(&self) -> bool {
        // Relaxed: what is read comes by the lock.
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn publish(&self, counts: &Snapshot) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.lock().clone_from(counts);
        self.is_new.notify_all();
    }

    pub(super) fn last(&self) -> Snapshot {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees a worker's counters from another thread, also when the worker has ended.
#[derive(Clone, Debug)]
pub struct Observer(Arc<Published>);

impl Observer {
    pub(super) fn new(published: Arc<Published>) -> Self {
        Self(published)
    }

    /// What is counted by now. Of a worker that does not run, or has ended, what it published
    /// last; that takes 50 ms.
    #[must_use]
    pub fn now(&self) -> Snapshot {
        let last = self.0.lock();
        let before_ns = last.time_ns;
        self.0.is_wanted.store(true, Ordering::Relaxed);
        let is_old = |snapshot: &mut Snapshot| snapshot.time_ns == before_ns;
        let waited = self.0.is_new.wait_timeout_while(last, PATIENCE, is_old);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}
