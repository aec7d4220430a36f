//! Limits how many threads build spans of one class at once. If thousands of threads begin at the
//! same time, each finds no span and would build one, although it needs only a few slots. So a few
//! threads build, and the others wait for the free slots that appear in the bitmap.

use crate::protocol::class::CLASSES;
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys;

/// Threads that build spans of one class at once: two, so that a descheduled builder does not hold
/// up the others.
const BUILDERS_MAX: u32 = 2;

/// The binary logarithm of the longest pause of a waiting thread, in units of [`sys::pause`]: 6.4
/// ms. When each of 2,000 threads polled ten times a millisecond, the polls used the CPU time
/// that the builders needed.
const PAUSE_LOG2_MAX: u32 = 6;

/// Pauses after which a waiting thread builds a span if no other thread has built one meanwhile:
/// ten seconds. The builders are running threads of this process, so this limit matters only if a
/// builder is stopped, for example by a debugger. One second was too short for 6,000 threads on
/// two CPUs.
const PAUSES: u32 = 1600;

/// The builders of one class.
struct Builders {
    /// How many threads build a span now.
    count: AtomicU32,
    /// How many spans the builders have finished.
    done: AtomicU32,
}

/// The builders of each class. Only threads of this process are counted.
pub(crate) struct Crowd([Builders; CLASSES]);

/// The right to build a span, while this value lives.
pub(crate) struct Building<'a>(&'a Builders);

/// How long a thread has waited since the last span was built.
#[derive(Default)]
pub(crate) struct Wait {
    pauses: u32,
    done: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        let none = |_| Builders { count: AtomicU32::new(0), done: AtomicU32::new(0) };
        Self(core::array::from_fn(none))
    }

    /// `None` while [`BUILDERS_MAX`] threads build spans of the class.
    pub(crate) fn enter(&self, class: usize) -> Option<Building<'_>> {
        let builders = &self.0[class];
        let more = |now| (now < BUILDERS_MAX).then_some(now + 1);
        let entered = builders.count.fetch_update(Acquire, Relaxed, more);
        entered.is_ok().then(|| Building(builders))
    }

    /// Pauses, longer each time. Returns false after [`PAUSES`] pauses without a new span.
    pub(crate) fn wait(&self, class: usize, wait: &mut Wait) -> bool {
        let done = self.0[class].done.load(Relaxed);
        if done != wait.done {
            *wait = Wait { pauses: 0, done };
        }
        sys::pause_times(1 << wait.pauses.min(PAUSE_LOG2_MAX));
        wait.pauses += 1;
        wait.pauses < PAUSES
    }

    /// Forgets the builders: in a child of fork, those threads do not exist.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|builders| builders.count.store(0, Relaxed));
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Relaxed);
        // In a child of fork, the thread that forked may have been a builder, but `forget` has
        // set the count to 0.
        let less = |now: u32| now.checked_sub(1);
        let _ = self.0.count.fetch_update(Release, Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builders_are_limited_by_class() {
        let crowd = Crowd::new();
        let first: [_; BUILDERS_MAX as usize] = core::array::from_fn(|_| crowd.enter(3).unwrap());
        assert!(crowd.enter(3).is_none() && crowd.enter(4).is_some());
        drop(first);
        let _left = crowd.enter(3).unwrap();
        crowd.forget();
        let _all: [_; BUILDERS_MAX as usize] = core::array::from_fn(|_| crowd.enter(3).unwrap());
        assert!(crowd.enter(3).is_none());
    }
}
