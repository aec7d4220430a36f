//! Extents: blocks of DPDK's own heap, divided into pages for the heaps.

use core::ffi::c_int;

use haul_heap::{EXTENT_BYTES, EXTENT_STEP};

/// An extent: a block of DPDK's own heap, which the heaps divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) socket: c_int,
    /// A multiple of [`PAGE`].
    pub(crate) address: usize,
    /// 1 to [`EXTENT_PAGES_MAX`].
    pub(crate) pages: usize,
    /// The start of DPDK's block, in the first page or near the end of the page before.
    pub(crate) block: usize,
}

/// The unit of extents in bytes: the heap's page.
pub(crate) const PAGE: usize = EXTENT_BYTES;

/// The header of DPDK before each block, in bytes (MALLOC_ELEM_HEADER_LEN: two cache lines of 64
/// bytes). A build with longer headers, or with trailers, makes blocks that do not fit and are
/// freed.
pub(crate) const HEADER: usize = 128;

/// The largest number of pages per extent: the bits of a word.
pub(crate) const EXTENT_PAGES_MAX: usize = 64;

impl Extent {
    pub(crate) fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// The extent of a block that has the size of `pages` pages without DPDK's header. The heap
    /// uses the slices of the first page that begin after the start of the block. If there are no
    /// such slices, the extent begins with the next page.
    pub(crate) fn of(socket: c_int, block: usize, pages: usize) -> Self {
        let first = block & !(PAGE - 1);
        let is_lost = block - first > PAGE - EXTENT_STEP;
        let address = if is_lost { first + PAGE } else { first };
        Self { socket, address, pages: pages - usize::from(is_lost), block }
    }

    /// The number of bytes at the start that the heap must not use, a multiple of
    /// [`EXTENT_STEP`].
    pub(crate) fn kept(&self) -> usize {
        self.block.saturating_sub(self.address).next_multiple_of(EXTENT_STEP)
    }

    /// Some pages of the extent, as a separate extent.
    pub(crate) fn part(&self, first: usize, pages: usize) -> Self {
        let address = self.address + first * PAGE;
        Self { address, pages, block: self.block.min(address + PAGE), ..*self }
    }

    /// The bytes that DPDK counts as allocated for the extent.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.bytes() + if self.block < self.address { PAGE } else { 0 }
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.address) < self.bytes()
    }
}

/// The lowest `count` bits.
pub(crate) fn mask(count: usize) -> u64 {
    u64::MAX >> (64 - count.clamp(1, 64))
}

/// The lowest run of `count` set bits.
pub(crate) fn find_run(bits: u64, count: usize) -> Option<u64> {
    // The usual case is checked first: most extents have no idle page.
    if count == 0 || (bits.count_ones() as usize) < count {
        return None;
    }
    let run = mask(count);
    (0..=EXTENT_PAGES_MAX - count).map(|first| run << first).find(|run| bits & run == *run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_has_pages_for_any_start_of_block() {
        let page = 8 * PAGE;
        let whole = Extent::of(0, page + HEADER, 4);
        assert_eq!((whole.address, whole.pages, whole.kept()), (page, 4, EXTENT_STEP));
        let middle = Extent::of(0, page + 5 * EXTENT_STEP + 64, 4);
        assert_eq!((middle.address, middle.pages, middle.kept()), (page, 4, 6 * EXTENT_STEP));
        assert!(middle.address + middle.bytes() <= middle.block + 4 * PAGE - HEADER);
        let late = Extent::of(0, page + PAGE - EXTENT_STEP + 64, 4);
        assert_eq!((late.address, late.pages, late.kept()), (page + PAGE, 3, 0));
        assert_eq!([whole, middle, late].map(|each| each.cost_bytes()), [4 * PAGE; 3]);
        assert_eq!(whole.part(1, 2).kept(), 0);
        assert_eq!(middle.part(0, 2).kept(), 6 * EXTENT_STEP);
    }
}
