//! A few words that are read as one, by a reader that may not wait: a signal handler.
//!
//! A version stands in front of them, odd while they are written. A reader that finds it odd, or
//! another one after it has read the words, has read nothing.

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// Words that one writer at a time changes together.
pub(crate) struct Versioned<const WORDS: usize> {
    /// SYNC: words published. Stored last, and looked at again after the words were read.
    pub(crate) version: AtomicU32,
    pub(crate) words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Versioned<WORDS> {
    /// Changes all of them. Callers see to it that nobody else writes meanwhile.
    pub(crate) fn write(&self, words: [u64; WORDS]) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        // A reader that sees one of the new words sees that version at least.
        fence(Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Relaxed);
        }
        // SYNC: words published.
        self.version.store(version.wrapping_add(2), Release);
    }

    /// All of them, as they stood at one time; `None` where they are being changed.
    pub(crate) fn read(&self) -> Option<[u64; WORDS]> {
        // SYNC: words published.
        let version = self.version.load(Acquire);
        let words = self.words.each_ref().map(|word| word.load(Relaxed));
        // The words first, and then the version once more.
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        is_whole.then_some(words)
    }
}
