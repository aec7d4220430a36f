//! The parameters of a request (a node, a tag), and the form in which a caller stores a pointer: an
//! offset.

/// A NUMA node of a heap, as the caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Node(pub(crate) u8);

impl Node {
    /// The node that the thread ran on when it first used the heap, or another node if that one is
    /// full.
    pub const ANY: Self = Self(0);

    /// The heap's node `number`, counted from 0. An allocation there fails with
    /// [`AllocError::NoNode`](crate::AllocError::NoNode) if the heap has no such node.
    pub const fn new(number: u8) -> Self {
        Self(number.saturating_add(1))
    }

    /// The number; `None` for [`Node::ANY`].
    pub const fn number(self) -> Option<u8> {
        self.0.checked_sub(1)
    }
}

/// The purpose of a block; statistics count by it. [`Heap::tag`](crate::Heap::tag) gives the tag of
/// a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tag(pub(crate) u8);

impl Tag {
    /// No tag.
    pub const NONE: Self = Self(0);

    /// The tag of this number, as [`Tag::number`] returned it in any process of the heap.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The tag's number, 0 for no tag.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A location in a heap that means the same in every process that shares it: bytes from the start
/// of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(u64);

impl Offset {
    /// An offset of so many bytes, as [`Offset::bytes`] returned it, perhaps in another process.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes from the start of the heap's data.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}
