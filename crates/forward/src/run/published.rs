//! A worker's counters for other threads. The worker publishes a copy every few milliseconds, and
//! at once if an observer requests one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_model::pcie::Counts;

use crate::contract::{Agreement, Link};
use crate::counters::Counters;

/// How long an observer waits for a copy. A running worker checks for requests every 10 us.
const PATIENCE: Duration = Duration::from_millis(50);

/// The counts of a worker.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time of the copy, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Each port's name, queue and counters.
    pub ports: Vec<(String, u16, Counters)>,
    /// Whether packets pass through each port.
    pub links: Vec<Link>,
    /// What each port last negotiated with its other side.
    pub agreements: Vec<Option<Agreement>>,
    /// Why a port has no link, by the port's name, for the ports that know the reason.
    pub obstacles: Vec<(String, String)>,
    /// The notes of the ports that have any, by the port's name: [`Port::notes`].
    ///
    /// [`Port::notes`]: super::Port::notes
    pub notes: Vec<(String, String)>,
    /// The transactions that crossed each modelled link, by the name of its port.
    pub crossed: Vec<(String, Counts)>,
    /// The cycles of the time stamp counter in rounds that moved packets.
    pub busy_cycles: u64,
    /// The number of cycles in rounds that moved no packet.
    pub idle_cycles: u64,
    /// The number of rounds that moved no packet in either direction.
    pub wasted_polls: u64,
    /// All rounds.
    pub polls: u64,
}

/// The last copy, and whether an observer requests a newer one.
#[derive(Debug, Default)]
pub(super) struct Published {
    snapshot: Mutex<Snapshot>,
    is_new: Condvar,
    is_wanted: AtomicBool,
}

impl Published {
    /// Whether an observer waits for a copy. The worker checks this and then publishes one.
    pub(super) fn is_wanted(&self) -> bool {
        // Relaxed: the lock orders the data.
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

/// Reads a worker's counters from another thread, also after the worker has ended.
#[derive(Clone, Debug)]
pub struct Observer(Arc<Published>);

impl Observer {
    pub(super) fn new(published: Arc<Published>) -> Self {
        Self(published)
    }

    /// The present counts. If the worker has ended or does not run, returns the last published
    /// counts after 50 ms.
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
