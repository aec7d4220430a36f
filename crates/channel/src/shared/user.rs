//! Which process uses a half of this end, if a fork has copied the half.
//!
//! The process of the handshake uses the half first. Another process with a copy takes the half
//! over at its first call, if the half was not used since the fork. For each half, the shared
//! memory has a word that only this end changes: 0 at first, then a number that the process
//! chooses. Before the process changes the word, it sends a packet to the peer. The kernel names
//! the packet's sender, and the packet carries a descriptor through which the peer watches the
//! process.
//!
//! ```text
//! takes over:  sends the number;   word: the known number -> the new one
//! uses:        word?               another number: another process has taken it over
//! peer:        word?               another number: reads the packet with that number
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::words::Word;
use haul_peer::fork::Here;

/// The user of a half, as this process knows it.
#[derive(Debug)]
pub(crate) struct User {
    /// The value of the word until another process takes the half over.
    number: AtomicU64,
    /// The process that uses the half, see [`Here`].
    here: AtomicU64,
}

impl User {
    /// The process of the handshake.
    pub(crate) fn new() -> Self {
        Self { number: AtomicU64::new(0), here: AtomicU64::new(Here::now().number()) }
    }

    /// Whether the calling process uses the half: it made the handshake or has taken the half over.
    pub(crate) fn is_here(&self) -> bool {
        Here::of(self.here.load(Relaxed)).is_here()
    }

    /// Whether no process has taken the half over since this process last learned the half's
    /// user.
    pub(crate) fn is_last(&self, word: &impl Word) -> bool {
        // SYNC: user published.
        word.get() == self.number.load(Relaxed)
    }

    /// The number with which the calling process would take the half over. No two processes
    /// choose the same number.
    pub(crate) fn next(&self) -> u64 {
        let turns = (self.number.load(Relaxed) >> 32).wrapping_add(1);
        turns << 32 | u64::from(std::process::id())
    }

    /// Takes the half over with this number. Returns false if another process was first.
    pub(crate) fn take_over(&self, word: &impl Word, number: u64) -> bool {
        // SYNC: user published: after the packet was sent.
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
    fn one_of_two_copies_takes_half_over_and_other_sees_that() {
        let word = AtomicU64::new(0);
        let (one, other) = (User::new(), User::new());
        assert!(one.is_here() && one.is_last(&word) && other.is_last(&word));
        assert!(one.take_over(&word, one.next()));
        assert!(one.is_last(&word) && !other.is_last(&word));
        assert!(!other.take_over(&word, other.next()));
        assert_eq!(one.next() >> 32, 2);
    }
}
