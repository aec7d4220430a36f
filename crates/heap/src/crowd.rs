//! How many threads of a crowd build spans of one class at once. Where thousands begin at one
//! instant, each finds that there is no span, and would build one, of which it needs a few slots.
//! So some build, and the others wait a moment for what these leave in the bitmap.

use crate::protocol::class::CLASSES;
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys;

/// Threads that build spans of one class at once: two, so that one that stands still holds up none.
const BUILDERS_MAX: u32 = 2;

/// The longest pause of a thread that waits, as a power of two of [`sys::pause`]'s: 6.4 ms. Where
/// each of 2,000 looked ten times a millisecond, the looks took the time of those that build.
const PAUSE_LOG2_MAX: u32 = 6;

/// Pauses after which a thread builds all the same, where nobody has built anything meanwhile: ten
/// seconds. They build who are threads of this process and run: it is for one that is stopped
/// alone, by a debugger. One second was too short for two CPUs with 6,000 threads.
const PAUSES: u32 = 1600;

/// Of one class.
struct Builders {
    /// How many threads build.
    count: AtomicU32,
    /// How often one was done.
    done: AtomicU32,
}

/// Who builds, by class. Of this process: it says nothing about the threads of others.
pub(crate) struct Crowd([Builders; CLASSES]);

/// The right to build, as long as it lives.
pub(crate) struct Building<'a>(&'a Builders);

/// How long a thread has waited.
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

    /// `None` while as many threads build spans of the class as may.
    pub(crate) fn enter(&self, class: usize) -> Option<Building<'_>> {
        let builders = &self.0[class];
        let more = |now| (now < BUILDERS_MAX).then_some(now + 1);
        let entered = builders.count.fetch_update(Acquire, Relaxed, more);
        entered.is_ok().then(|| Building(builders))
    }

    /// Waits a moment, longer each time; false where that was long enough.
    pub(crate) fn wait(&self, class: usize, wait: &mut Wait) -> bool {
        let done = self.0[class].done.load(Relaxed);
        if done != wait.done {
            *wait = Wait { pauses: 0, done };
        }
        sys::pause_times(1 << wait.pauses.min(PAUSE_LOG2_MAX));
        wait.pauses += 1;
        wait.pauses < PAUSES
    }

    /// Forgets who builds: in a child of fork they are threads that did not come along.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|builders| builders.count.store(0, Relaxed));
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Relaxed);
        // The thread that forked may have been at it, and its count was forgotten.
        let less = |now: u32| now.checked_sub(1);
        let _ = self.0.count.fetch_update(Release, Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_build_and_the_others_wait() {
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
