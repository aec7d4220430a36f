//! The layout: the sizes of pages, slices and units in the data range, and one function that
//! computes the offset of every table in the metadata region from the geometry. Every process
//! computes the same layout from the same header.

use core::ops::Range;

pub(crate) use crate::protocol::class::SLICE;

use crate::protocol::bitmap::bitmap_words;
use crate::protocol::class::CLASSES;
use crate::protocol::runs::group_words;
use crate::protocol::word::{CACHE_ID_MAX, CACHES_MAX, NAMESPACES_MAX, PROCESSES_MAX, TAGS_MAX};

/// Bytes of a page: the unit of memory that the heap requests from the kernel and gives back. A
/// huge page of 1 GiB backs 512 pages.
pub(crate) const PAGE: usize = 2 << 20;

/// Slices per page.
pub(crate) const PAGE_SLICES: usize = PAGE / SLICE;

/// Bytes of a unit. A thread's bin stores offsets in units, so that 32 bits suffice for
/// [`DATA_MAX`].
pub(crate) const UNIT: usize = 64;

/// The largest data range in bytes: 2^32 units.
pub(crate) const DATA_MAX: usize = UNIT << 32;

/// Alignment of the data range in every process, in bytes; also the largest alignment of a block.
pub(crate) const ALIGN_MAX: usize = 1 << 30;

/// The most NUMA nodes of one heap.
pub(crate) const NODES_MAX: usize = 8;

/// Arrays of slot words: one for each shift from 6 (64 bytes) to 18 (256 KiB).
pub(crate) const SHIFTS: usize = 13;

/// The smallest shift: the shift for a slot of one unit.
pub(crate) const SHIFT_MIN: u32 = UNIT.trailing_zeros();

/// The number of span lengths: 1, 2, 4, 8, 16 and 32 slices. The search for a page with room for
/// a span uses a bitmap for this length. A span begins at a multiple of its length.
pub(crate) const ORDERS: usize = 6;

/// Bitmaps of pages: one for each order, and one for the free pages that may still have memory.
const PAGE_BITMAPS: usize = ORDERS + 1;

/// Bytes of the header, which is the region's first page.
pub(crate) const HEADER_BYTES: usize = 4096;

/// Offset, in bytes, of the table of PID namespaces in the first page. It contains the namespaces
/// in which processes of the heap run. It follows the header.
pub(crate) const NAMESPACES_AT: usize = HEADER_BYTES / 2;

/// Bytes of the gap after the header. Each process keeps the gap inaccessible in its own mapping:
/// see `region`. The gap is as long as the largest base page of a kernel (64 KiB, on aarch64).
pub(crate) const GAP_BYTES: usize = 64 << 10;

/// Bytes of a process record.
pub(crate) const PROCESS_RECORD_BYTES: usize = 64;

/// Offset of the additional words in a process record, in bytes.
pub(crate) const PROCESS_MORE_AT: usize = 16;

/// Index of the additional word that contains the process's descriptor number for the heap's
/// second file, plus 1; the word is 0 if the process does not have that file open. A process that
/// attaches reads the word from the file before it maps the tables.
pub(crate) const POOL_FILE: usize = 2;

/// Bytes of a tag's name: its length, then at most 31 bytes of text.
pub(crate) const TAG_BYTES: usize = 32;

/// Bytes of a cache record: a kibibyte of state and hints, then a bin of 256 bytes for each class.
pub(crate) const CACHE_RECORD_BYTES: usize = 1024 + 256 * CLASSES;

/// Bytes of a node's hints.
pub(crate) const NODE_BYTES: usize = 1024;

/// Alignment of the tables, in bytes: a page of metadata.
const TABLE_ALIGN: usize = 4096;

/// Bytes of metadata per bit of [`Layout::reserved`]: the smallest page size.
pub(crate) const RESERVE: usize = TABLE_ALIGN;

/// Offset of the gap in bytes, a multiple of every kernel's page size.
pub(crate) const GAP_AT: usize = GAP_BYTES;

/// Offset of a table of slot words in its page, in bytes. A free stores the block's slot word,
/// and a slice word is loaded a few instructions later. If both words have the same offset in
/// their pages, the load waits for the store as if they had the same address ("4K aliasing"). The
/// slice words for the first 8 MiB are in the first KiB of a page, the bins for the smallest
/// class in the second KiB. With slot words that begin in the middle of a page, an allocation of
/// 64 B in a new heap and its free need 6.3 ns instead of 7.5 (Zen 4).
const SLOTS_COLOUR: usize = TABLE_ALIGN / 2;

/// The shape of a heap, which is fixed when the heap is created. The layout depends on the shape
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// NUMA nodes, 1 to [`NODES_MAX`].
    pub(crate) nodes: u32,
    /// Usable pages per node.
    pub(crate) node_pages: u32,
    /// Cache records for one thread each, 1 to [`CACHES_MAX`].
    pub(crate) caches: u32,
}

impl Geometry {
    /// Whether every field is within its limits. A geometry that was read from a header may
    /// contain any value.
    pub(crate) const fn is_valid(&self) -> bool {
        let is_counted =
            self.nodes >= 1 && self.nodes as usize <= NODES_MAX && self.node_pages >= 1;
        let has_caches = self.caches >= 1 && self.caches <= CACHES_MAX;
        is_counted
            && has_caches
            && self.node_pages as usize <= DATA_MAX / PAGE
            && self.nodes as usize * self.node_stride() <= DATA_MAX
    }

    /// Cache records beyond [`Self::caches`]: one for each process and node. So a process always
    /// gets a record for its threads that have none, even if other processes hold all other
    /// records.
    pub(crate) const fn spare_caches(&self) -> u32 {
        PROCESSES_MAX * self.nodes
    }

    /// All cache records.
    pub(crate) const fn cache_records(&self) -> usize {
        (self.caches + self.spare_caches()) as usize
    }

    /// Bytes from the start of one node to the start of the next. It is a power of two, so that a
    /// shift of an offset gives its node.
    pub(crate) const fn node_stride(&self) -> usize {
        (self.node_pages as usize).next_power_of_two() * PAGE
    }

    /// The binary logarithm of [`Self::node_stride`].
    pub(crate) const fn node_shift(&self) -> u32 {
        self.node_stride().trailing_zeros()
    }

    /// Pages from the start of one node to the start of the next.
    pub(crate) const fn node_stride_pages(&self) -> usize {
        self.node_stride() / PAGE
    }

    /// Bytes of the data range.
    pub(crate) const fn data_bytes(&self) -> usize {
        self.nodes as usize * self.node_stride()
    }

    /// Pages of the data range.
    pub(crate) const fn pages(&self) -> usize {
        self.data_bytes() / PAGE
    }

    /// Slices of the data range.
    pub(crate) const fn slices(&self) -> usize {
        self.data_bytes() / SLICE
    }
}

/// Offsets in bytes from the start of the metadata region to each of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Process records: [`PROCESSES_MAX`] of [`PROCESS_RECORD_BYTES`] each.
    pub(crate) processes: usize,
    /// Tag names: [`TAGS_MAX`] of [`TAG_BYTES`] each.
    pub(crate) tags: usize,
    /// The nodes' hints: [`NODE_BYTES`] per node.
    pub(crate) nodes: usize,
    /// Page words, `u64` each.
    pub(crate) pages: usize,
    /// The time at which the upkeep first saw each page free, and a generation that changes when
    /// the page is used, in one `u32` each: a hint for giving idle pages back.
    pub(crate) page_times: usize,
    /// The free slices of each page, `u64` each: see [`crate::protocol::runs`].
    pub(crate) page_runs: usize,
    /// [`ORDERS`] + 1 bitmaps of [`bitmap_words`] words: for each order, the pages with a free
    /// run of this order; then the pages with idle memory.
    pub(crate) orders: usize,
    /// The free slices of each group of pages, `u64` each: [`group_words`] for each node.
    pub(crate) group_runs: usize,
    /// Bitmaps of the spans with free slots, one for each class. A span's bit is the bit of its
    /// first slice.
    pub(crate) partial: usize,
    /// Slice words, `u64` each.
    pub(crate) slices: usize,
    /// Hints: the number of free slots per span, `u32` each. The count for a span of `2^order`
    /// slices is in the array for that order, at index head >> order. There is one array per
    /// order, so that the counts of the few long spans need less memory than those of the short
    /// spans.
    pub(crate) span_free: [usize; ORDERS],
    /// Cache records: [`Geometry::cache_records`] of [`CACHE_RECORD_BYTES`] each; record `i` is
    /// cache `i + 1`.
    pub(crate) caches: usize,
    /// Slot words, `u16` each. Index `i` is the array for shift `6 + i`.
    pub(crate) slots: [usize; SHIFTS],
    /// One bit per [`RESERVE`] bytes of the tables before this table: whether these bytes have
    /// memory. Used only if memory for the metadata must be requested before a write.
    pub(crate) reserved: usize,
    /// Bytes of the whole region.
    pub(crate) bytes: usize,
}

impl Layout {
    /// The parts of the metadata that every heap touches: the tables that do not grow with the
    /// heap, the bitmaps of pages, and [`Self::reserved`], whose bits say which other parts may
    /// be touched.
    pub(crate) const fn first_parts(&self) -> [Range<usize>; 4] {
        [
            0..HEADER_BYTES,
            self.processes..self.pages,
            self.orders..self.partial,
            self.reserved..self.bytes,
        ]
    }

    /// The layout of a heap with this shape.
    pub(crate) const fn of(geometry: &Geometry) -> Self {
        let (pages, slices) = (geometry.pages(), geometry.slices());
        let processes = GAP_AT + GAP_BYTES;
        let tags = after(processes, PROCESSES_MAX as usize * PROCESS_RECORD_BYTES);
        let nodes = after(tags, TAGS_MAX as usize * TAG_BYTES);
        let page_words = after(nodes, geometry.nodes as usize * NODE_BYTES);
        let page_times = after(page_words, pages * 8);
        let page_runs = after(page_times, pages * 4);
        let orders = after(page_runs, pages * 8);
        let group_runs = after(orders, PAGE_BITMAPS * bitmap_words(pages) * 8);
        let groups = geometry.nodes as usize * group_words(geometry.node_stride_pages());
        let partial = after(group_runs, groups * 8);
        let slice_words = after(partial, CLASSES * bitmap_words(slices) * 8);
        let mut end = after(slice_words, slices * 8);
        let mut span_free = [0; ORDERS];
        let mut order = 0;
        while order < ORDERS {
            span_free[order] = end;
            end = after(end, (slices >> order) * 4);
            order += 1;
        }
        let caches = end;
        let mut end = after(caches, geometry.cache_records() * CACHE_RECORD_BYTES);
        let mut slots = [0; SHIFTS];
        let mut index = 0;
        while index < SHIFTS {
            slots[index] = end + SLOTS_COLOUR;
            end = after(slots[index], (geometry.data_bytes() >> (SHIFT_MIN as usize + index)) * 2);
            index += 1;
        }
        let reserved = end;
        let end = after(reserved, (reserved / RESERVE).div_ceil(64) * 8);
        Self {
            processes,
            tags,
            nodes,
            pages: page_words,
            page_times,
            page_runs,
            orders,
            group_runs,
            partial,
            slices: slice_words,
            span_free,
            caches,
            slots,
            reserved,
            bytes: end,
        }
    }
}

/// The start of the next table.
const fn after(start: usize, bytes: usize) -> usize {
    (start + bytes).next_multiple_of(TABLE_ALIGN)
}

const _: () = {
    assert!(SLICE.is_power_of_two() && PAGE.is_multiple_of(SLICE) && PAGE_SLICES == 32);
    assert!(ALIGN_MAX.is_multiple_of(PAGE));
    assert!(1 << (ORDERS - 1) == PAGE_SLICES);
    assert!(UNIT << (SHIFTS - 1) == crate::protocol::class::SLOT_SIZE_MAX);
    assert!(CACHE_RECORD_BYTES.is_multiple_of(4096));
    assert!(CACHES_MAX + PROCESSES_MAX * NODES_MAX as u32 == CACHE_ID_MAX);
    assert!(HEADER_BYTES <= GAP_AT && (GAP_AT + GAP_BYTES).is_multiple_of(TABLE_ALIGN));
    assert!(NAMESPACES_AT + NAMESPACES_MAX * size_of::<u64>() <= HEADER_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const SHAPES: [Geometry; 4] = [
        Geometry { nodes: 1, node_pages: 1, caches: 1 },
        Geometry { nodes: 1, node_pages: 32 << 10, caches: 4096 },
        Geometry { nodes: 3, node_pages: 1000, caches: 64 },
        Geometry { nodes: 8, node_pages: 16 << 10, caches: CACHES_MAX },
    ];

    #[test]
    fn tables_follow_each_other_without_overlap() {
        for geometry in SHAPES {
            assert!(geometry.is_valid(), "{geometry:?}");
            let layout = Layout::of(&geometry);
            let (pages, slices) = (geometry.pages(), geometry.slices());
            let mut tables = vec![
                (layout.processes, 128 * PROCESS_RECORD_BYTES),
                (layout.tags, 256 * TAG_BYTES),
                (layout.nodes, geometry.nodes as usize * NODE_BYTES),
                (layout.pages, pages * 8),
                (layout.page_times, pages * 4),
                (layout.page_runs, pages * 8),
                (layout.orders, PAGE_BITMAPS * bitmap_words(pages) * 8),
                (
                    layout.group_runs,
                    geometry.nodes as usize * group_words(geometry.node_stride_pages()) * 8,
                ),
                (layout.partial, CLASSES * bitmap_words(slices) * 8),
                (layout.slices, slices * 8),
            ];
            for (order, start) in layout.span_free.into_iter().enumerate() {
                tables.push((start, (slices >> order) * 4));
            }
            tables.push((layout.caches, geometry.cache_records() * CACHE_RECORD_BYTES));
            for (index, start) in layout.slots.into_iter().enumerate() {
                tables.push((start, (geometry.data_bytes() >> (6 + index)) * 2));
            }
            tables.push((layout.reserved, layout.reserved / RESERVE / 64 * 8));
            let mut end = GAP_AT + GAP_BYTES;
            for (start, bytes) in tables {
                let colour = if layout.slots.contains(&start) { SLOTS_COLOUR } else { 0 };
                let page = start - colour;
                assert!(page >= end && page < end + TABLE_ALIGN, "{geometry:?}: {start} {end}");
                assert!(page.is_multiple_of(TABLE_ALIGN));
                end = start + bytes;
            }
            assert!(layout.bytes >= end && layout.bytes < end + TABLE_ALIGN);
        }
    }

    #[test]
    fn invalid_geometry_is_refused() {
        let good = Geometry { nodes: 2, node_pages: 512, caches: 64 };
        assert!(good.is_valid());
        for bad in [
            Geometry { nodes: 0, ..good },
            Geometry { nodes: 9, ..good },
            Geometry { nodes: u32::MAX, ..good },
            Geometry { node_pages: 0, ..good },
            Geometry { node_pages: u32::MAX, ..good },
            Geometry { nodes: 8, node_pages: 128 << 10, ..good },
            Geometry { caches: 0, ..good },
            Geometry { caches: CACHES_MAX + 1, ..good },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }

    /// The metadata's addresses are at most a quarter of the data range, and only touched parts
    /// have memory.
    #[test]
    fn metadata_is_a_fraction_of_the_data() {
        let geometry = SHAPES[1];
        assert!(Layout::of(&geometry).bytes * 4 < geometry.data_bytes());
    }
}
