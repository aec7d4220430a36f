//! The map: every page that was ever used, with the states of its slices.

use crate::heap::Heap;
use crate::layout::{PAGE, PAGE_SLICES, SLICE};
use crate::protocol::class::TABLE;
use crate::protocol::slice;
use crate::protocol::slot::Slots;
use crate::protocol::word::{Page, PageWord, Slice, Slot};
use crate::region::backing::Backing;
use crate::request::{Node, Offset, Tag};
use crate::sync::Ordering::Acquire;

/// The state of a page of 2 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageView {
    /// Its offset.
    pub offset: Offset,
    /// The page's node.
    pub node: Node,
    /// The state of the page's memory.
    pub state: PageState,
    /// The kind of the page's memory, if it has memory.
    pub backing: Backing,
    /// The page's slices of 64 KiB.
    pub slices: [SliceView; PAGE_SLICES],
}

/// The state of a page's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageState {
    /// It has no memory.
    Absent,
    /// A thread is requesting memory for the page from the kernel.
    Mapping,
    /// It has memory.
    Ready,
    /// A thread is giving the page's memory back.
    Draining,
}

/// The state of a slice of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SliceView {
    /// Free.
    Free,
    /// A thread is building or taking apart a span or block here, or holds the slice for its next
    /// spans.
    Busy,
    /// Part of a span. The counts include the slots that start in this slice.
    Span {
        /// Bytes of a slot.
        class_bytes: usize,
        /// Slots that are live.
        live: u32,
        /// Slots that threads hold in their caches.
        cached: u32,
        /// Slots that are free.
        free: u32,
        /// The tag that most of the live slots have.
        tag: Tag,
    },
    /// Part of a large block.
    Large {
        /// Bytes of the block in its first slice; 0 in the others.
        bytes: usize,
        /// The block's tag in its first slice; [`Tag::NONE`] in the others.
        tag: Tag,
    },
    /// The provider of the heap's external memory keeps this slice.
    Outside,
    /// The slice word has a value that no heap writes.
    Damaged,
}

impl Heap {
    /// Calls `visit` with every page that was ever used, by ascending address. Costs as much as
    /// [`Heap::walk`]. No other call waits meanwhile.
    ///
    /// ```
    /// use haul_heap::SliceView;
    /// use haul_heap::{Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// heap.alloc(Request::new(1 << 20))?;
    /// let mut large = 0;
    /// heap.map(|page| {
    ///     let is_large = |slice: &&SliceView| matches!(slice, SliceView::Large { .. });
    ///     large += page.slices.iter().filter(is_large).count();
    /// });
    /// assert_eq!(large, 16, "slices of 64 KiB");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self, mut visit: impl FnMut(&PageView)) {
        for node in 0..self.node_count() {
            for page in self.used_pages(node) {
                visit(&self.view(node, page));
            }
        }
    }

    fn view(&self, node: usize, page: usize) -> PageView {
        let word = PageWord(self.memory.tables.pages()[page].load(Acquire));
        let state = match word.decode() {
            Page::Absent => PageState::Absent,
            Page::Mapping(_) => PageState::Mapping,
            Page::Ready => PageState::Ready,
            Page::Draining(_) => PageState::Draining,
        };
        PageView {
            offset: Offset::new((page * PAGE) as u64),
            node: Node::new(node as u8),
            state,
            backing: Backing::from_number(word.backing()),
            slices: core::array::from_fn(|index| self.view_slice(page * PAGE_SLICES + index)),
        }
    }

    fn view_slice(&self, index: usize) -> SliceView {
        match slice::word(self.memory.tables.slices(), index).decode() {
            Slice::Free => SliceView::Free,
            Slice::Claimed(_) | Slice::Run { .. } => SliceView::Busy,
            Slice::Outside => SliceView::Outside,
            Slice::Span { class } if (class as usize) < crate::protocol::class::CLASSES => {
                self.view_span(index, class as usize)
            }
            Slice::Large { tag, length, .. } => {
                SliceView::Large { bytes: length as usize * SLICE, tag: Tag(tag) }
            }
            Slice::Tail => SliceView::Large { bytes: 0, tag: Tag::NONE },
            Slice::Span { .. } | Slice::Unknown => SliceView::Damaged,
        }
    }

    fn view_span(&self, index: usize, class: usize) -> SliceView {
        let about = &TABLE[class];
        let bytes = about.size as usize;
        let head = index & !(about.span_slices as usize - 1);
        let slots: Slots<'_> = self.slots_of(head, class);
        let within = (index - head) * SLICE;
        let range = within.div_ceil(bytes)..(within + SLICE).div_ceil(bytes).min(slots.count());
        let (mut live, mut cached, mut free) = (0, 0, 0);
        let mut by_tag = [0u32; 256];
        for slot in range {
            match slots.get(slot).decode() {
                Slot::Free => free += 1,
                Slot::Cached(_) => cached += 1,
                Slot::Live { tag, .. } => {
                    live += 1;
                    by_tag[tag as usize] += 1;
                }
            }
        }
        let most = (0..=255u8).rev().max_by_key(|tag| by_tag[*tag as usize]).unwrap_or_default();
        SliceView::Span { class_bytes: bytes, live, cached, free, tag: Tag(most) }
    }
}
