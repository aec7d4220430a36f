//! The process's own actions for SIGBUS: the action before the guard was installed, and the
//! actions that the process has set since.

use crate::protocol::versioned::Versioned;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
pub use crate::sys::signal::Action;
use crate::sys::signal::{DEFAULT, flag};

/// How many actions one level stores. A reader of the current action retries only if the program
/// sets this many new actions during the read.
const TURNS: usize = 4;

/// The action to which one of the guard's handlers passes a signal on.
pub(super) struct Kept {
    /// SYNC: action kept. The index of the current action.
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

    /// Sets the action. May be called in a signal handler: it never waits. A thread that reads
    /// the previous action meanwhile still gets that action whole.
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

    /// The action as the kernel applies it to this signal: a one-shot action (`SA_RESETHAND`) is
    /// reset to the default.
    pub(super) fn take(&self) -> Action {
        let action = self.get();
        if action.flags & flag::RESETHAND != 0 {
            self.set(Action { handler: DEFAULT, ..action });
        }
        action
    }
}
