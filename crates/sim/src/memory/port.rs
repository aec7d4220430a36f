//! What passes between a processor and its memory system: accesses one way, completions the other.

use crate::configuration::Cycle;

/// A name that the processor gives an access, and gets back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u32);

/// What an access is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Instructions.
    Fetch,
    /// A load.
    Load,
    /// A store, at commit: it allocates its line and leaves it dirty.
    Store,
}

/// What becomes of an access or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A cache holds the line: the data is there at `ready`, and no completion follows.
    Hit {
        /// The cycle in which the data can be used.
        ready: Cycle,
    },
    /// A [`Completion`] with the access's tag follows.
    Pending,
    /// Nothing is free that it needs (an MSHR, a place in the queue): nothing was begun, and the
    /// processor asks again in a later cycle.
    Retry,
}

/// The end of an access or a copy that was [`Access::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub tag: Tag,
    /// When: for a copy, the cycle from which its `ecpy` may retire.
    pub at: Cycle,
}

/// A copy as `ecpy` hands it to the copy control unit. Addresses are physical; the ranges must not
/// overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first byte read.
    pub source: u64,
    /// The first byte written.
    pub target: u64,
    /// How many. A copy of none completes at once.
    pub bytes: u64,
    /// Its name.
    pub tag: Tag,
}

/// What may execute while an older `ecpy` has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Nothing younger: the run that measures faster copies without overlap.
    Nothing,
    /// Anything but loads and stores (no load bypass).
    Computation,
    /// Loads and stores as well, unless the pending copy table stops them.
    Memory,
}
