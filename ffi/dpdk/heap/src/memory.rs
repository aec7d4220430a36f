//! Where DPDK's own memory is: for each socket, the range of addresses that its page lists span.

use core::ffi::{c_int, c_void};

use crate::dpdk::{Functions, MemsegList};

/// Sockets that the drop-in serves; the memory of further ones stays DPDK's.
pub(crate) const SOCKETS_MAX: usize = 8;

/// What a heap's addresses begin at a multiple of, in bytes, so that every alignment of a block is
/// one of its offset too.
pub(crate) const BASE_ALIGN: usize = 1 << 30;

/// The longest range of one heap in bytes: what 32 bits count of 64-byte units.
const RANGE_MAX: usize = 1 << 38;

/// One socket's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketRange {
    /// DPDK's number of the socket.
    pub(crate) socket: c_int,
    /// The first address, a multiple of [`BASE_ALIGN`].
    pub(crate) base: usize,
    /// How many bytes, a multiple of [`BASE_ALIGN`].
    pub(crate) bytes: usize,
}

/// The ranges of all sockets with memory of their own.
#[derive(Debug, Default)]
pub(crate) struct SocketRanges {
    ranges: Vec<SocketRange>,
}

impl SocketRanges {
    /// Asks DPDK, whose memory must be initialised.
    pub(crate) fn ask(functions: &Functions) -> Vec<SocketRange> {
        let mut found = Self::default();
        // SAFETY: the callback takes the pointer for what it is, a `SocketRanges` that nobody else
        // uses during the walk.
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
    /// The same range from a multiple of [`BASE_ALIGN`] on, and cut where a heap ends at the
    /// latest: what DPDK has behind that, it serves itself.
    fn within_limits(&self) -> Self {
        let base = self.base & !(BASE_ALIGN - 1);
        let bytes = (self.base + self.bytes - base).next_multiple_of(BASE_ALIGN).min(RANGE_MAX);
        Self { socket: self.socket, base, bytes }
    }
}

extern "C" fn collect(list: *const MemsegList, found: *mut c_void) -> c_int {
    // SAFETY: DPDK passes a list of its own, which lives as long as DPDK does.
    let list = unsafe { &*list };
    // SAFETY: `ask` passes a `SocketRanges` that nobody else refers to during the walk.
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
    fn lists_of_one_socket_make_one_range() {
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
    fn a_range_longer_than_a_heap_is_cut() {
        let mut found = SocketRanges::default();
        found.add(&list(0, 4 * GIB, RANGE_MAX, 0));
        found.add(&list(0, 4 * GIB + RANGE_MAX, GIB, 0));
        assert_eq!(found.ranges[0].within_limits().bytes, RANGE_MAX);
    }
}
