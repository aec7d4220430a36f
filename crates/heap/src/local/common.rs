//! Caches for those threads of a process that have no separate cache, because the process has
//! more threads than there are numbers or cache records.
//!
//! A thread takes a cache that no other thread uses at this time, works with it, and releases it.
//! So the memory in these caches does not grow with the number of threads. A thread does not wait
//! for a particular cache, because it can use any of them. The caches' state is private to the
//! process and reads as zeros in a child of fork, which has only one thread.

use crate::protocol::word::CacheId;
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The number of common caches per process and node. The same number of threads can allocate at
/// once.
pub(crate) const COMMONS: usize = 64;

/// How many uses skip a common cache without a record after a request for a record failed. A
/// request reads every record, so it is not repeated at once.
const SKIPS: u32 = 1024;

/// A common cache.
// Aligned, so that threads that use different common caches do not share a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Common {
    /// Whether a thread uses the common cache.
    is_used: AtomicU32,
    /// The cache record's number; 0 before a record is claimed. Only the thread that uses the
    /// common cache writes this field.
    id: AtomicU32,
    /// How many more uses skip the common cache. Only the thread that uses it writes this field.
    waits: AtomicU32,
}

/// The right to use a common cache, while this value lives.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Common);

impl Common {
    /// Takes the common cache; `None` while another thread uses it.
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        let is_free = self.is_used.load(Relaxed) == 0;
        (is_free && self.is_used.compare_exchange(0, 1, Acquire, Relaxed).is_ok())
            .then(|| Turn(self))
    }

    /// The cache record, even if another thread uses the common cache; `None` before a record is
    /// claimed.
    pub(crate) fn id(&self) -> Option<CacheId> {
        Some(self.id.load(Relaxed) as CacheId).filter(|id| *id != 0)
    }
}

impl Turn<'_> {
    /// The cache record; `None` before a record is claimed.
    pub(crate) fn id(&self) -> Option<CacheId> {
        self.0.id()
    }

    /// Sets the cache.
    pub(crate) fn set(&self, id: CacheId) {
        self.0.id.store(id.into(), Relaxed);
    }

    /// The cache record. If there is none yet, claims one with `claim`, unless `claim` failed a
    /// short time ago.
    pub(crate) fn cache<E>(&self, claim: impl FnOnce() -> Result<CacheId, E>) -> Option<CacheId> {
        let common = self.0;
        if common.id().is_some() {
            return common.id();
        }
        let waits = common.waits.load(Relaxed);
        if waits > 0 {
            common.waits.store(waits - 1, Relaxed);
            return None;
        }
        let claimed = claim().ok();
        self.set(claimed.unwrap_or(0));
        common.waits.store(if claimed.is_some() { 0 } else { SKIPS }, Relaxed);
        claimed
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_used.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> Common {
        let [is_used, id, waits] = [0; 3].map(AtomicU32::new);
        Common { is_used, id, waits }
    }

    #[test]
    fn common_cache_has_one_user_at_a_time() {
        let common = common();
        let turn = common.take().unwrap();
        assert!(common.take().is_none());
        assert_eq!(turn.cache(|| Ok::<_, ()>(7)), Some(7));
        drop(turn);
        let turn = common.take().unwrap();
        assert_eq!(turn.cache(|| Err(())), Some(7), "it is claimed");
        assert_eq!(common.id(), Some(7));
    }

    #[test]
    fn refused_record_is_requested_again_after_a_while() {
        let common = common();
        let turn = common.take().unwrap();
        assert_eq!(turn.cache(|| Err(())), None);
        for _ in 0..SKIPS {
            assert_eq!(turn.cache(|| Ok::<_, ()>(7)), None);
        }
        assert_eq!(turn.cache(|| Ok::<_, ()>(7)), Some(7));
    }
}
