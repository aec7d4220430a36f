//! A word that two processes share, as the protocols see it: the processor's own, or one of loom's
//! where loom runs every order of them (`interleavings`).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// 64 bits that several can change at once.
pub(super) trait Word {
    /// What it says; everything told by it is seen from here on.
    fn get(&self) -> u64;

    /// Says something, and with it everything that was written before.
    fn put(&self, value: u64);

    /// Puts `new` in the place of `old`, or says what is there instead.
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64>;
}

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Acquire)
    }

    fn put(&self, value: u64) {
        self.store(value, Release);
    }

    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(old, new, AcqRel, Acquire).map(drop)
    }
}
