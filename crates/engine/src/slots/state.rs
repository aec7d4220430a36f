//! The state of a slot: a generation, and the flags of this generation, in one word.
//!
//! A state of an earlier generation has no flags, so that a submission does not write the state.
//! The states of 16 slots share a cache line. The thread that ends operations writes it, and one
//! transfer of it shows a caller the ends of many operations.
//!
//! ```text
//! CLAIMED   a thread does the operation (only for an engine that claims whole operations)
//! ENDED     the operation has ended
//! SLEEPER   a thread sleeps on the word; the end wakes it
//! NOTIFY    a waker is stored; the end takes it
//! LET_GO    the engine does not access the slot any more
//! RELEASED  the queue is done with the slot before the engine is, which then frees it
//! WRITTEN   beside ENDED: the outcome is `Done(Written)`, and is not in its field
//! ```

use super::Index;
use crate::sync::{AcqRel, Alone, AtomicU32, Relaxed, take_line};

pub(super) const CLAIMED: u32 = 1;
pub(super) const ENDED: u32 = 2;
pub(super) const SLEEPER: u32 = 4;
pub(super) const NOTIFY: u32 = 8;
pub(super) const LET_GO: u32 = 16;
pub(super) const RELEASED: u32 = 32;
pub(super) const WRITTEN: u32 = 64;
/// The bits of a state that hold flags; the others hold the generation.
const FLAGS: u32 = 0xff;

/// Distinguishes an operation in a slot from the one before it. The first is never started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// The generation with this number.
    #[inline]
    pub(super) fn of(number: u32) -> Self {
        Self(number)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    pub(super) fn next(self) -> Self {
        Self(self.0.wrapping_add(FLAGS + 1))
    }

    pub(super) fn previous(self) -> Self {
        Self(self.0.wrapping_sub(FLAGS + 1))
    }

    /// The flags that a state has for this generation.
    #[inline]
    pub(super) fn flags(self, state: u32) -> u32 {
        if state & !FLAGS == self.0 { state & FLAGS } else { 0 }
    }
}

/// The states of all slots.
#[derive(Debug)]
pub(super) struct States(Box<[Alone<[AtomicU32; COUNT]>]>);

/// The number of states in a cache line of 64 bytes.
const COUNT: usize = 16;

impl States {
    /// The states of as many slots that have never been used.
    pub(super) fn new(slots: usize) -> Self {
        let unused = || AtomicU32::new(Generation::default().0 | ENDED | LET_GO);
        let line = |_| Alone([(); COUNT].map(|()| unused()));
        Self((0..slots.div_ceil(COUNT)).map(line).collect())
    }

    #[inline]
    pub(super) fn of(&self, index: Index) -> &AtomicU32 {
        &self.0[index.number() / COUNT].0[index.number() % COUNT]
    }

    /// Adds flags to those of the generation, and returns those before.
    pub(super) fn add(&self, index: Index, generation: Generation, flags: u32) -> u32 {
        let state = self.of(index);
        take_line(state);
        let mut now = state.load(Relaxed);
        loop {
            let before = generation.flags(now);
            let changed = generation.0 | before | flags;
            match state.compare_exchange_weak(now, changed, AcqRel, Relaxed) {
                Ok(_) => return before,
                Err(changed) => now = changed,
            }
        }
    }
}
