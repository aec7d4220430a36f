//! A few words that a reader gets as one value. The reader never waits, so it can be a signal
//! handler.
//!
//! Each group has a version, which is odd while the words are written. If a reader finds an odd
//! version, or a different version after it has read the words, it discards the words.

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Words that one writer at a time changes together.
pub(crate) struct Versioned<const WORDS: usize> {
    /// SYNC: words published. Stored last, and read again after the words.
    pub(crate) version: AtomicU32,
    pub(crate) words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Versioned<WORDS> {
    /// Writes all words. Callers ensure that no other thread writes meanwhile.
    pub(crate) fn write(&self, words: [u64; WORDS]) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        // A reader that reads one of the new words also reads the odd version or a later version.
        fence(Release);
        for (target, word) in self.words.iter().zip(words) {
            target.store(word, Relaxed);
        }
        // SYNC: words published.
        self.version.store(version.wrapping_add(2), Release);
    }

    /// All words as one value; `None` while a thread is writing them.
    pub(crate) fn read(&self) -> Option<[u64; WORDS]> {
        // SYNC: words published.
        let version = self.version.load(Acquire);
        let words = self.words.each_ref().map(|word| word.load(Relaxed));
        // Ensures that the words are read before the version is read again.
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        is_whole.then_some(words)
    }
}
