//! The walk over live blocks.

use core::ops::Range;
use core::ptr::NonNull;

use crate::heap::Heap;
use crate::layout::{PAGE_SLICES, SLICE};
use crate::protocol::class::{CLASSES, TABLE};
use crate::protocol::slice;
use crate::protocol::slot::Slots;
use crate::protocol::word::{Slice, Slot};
use crate::request::{Node, Offset, Tag};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The block's address in this process.
    pub address: NonNull<u8>,
    /// The block's offset in the heap, which is valid in any process.
    pub offset: Offset,
    /// The bytes that the block occupies.
    pub bytes: usize,
    /// The tag with which the block was allocated.
    pub tag: Tag,
    /// The process slot of the block's owner.
    pub process: u8,
    /// The NUMA node of the block's memory.
    pub node: Node,
    /// Whether the block is a run of slices and not a slot of a span.
    pub is_large: bool,
}

impl Heap {
    /// Calls `visit` with every live block, by ascending address. O(slices that were ever used,
    /// and slots of spans). No other call waits meanwhile.
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// let mut found = Vec::new();
    /// heap.walk(|live| found.push(live.address));
    /// assert_eq!(found, [block]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk(&self, mut visit: impl FnMut(Block)) {
        for node in 0..self.node_count() {
            for page in self.used_pages(node) {
                self.walk_page(node, page, &mut visit);
            }
        }
    }

    pub(super) fn walk_page(&self, node: usize, page: usize, visit: &mut impl FnMut(Block)) {
        let slices = self.memory.tables.slices();
        let node = Node::new(node as u8);
        for head in page * PAGE_SLICES..(page + 1) * PAGE_SLICES {
            match slice::word(slices, head).decode() {
                Slice::Span { class } if self.is_span_head(head, class) => {
                    self.walk_span(node, head, class as usize, visit);
                }
                Slice::Large { process, tag, length } => {
                    let offset = head * SLICE;
                    let bytes = length as usize * SLICE;
                    self.show(offset, bytes, (process, tag), (node, true), visit);
                }
                _ => {}
            }
        }
    }

    /// The pages of a node that were ever used.
    pub(crate) fn used_pages(&self, node: usize) -> Range<usize> {
        self.memory.used_pages(node)
    }

    pub(super) fn is_span_head(&self, slice: usize, class: u8) -> bool {
        let class = class as usize;
        class < CLASSES && slice.is_multiple_of(TABLE[class].span_slices as usize)
    }

    pub(super) fn slots_of(&self, head: usize, class: usize) -> Slots<'_> {
        let about = &TABLE[class];
        Slots::new(self.memory.tables.slots(about.shift), head * SLICE, about)
    }

    fn walk_span(&self, node: Node, head: usize, class: usize, visit: &mut impl FnMut(Block)) {
        let slots = self.slots_of(head, class);
        let bytes = TABLE[class].size as usize;
        for slot in 0..slots.count() {
            if let Slot::Live { process, tag } = slots.get(slot).decode() {
                let offset = head * SLICE + slot * bytes;
                self.show(offset, bytes, (process, tag), (node, false), visit);
            }
        }
    }

    fn show(
        &self,
        offset: usize,
        bytes: usize,
        (process, tag): (u8, u8),
        (node, is_large): (Node, bool),
        visit: &mut impl FnMut(Block),
    ) {
        // The length of a large block comes from a word that other processes can write, so a
        // block that reaches beyond its node is skipped.
        let is_inside = self.holds(offset, bytes);
        let offset = Offset::new(offset as u64);
        if let Some(address) = self.pointer(offset).filter(|_| is_inside) {
            visit(Block { address, offset, bytes, tag: Tag(tag), process, node, is_large });
        }
    }
}
