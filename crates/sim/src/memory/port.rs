//! The interface between a processor and its memory system: accesses in one direction, completions
//! in the other.

use crate::configuration::Cycle;

/// A tag that the processor gives an access. The access's completion carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub u32);

/// The purpose of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An instruction fetch.
    Fetch,
    /// A load.
    Load,
    /// A store, at commit: it allocates its line and leaves it dirty.
    Store,
}

/// The immediate result of an access or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A cache holds the line: the data is available at `ready`, and no completion follows.
    Hit {
        /// The cycle in which the data can be used.
        ready: Cycle,
    },
    /// A [`Completion`] with the access's tag follows.
    Pending,
    /// A resource (an MSHR, a slot in the queue) is missing. Nothing was begun, and the processor
    /// must retry in a later cycle.
    Retry,
}

/// The end of an access or a copy that was [`Access::Pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the access or copy.
    pub tag: Tag,
    /// The cycle of the completion: for a copy, the cycle from which its `ecpy` may retire.
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
    /// The length. A copy of 0 bytes completes at once.
    pub bytes: u64,
    /// The tag of its completion.
    pub tag: Tag,
}

/// What may execute while an older `ecpy` has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Nothing younger. This setting measures faster copies without overlap.
    Nothing,
    /// Anything but loads and stores (no load bypass).
    Computation,
    /// Loads and stores as well, unless the pending copy table stops them.
    Memory,
}
