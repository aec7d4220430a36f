//! The address ranges of DPDK's own memory: for each socket, the range that its page lists span.

use core::ffi::{c_int, c_void};

use crate::dpdk::{Functions, MemsegList};

/// The largest number of sockets that the drop-in serves. DPDK serves the memory of further
/// sockets.
pub(crate) const SOCKETS_MAX: usize = 8;

/// The alignment of a heap's first address, in bytes, so that every alignment of a block is also an
/// alignment of its offset.
pub(crate) const BASE_ALIGN: usize = 1 << 30;

/// The longest range of one heap in bytes: 2^32 units of 64 bytes.
const RANGE_MAX: usize = 1 << 38;

/// The address range of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketRange {
    /// DPDK's number of the socket.
    pub(crate) socket: c_int,
    /// The first address, a multiple of [`BASE_ALIGN`].
    pub(crate) base: usize,
    /// The number of bytes, a multiple of [`BASE_ALIGN`].
    pub(crate) bytes: usize,
}

/// The ranges of all sockets that have memory.
#[derive(Debug, Default)]
pub(crate) struct SocketRanges {
    ranges: Vec<SocketRange>,
}

impl SocketRanges {
    /// Asks DPDK for the ranges. DPDK's memory must be initialised.
    pub(crate) fn ask(functions: &Functions) -> Vec<SocketRange> {
        let mut found = Self::default();
        // SAFETY: the callback casts the pointer back to a `SocketRanges`, which nothing else uses
        // during the walk.
        unsafe { (functions.rte_memseg_list_walk)(collect, (&raw mut found).cast()) };
        found.ranges.truncate(SOCKETS_MAX);
        found.ranges.iter().map(SocketRange::within_limits).collect()
    }

    fn add(&mut self, list: &MemsegList) {
        if list.is_external != 0 || list.bytes == 0 || list.base == 0 {
            return;
        }
        let (start, end) = (list.base, list.base.saturating_add(list.bytes));
        match self.ranges.iter_mut().find(|range| range.socket == list.socket) {
            Some(range) => {
                let last = end.max(range.base + range.bytes);
                range.base = range.base.min(start);
                range.bytes = last - range.base;
            }
            None => {
                self.ranges.push(SocketRange {
                    socket: list.socket,
                    base: start,
                    bytes: end - start,
                });
            }
        }
    }
}

impl SocketRange {
    /// The same range from a multiple of [`BASE_ALIGN`] on, cut at the longest range of a heap.
    /// DPDK itself serves its memory behind that range.
    fn within_limits(&self) -> Self {
        let base = self.base & !(BASE_ALIGN - 1);
        let bytes = (self.base + self.bytes - base).next_multiple_of(BASE_ALIGN).min(RANGE_MAX);
        Self { socket: self.socket, base, bytes }
    }

    /// Whether an address lies in the range.
    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }
}

extern "C" fn collect(list: *const MemsegList, found: *mut c_void) -> c_int {
    // SAFETY: DPDK passes one of its lists, which live as long as DPDK.
    let list = unsafe { &*list };
    // SAFETY: `ask` passes a `SocketRanges` that nothing else refers to during the walk.
    let found = unsafe { &mut *found.cast::<SocketRanges>() };
    found.add(list);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn list(socket: c_int, base: usize, bytes: usize, is_external: u32) -> MemsegList {
        // SAFETY: every field of the structure is an integer, for which zero is a value.
        let mut list: MemsegList = unsafe { core::mem::zeroed() };
        (list.socket, list.base, list.bytes, list.is_external) = (socket, base, bytes, is_external);
        list
    }

    #[test]
    fn ranges_join_lists_of_one_socket() {
        let mut found = SocketRanges::default();
        for (socket, base, is_external) in [(0, 9, 0), (1, 25, 0), (0, 5, 0), (0, 100, 1)] {
            found.add(&list(socket, base * GIB + (2 << 20), GIB, is_external));
        }
        let ranges: Vec<_> = found.ranges.iter().map(SocketRange::within_limits).collect();
        assert_eq!(
            ranges,
            [
                SocketRange { socket: 0, base: 5 * GIB, bytes: 6 * GIB },
                SocketRange { socket: 1, base: 25 * GIB, bytes: 2 * GIB },
            ]
        );
    }

    #[test]
    fn range_is_cut_at_longest_heap() {
        let mut found = SocketRanges::default();
        found.add(&list(0, 4 * GIB, RANGE_MAX, 0));
        found.add(&list(0, 4 * GIB + RANGE_MAX, GIB, 0));
        assert_eq!(found.ranges[0].within_limits().bytes, RANGE_MAX);
    }
}
