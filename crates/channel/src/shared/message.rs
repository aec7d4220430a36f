//! The number of a message in its direction.
//!
//! Both ends count the messages of a direction from 0. Words of the shared memory are 0 before the
//! first message. So a word that names a message holds the number of messages up to and including
//! it: one more than its index.

/// The position of a message in its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message(u64);

impl Message {
    /// The message with `count` messages before it.
    pub(crate) fn after(count: u64) -> Self {
        Self(count)
    }

    /// The number of messages before it.
    pub(crate) fn index(self) -> u64 {
        self.0
    }

    /// The number of messages up to and including it: the value of a word that names it.
    pub(crate) fn count(self) -> u64 {
        self.0 + 1
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
