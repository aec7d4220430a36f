//! Which message of a direction.
//!
//! Both ends count the messages of a direction from 0. Words of the shared memory are 0 before
//! there was any, so those that name a message say how many there are up to it: one more than its
//! index.

/// A message's place in the order of its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message(u64);

impl Message {
    /// The one of which so many come before.
    pub(crate) fn after(count: u64) -> Self {
        Self(count)
    }

    /// How many come before it.
    pub(crate) fn index(self) -> u64 {
        self.0
    }

    /// How many there are up to it, with it: what a word says that names it.
    pub(crate) fn count(self) -> u64 {
        self.0 + 1
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
