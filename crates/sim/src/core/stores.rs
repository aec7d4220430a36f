//! The store queue: stores and copies in the window. Younger loads are checked against it.

use super::touched::Touched;
use super::window::{self, PLACES};

/// How a load depends on the older stores and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// No older store touches the bytes that the load reads.
    Free,
    /// One older store provides all bytes that the load reads.
    Forward,
    /// The load must wait: for an address, for a value, or for a copy to complete.
    Wait,
}

/// One store or copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    /// The range that the store writes.
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Whether this is a copy, whose bytes are not in the processor.
    pub(super) is_copy: bool,
    /// Whether the address has been computed.
    pub(super) is_known: bool,
    /// Whether the stored value has been computed.
    pub(super) has_value: bool,
}

impl Store {
    /// A store without a computed address or value.
    #[inline]
    pub(super) fn new(touched: Touched, is_copy: bool) -> Self {
        let Touched { address, bytes, .. } = touched;
        Self { address, bytes, is_copy, is_known: false, has_value: false }
    }
}

/// The stores in program order, in a ring.
pub(super) struct StoreQueue {
    ring: Box<[Store; PLACES]>,
    mask: u64,
    first: u64,
    /// The addresses of all stores before this position are known.
    known_end: u64,
    /// The position of the next store.
    pub(super) end: u64,
}

impl StoreQueue {
    /// An empty queue with room for every instruction of a window, because each could be a copy.
    pub(super) fn new(window: u32) -> Self {
        Self {
            ring: window::places(Store::new(Touched::default(), false)),
            mask: window::mask(window),
            first: 0,
            known_end: 0,
            end: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, store: Store) {
        *self.at(self.end) = store;
        self.end += 1;
    }

    /// Removes the oldest store, which commits.
    pub(super) fn pop(&mut self) {
        self.first += 1;
    }

    /// Squashes the stores from `end` on.
    pub(super) fn squash(&mut self, end: u64) {
        self.end = end;
        self.known_end = self.known_end.min(end);
    }

    #[inline(always)]
    fn place(&self, place: u64) -> usize {
        (place & self.mask) as usize % PLACES
    }

    #[inline(always)]
    pub(super) fn at(&mut self, place: u64) -> &mut Store {
        &mut self.ring[self.place(place)]
    }

    /// Marks the address at this position as computed, or the copy there as complete.
    #[inline]
    pub(super) fn know(&mut self, place: u64) {
        self.at(place).is_known = true;
        while self.known_end < self.end && self.at(self.known_end).is_known {
            self.known_end += 1;
        }
    }

    /// How a load depends on the stores before `end`. As in SimpleScalar, a load waits until the
    /// addresses of all older stores are known.
    #[inline]
    pub(super) fn order(&self, end: u64, address: u64, bytes: u64) -> Order {
        if self.known_end < end {
            return Order::Wait;
        }
        for place in (self.first..end).rev() {
            let store = &self.ring[self.place(place)];
            let is_apart = store.bytes == 0
                || address.wrapping_sub(store.address) >= store.bytes
                    && store.address.wrapping_sub(address) >= bytes;
            if is_apart {
                continue;
            }
            let is_inside = address >= store.address
                && address.wrapping_add(bytes) <= store.address.wrapping_add(store.bytes);
            let is_there = store.has_value && !store.is_copy;
            return if is_inside && is_there { Order::Forward } else { Order::Wait };
        }
        Order::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(stores: &[(u64, u64, bool, bool)]) -> StoreQueue {
        let mut queue = StoreQueue::new(8);
        for &(address, bytes, is_known, has_value) in stores {
            let place = queue.end;
            queue.push(Store { address, bytes, is_copy: bytes > 8, is_known: false, has_value });
            if is_known {
                queue.know(place);
            }
        }
        queue
    }

    #[test]
    fn load_sees_youngest_older_store() {
        let stores = queue(&[(100, 8, true, true), (104, 4, true, false), (200, 8, true, true)]);
        assert_eq!(stores.order(3, 100, 4), Order::Forward);
        assert_eq!(stores.order(3, 104, 4), Order::Wait);
        assert_eq!(stores.order(1, 104, 4), Order::Forward, "only the first is older");
        assert_eq!(stores.order(3, 96, 8), Order::Wait, "half of it");
        assert_eq!(stores.order(3, 196, 4), Order::Free);
        assert_eq!(stores.order(3, 92, 8), Order::Free);
    }

    #[test]
    fn load_waits_for_unknown_address_and_for_copy() {
        let stores = queue(&[(204, 0, true, true)]);
        assert_eq!(stores.order(1, 200, 8), Order::Free, "a copy of nothing");
        let stores = queue(&[(100, 8, false, true), (300, 640, true, true), (200, 8, true, true)]);
        assert_eq!(stores.order(3, 200, 8), Order::Wait);
        assert_eq!(stores.order(3, 500, 8), Order::Wait);
        assert_eq!(stores.order(0, 500, 8), Order::Free);
        let mut stores = stores;
        stores.know(0);
        assert_eq!(stores.order(3, 200, 8), Order::Forward);
        assert_eq!(stores.order(3, 940, 8), Order::Free);
        stores.pop();
        assert_eq!(stores.order(3, 100, 8), Order::Free, "the first has committed");
        stores.squash(1);
        assert_eq!(stores.end, 1);
    }
}
