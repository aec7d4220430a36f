//! Which process uses a half of this end, where a fork has copied it.
//!
//! The process that met the peer does, until another one that has a copy uses it: that one takes it
//! over, if nothing was done with the half since the fork. Each half has a word for that in the
//! shared memory, which only this end changes: 0 at first, and then a number that the process makes
//! up. Before the word says it, a packet tells the peer: the kernel names its sender, and with it
//! comes a descriptor that the peer watches it by.
//!
//! ```text
//! takes over:  sends the number;   word: the number that was known -> the new one
//! uses:        word?               another number: another process has taken it over
//! peer:        word?               another number: reads the packet that tells of it
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::words::Word;
use haul_peer::fork::Here;

/// A half, as this process knows it.
#[derive(Debug)]
pub(crate) struct User {
    /// What the word says as long as nobody else takes the half over.
    number: AtomicU64,
    /// The process that has it, see [`Here`].
    here: AtomicU64,
}

impl User {
    /// Of the process that met the peer.
    pub(crate) fn new() -> Self {
        Self { number: AtomicU64::new(0), here: AtomicU64::new(Here::now().number()) }
    }

    /// Whether the calling process has taken it over, or met the peer.
    pub(crate) fn is_here(&self) -> bool {
        Here::of(self.here.load(Relaxed)).is_here()
    }

    /// Whether no process has taken it over since this one came to know it.
    pub(crate) fn is_last(&self, word: &impl Word) -> bool {
        // SYNC: user told.
        word.get() == self.number.load(Relaxed)
    }

    /// The number by which the calling process would take it over: no two processes make up the
    /// same.
    pub(crate) fn next(&self) -> u64 {
        let turns = (self.number.load(Relaxed) >> 32).wrapping_add(1);
        turns << 32 | u64::from(std::process::id())
    }

    /// Takes it over by this number; false where another process was first.
    pub(crate) fn take_over(&self, word: &impl Word, number: u64) -> bool {
        // SYNC: user told: after the packet.
        if word.exchange(self.number.load(Relaxed), number).is_err() {
            return false;
        }
        self.number.store(number, Relaxed);
        self.here.store(Here::now().number(), Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_copies_one_takes_it_over_and_the_other_sees_that() {
        let word = AtomicU64::new(0);
        let (one, other) = (User::new(), User::new());
        assert!(one.is_here() && one.is_last(&word) && other.is_last(&word));
        assert!(one.take_over(&word, one.next()));
        assert!(one.is_last(&word) && !other.is_last(&word));
        assert!(!other.take_over(&word, other.next()));
        assert_eq!(one.next() >> 32, 2);
    }
}
