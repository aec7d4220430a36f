//! A request for a block with its parameters (size, alignment, node, tag), and an offset, which
//! is the form in which a caller stores a pointer.

use core::alloc::Layout;

use crate::layout::UNIT;

/// A request for a block: its size, its alignment, its NUMA node, and its tag.
///
/// ```
/// use haul_heap::{Heap, Node, Request};
///
/// let heap = Heap::builder().limit(1 << 30).nodes(1).build()?;
/// let frames = heap.tag("frames");
/// let frame = Request::new(1500).aligned(128).on_node(Node::new(0)).tagged(frames);
/// let block = heap.alloc(frame)?;
/// assert_eq!(block.addr().get() % 128, 0);
/// assert_eq!(heap.stats(Node::ANY).tag(frames).blocks, 1);
/// // SAFETY: allocated here, and not used again.
/// unsafe { heap.free(block) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Request {
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) node: Node,
    pub(crate) tag: Tag,
}

impl Request {
    /// A request for `size` bytes, aligned to a cache line of 64 bytes, on any node and without a
    /// tag. A size of 0 gets the smallest block.
    #[inline(always)]
    pub const fn new(size: usize) -> Self {
        Self { size, align: UNIT, node: Node::ANY, tag: Tag::NONE }
    }

    /// The requested size in bytes.
    ///
    /// ```
    /// assert_eq!(haul_heap::Request::new(100).aligned(4096).size(), 100);
    /// ```
    #[must_use]
    pub const fn size(self) -> usize {
        self.size
    }

    /// Sets the alignment in bytes, a power of two up to 1 GiB. Every block is aligned to at least
    /// 64 bytes.
    #[inline(always)]
    pub const fn aligned(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// Sets the NUMA node for the block's memory.
    #[inline(always)]
    pub const fn on_node(mut self, node: Node) -> Self {
        self.node = node;
        self
    }

    /// Sets the tag under which statistics count the block.
    #[inline(always)]
    pub const fn tagged(mut self, tag: Tag) -> Self {
        self.tag = tag;
        self
    }
}

impl From<Layout> for Request {
    #[inline(always)]
    fn from(layout: Layout) -> Self {
        Self::new(layout.size()).aligned(layout.align())
    }
}

/// The NUMA node that a caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Node(pub(crate) u8);

impl Node {
    /// The node on which the thread ran when it first used the heap, or another node if this node
    /// is full.
    pub const ANY: Self = Self(0);

    /// The heap's node `number`, counted from 0. A request for this node fails with
    /// [`AllocError::NoNode`](crate::AllocError::NoNode) if the heap has no such node.
    pub const fn new(number: u8) -> Self {
        Self(number.saturating_add(1))
    }

    /// The number; `None` for [`Node::ANY`].
    pub const fn number(self) -> Option<u8> {
        self.0.checked_sub(1)
    }
}

/// The purpose of a block; statistics count blocks per tag. [`Heap::tag`](crate::Heap::tag)
/// returns the tag with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tag(pub(crate) u8);

impl Tag {
    /// No tag.
    pub const NONE: Self = Self(0);

    /// The tag with this number, which [`Tag::number`] returned in any process of the heap.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The tag's number; 0 for no tag.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A location in a heap, in bytes from the start of the data. It names the same byte in every
/// process that shares the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(u64);

impl Offset {
    /// The offset of `bytes`, a number that [`Offset::bytes`] returned, possibly in another
    /// process.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes from the start of the heap's data.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}
