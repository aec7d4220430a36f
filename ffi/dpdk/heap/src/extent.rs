//! Extents: blocks of DPDK's own heap, counted in pages of the heaps'.

use core::ffi::c_int;

use haul_heap::{EXTENT_BYTES, EXTENT_STEP};

/// An extent: a block of DPDK's own heap that is ours to cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) socket: c_int,
    /// A multiple of [`PAGE`].
    pub(crate) address: usize,
    /// 1 to [`EXTENT_PAGES_MAX`].
    pub(crate) pages: usize,
    /// Where DPDK's block begins: in the first page, or late in the page before.
    pub(crate) block: usize,
}

/// What extents are counted in, in bytes: the heap's page.
pub(crate) const PAGE: usize = EXTENT_BYTES;

/// What DPDK has before each block, in bytes (MALLOC_ELEM_HEADER_LEN: two cache lines of 64 bytes;
/// a build with longer ones, or with room behind blocks, makes blocks that don't fit and are given
/// back).
pub(crate) const HEADER: usize = 128;

/// Pages of one extent at most: the bits of a word.
pub(crate) const EXTENT_PAGES_MAX: usize = 64;

impl Extent {
    pub(crate) fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// The pages of a block that is as long as `pages` pages but for DPDK's header. Of the first
    /// one the heap has the slices behind the block's start; where that leaves none, it is left
    /// out.
    pub(crate) fn of(socket: c_int, block: usize, pages: usize) -> Self {
        let first = block & !(PAGE - 1);
        let is_lost = block - first > PAGE - EXTENT_STEP;
        let address = if is_lost { first + PAGE } else { first };
        Self { socket, address, pages: pages - usize::from(is_lost), block }
    }

    /// Bytes at the start that are not the heap's, a multiple of [`EXTENT_STEP`].
    pub(crate) fn kept(&self) -> usize {
        self.block.saturating_sub(self.address).next_multiple_of(EXTENT_STEP)
    }

    /// Some of its pages.
    pub(crate) fn part(&self, first: usize, pages: usize) -> Self {
        let address = self.address + first * PAGE;
        Self { address, pages, block: self.block.min(address + PAGE), ..*self }
    }

    /// What DPDK counts as allocated for it.
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

/// The lowest `count` set bits in a row.
pub(crate) fn find_run(bits: u64, count: usize) -> Option<u64> {
    // The usual answer first: most extents have nothing idle.
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
    fn a_block_that_begins_anywhere_has_its_pages() {
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
