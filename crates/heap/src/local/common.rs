//! Caches that the threads of a process have in common which have none of their own: more threads
//! live than there are numbers or cache records.
//!
//! A thread takes one that no other thread uses at this instant, works, and lets go of it. So what
//! they hold does not grow with their number. Nobody waits for a thread in particular: the others
//! are as good. All of this is private to the process and reads as zeros in a child of fork, in
//! which no other thread came along.

use crate::protocol::word::CacheId;
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Common caches of a process on each node: as many threads allocate at once, on as many CPUs.
pub(crate) const COMMONS: usize = 64;

/// How often a common cache that got no record is passed over before it asks for one again, which
/// is a look at every record.
const PASSED_OVER: u32 = 1024;

/// One of them.
// Aligned, so that threads on two do not share a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Common {
    /// Whether a thread uses it.
    is_used: AtomicU32,
    /// The cache; 0 before it is there. Of whoever uses it.
    id: AtomicU32,
    /// How often it is passed over still. Of whoever uses it.
    waits: AtomicU32,
}

/// The right to use a common cache, as long as it lives.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Common);

impl Common {
    /// `None` while another thread uses it.
    pub(crate) fn take(&self) -> Option<Turn<'_>> {
        let is_free = self.is_used.load(Relaxed) == 0;
        (is_free && self.is_used.compare_exchange(0, 1, Acquire, Relaxed).is_ok())
            .then(|| Turn(self))
    }

    /// The cache, whoever uses it; `None` before it is there.
    pub(crate) fn id(&self) -> Option<CacheId> {
        Some(self.id.load(Relaxed) as CacheId).filter(|id| *id != 0)
    }
}

impl Turn<'_> {
    /// The cache; `None` before it is there.
    pub(crate) fn id(&self) -> Option<CacheId> {
        self.0.id()
    }

    /// Makes this the cache.
    pub(crate) fn set(&self, id: CacheId) {
        self.0.id.store(id.into(), Relaxed);
    }

    /// The cache; the one that `claim` gives if none is there, unless it gave none a short time
    /// ago.
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
        common.waits.store(if claimed.is_some() { 0 } else { PASSED_OVER }, Relaxed);
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
    fn one_thread_at_a_time_uses_a_common_cache() {
        let common = common();
        let turn = common.take().unwrap();
        assert!(common.take().is_none());
        assert_eq!(turn.cache(|| Ok::<_, ()>(7)), Some(7));
        drop(turn);
        let turn = common.take().unwrap();
        assert_eq!(turn.cache(|| Err(())), Some(7), "it is there");
        assert_eq!(common.id(), Some(7));
    }

    #[test]
    fn a_record_that_is_refused_is_asked_for_again_after_a_while() {
        let common = common();
        let turn = common.take().unwrap();
        assert_eq!(turn.cache(|| Err(())), None);
        for _ in 0..PASSED_OVER {
            assert_eq!(turn.cache(|| Ok::<_, ()>(7)), None);
        }
        assert_eq!(turn.cache(|| Ok::<_, ()>(7)), Some(7));
    }
}
