//! Counts by node and tag.

use core::fmt::{self, Write};

use crate::heap::Heap;
use crate::layout::{PAGE, PAGE_SLICES, SLICE};
use crate::protocol::class::TABLE;
use crate::protocol::slice;
use crate::protocol::word::{PageWord, Slice, Slot};
use crate::request::{Node, Tag};
use crate::sync::Ordering::Acquire;

/// A number of blocks, and the bytes that these blocks occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Blocks.
    pub blocks: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}

/// Statistics of a node or a whole heap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Live blocks.
    pub live: Count,
    /// Free blocks that threads hold in their caches.
    pub cached: Count,
    /// Bytes of pages that have memory.
    pub ready_bytes: u64,
    /// Bytes that no cached or live block occupies, in pages with memory: free slots and slices.
    pub free_bytes: u64,
    /// Bytes of the longest run of free slices with memory: the size of the largest block that
    /// needs no memory from the kernel.
    pub longest_free_bytes: u64,
    /// The largest number of bytes that the node or heap can have.
    pub limit_bytes: u64,
    tags: [Count; 256],
}

impl Stats {
    const NONE: Self = Self {
        live: Count { blocks: 0, bytes: 0 },
        cached: Count { blocks: 0, bytes: 0 },
        ready_bytes: 0,
        free_bytes: 0,
        longest_free_bytes: 0,
        limit_bytes: 0,
        tags: [Count { blocks: 0, bytes: 0 }; 256],
    };

    /// Live blocks with a tag.
    pub fn tag(&self, tag: Tag) -> Count {
        self.tags[tag.0 as usize]
    }
}

impl Heap {
    /// Statistics of a node, or of the whole heap for [`Node::ANY`]; all zero for a node that the
    /// heap does not have. The statistics are exact if no thread allocates or frees meanwhile.
    /// O(slices that were ever used, and slots of spans), about a nanosecond each. No other call
    /// waits meanwhile.
    ///
    /// ```
    /// use haul_heap::{Heap, Node, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// heap.alloc(Request::new(4096))?;
    /// let live = heap.stats(Node::ANY).live;
    /// assert_eq!((live.blocks, live.bytes), (1, 4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self, node: Node) -> Stats {
        let mut stats = Stats::NONE;
        for number in 0..self.node_count() {
            if node.number().is_none_or(|only| usize::from(only) == number) {
                self.add_node(number, &mut stats);
            }
        }
        stats.free_bytes = stats.ready_bytes.saturating_sub(stats.live.bytes + stats.cached.bytes);
        stats
    }

    /// Writes the statistics and the tags in use as text, one per line.
    ///
    /// # Errors
    /// The error of `out`.
    ///
    /// ```
    /// let heap = haul_heap::Heap::builder().limit(64 << 20).build()?;
    /// let mut text = String::new();
    /// heap.dump(&mut text)?;
    /// assert!(text.contains("live: 0 blocks"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dump(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "pages: {}", self.pages())?;
        for node in 0..self.node_count() {
            let node = Node::new(node as u8);
            let stats = self.stats(node);
            writeln!(out, "node {}:", node.number().unwrap_or_default())?;
            writeln!(out, "  limit_bytes: {}", stats.limit_bytes)?;
            writeln!(out, "  ready_bytes: {}", stats.ready_bytes)?;
            writeln!(out, "  free_bytes: {}", stats.free_bytes)?;
            writeln!(out, "  longest_free_bytes: {}", stats.longest_free_bytes)?;
            writeln!(out, "  live: {} blocks, {} bytes", stats.live.blocks, stats.live.bytes)?;
            writeln!(
                out,
                "  cached: {} blocks, {} bytes",
                stats.cached.blocks, stats.cached.bytes
            )?;
            for tag in (0..=255).map(Tag) {
                let Count { blocks, bytes } = stats.tag(tag);
                if blocks > 0 {
                    writeln!(out, "  tag {}: {blocks} blocks, {bytes} bytes", self.tag_name(tag))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn node_count(&self) -> usize {
        self.memory.tables.geometry().nodes as usize
    }

    fn add_node(&self, node: usize, stats: &mut Stats) {
        stats.limit_bytes += (self.memory.pages_of(node).len() * PAGE) as u64;
        let mut run = 0;
        for page in self.used_pages(node) {
            self.walk_page(node, page, &mut |block| {
                stats.live.add(block.bytes as u64);
                stats.tags[block.tag.0 as usize].add(block.bytes as u64);
            });
            let word = PageWord(self.memory.tables.pages()[page].load(Acquire));
            if word.is_ready() {
                stats.ready_bytes += PAGE as u64;
            } else {
                run = 0;
            }
            self.add_slices(page, word.is_ready(), &mut run, stats);
        }
    }

    /// Adds the page's cached slots to `stats`, and extends the run of free slices that ends at
    /// this page.
    fn add_slices(&self, page: usize, is_ready: bool, run: &mut u64, stats: &mut Stats) {
        let slices = self.memory.tables.slices();
        for index in page * PAGE_SLICES..(page + 1) * PAGE_SLICES {
            let slice = slice::word(slices, index).decode();
            *run = if slice == Slice::Free && is_ready { *run + SLICE as u64 } else { 0 };
            stats.longest_free_bytes = stats.longest_free_bytes.max(*run);
            if slice == Slice::Outside && is_ready {
                stats.ready_bytes -= SLICE as u64;
            }
            let Slice::Span { class } = slice else { continue };
            if self.is_span_head(index, class) {
                let slots = self.slots_of(index, class as usize);
                let is_cached = |slot: &usize| matches!(slots.get(*slot).decode(), Slot::Cached(_));
                let cached = (0..slots.count()).filter(is_cached).count() as u64;
                stats.cached.blocks += cached;
                stats.cached.bytes += cached * u64::from(TABLE[class as usize].size);
            }
        }
    }
}
