//! What the process did for SIGBUS before the guard came, and what it has set since.

use crate::protocol::versioned::Versioned;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
pub use crate::sys::signal::Action;
use crate::sys::signal::{DEFAULT, flag};

/// Actions of a place that are kept at once: who reads one has the time in which the program sets
/// so many others.
const TURNS: usize = 4;

/// The action that one of the guard's handlers passes on to.
pub(super) struct Kept {
    /// SYNC: action kept. Which of the turns it is.
    current: AtomicU32,
    next: AtomicU32,
    turns: [Versioned<3>; TURNS],
}

impl Kept {
    pub(super) const fn new() -> Self {
        Self {
            current: AtomicU32::new(0),
            next: AtomicU32::new(1),
            turns: [const {
                Versioned { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 3] }
            }; TURNS],
        }
    }

    /// From a signal handler too, and never waits: the action that was there stays whole.
    pub(super) fn set(&self, action: Action) {
        let turn = self.next.fetch_add(1, Relaxed) as usize % TURNS;
        let Action { handler, flags, mask } = action;
        self.turns[turn].write([handler as u64, flags, mask]);
        // SYNC: action kept.
        self.current.store(turn as u32, Release);
    }

    pub(super) fn get(&self) -> Action {
        loop {
            // SYNC: action kept.
            let turn = self.current.load(Acquire) as usize;
            if let Some([handler, flags, mask]) = self.turns[turn].read() {
                return Action { handler: handler as usize, flags, mask };
            }
        }
    }

    /// The action as the kernel takes it for this signal: one that is for one time is gone.
    pub(super) fn take(&self) -> Action {
        let action = self.get();
        if action.flags & flag::RESETHAND != 0 {
            self.set(Action { handler: DEFAULT, ..action });
        }
        action
    }
}
