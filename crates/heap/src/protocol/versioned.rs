//! A few words that are read as one value by a reader that must not wait: a signal handler.
//!
//! Each group has a version, which is odd while the words are written. A reader that finds an odd
//! version, or a different version after reading the words, discards what it read.

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
        // A reader that sees one of the new words also sees that version or a later one.
        fence(Release);
        for (target, word) in self.words.iter().zip(words) {
            target.store(word, Relaxed);
        }
        // SYNC: words published.
        self.version.store(version.wrapping_add(2), Release);
    }

    /// All words, as they were at one time; `None` while they are being written.
    pub(crate) fn read(&self) -> Option<[u64; WORDS]> {
        // SYNC: words published.
        let version = self.version.load(Acquire);
        let words = self.words.each_ref().map(|word| word.load(Relaxed));
        // The words are read before the version is read again.
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        is_whole.then_some(words)
    }
}
