//! Limits how often all slots of a class are searched. Such a search is made if no count says
//! that a slot is free. It takes milliseconds in a large heap, and in a full heap each request
//! would make one.

use crate::protocol::class::CLASSES;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::sys;

/// Failed searches use at most one part in this many of the elapsed time: a twentieth.
const SHARE: u64 = 20;

/// The most nanoseconds that count for one search. If a search takes longer, the scheduler has
/// interrupted it.
const LONGEST_NS: u64 = 100_000_000;

/// For each class, the time at which this process may search again, in nanoseconds of
/// [`sys::now_ns`].
pub(crate) struct Searches([AtomicU64; CLASSES]);

impl Searches {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Calls `search`, unless the last search of the class failed too short a time ago. Returns
    /// whether `search` was called and found a slot.
    pub(crate) fn run(&self, class: usize, search: impl FnOnce() -> bool) -> bool {
        let (next, start) = (&self.0[class], sys::now_ns());
        if start < next.load(Relaxed) {
            return false;
        }
        let is_found = search();
        let elapsed = sys::now_ns().saturating_sub(start).min(LONGEST_NS);
        next.store(if is_found { 0 } else { start + SHARE * elapsed }, Relaxed);
        is_found
    }

    /// Allows the next search of every class at once.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|next| next.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn failed_searches_use_a_share_of_the_time() {
        let (searches, start) = (Searches::new(), sys::now_ns());
        let failing = || {
            thread::sleep(Duration::from_millis(2));
            false
        };
        assert!(!searches.run(3, failing));
        let next = searches.0[3].load(Relaxed);
        let latest = sys::now_ns() + SHARE * LONGEST_NS;
        assert!((start + SHARE * 2_000_000..=latest).contains(&next));
        searches.0[3].store(u64::MAX, Relaxed);
        assert!(!searches.run(3, || panic!("it is too early")));
        assert!(
            searches.run(4, || true) && searches.run(4, || true),
            "each class has its own time"
        );
    }
}
