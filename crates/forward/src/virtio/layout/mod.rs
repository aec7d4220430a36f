//! How a ring is laid out, from the driver's side: what was given to the device, and what it gave
//! back. What it says is checked against what was given.
//!
//! From the bottom up:
//!
//! - `free`: the descriptors that are free, of either;
//! - `split`: the split ring;
//! - `packed`: the packed ring.

mod free;
mod packed;
mod split;

use std::ptr::NonNull;

use super::super::pool::Segment;
use super::super::ring::packed::{self as packed_ring, Packed};
use super::super::ring::split::{self as split_ring, Split};
use packed::PackedRing;
use split::SplitRing;

/// The device said what cannot be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// No packet, or no descriptor.
pub(super) const NONE: u32 = u32::MAX;

/// In which order the device gives chains back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// In any: each is named.
    Any,
    /// In that in which they were given, after they were read.
    Sent,
    /// The same, after they were filled; of a batch of whole ones, which have so many bytes, it may
    /// name the last alone.
    Filled(u32),
}

/// The first buffer of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
}

/// A ring of either layout.
#[derive(Debug)]
pub(super) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

/// Does the same with either.
macro_rules! either {
    ($ring:expr, $it:ident => $act:expr) => {
        match $ring {
            Ring::Split($it) => $act,
            Ring::Packed($it) => $act,
        }
    };
}

impl Ring {
    /// A ring over its three areas.
    ///
    /// # Safety
    /// `size` is a power of two up to 32,768; the areas have [`Ring::area_bytes`], are aligned to
    /// 16, can be read and written, and stay so as long as this value is used.
    pub(super) unsafe fn new(areas: [NonNull<u8>; 3], size: u32, is_packed: bool) -> Self {
        if is_packed {
            // SAFETY: the caller's promise.
            Self::Packed(PackedRing::new(unsafe { Packed::new(areas, size) }))
        } else {
            // SAFETY: the caller's promise.
            Self::Split(SplitRing::new(unsafe { Split::new(areas, size) }))
        }
    }

    /// Bytes of the areas.
    pub(super) fn area_bytes(size: u32, is_packed: bool) -> [u64; 3] {
        if is_packed { packed_ring::area_bytes(size) } else { split_ring::area_bytes(size) }
    }

    /// Whether it is a packed one.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Descriptors of the ring.
    #[inline]
    pub(super) fn size(&self) -> u16 {
        either!(self, ring => ring.size())
    }

    /// How many of them the device has not.
    #[inline]
    pub(super) fn free_count(&self) -> usize {
        either!(self, ring => ring.free_count())
    }

    /// Packets that the device has.
    pub(super) fn outstanding(&self) -> usize {
        either!(self, ring => ring.outstanding())
    }

    /// The device keeps this order from now on. Nothing was given yet.
    pub(super) fn begin(&mut self, order: Order) {
        either!(self, ring => ring.begin(order));
    }

    /// As it was when new; calls `give` with the packets that the device had.
    pub(super) fn reset(&mut self, give: impl FnMut(u32)) {
        either!(self, ring => ring.reset(give));
    }

    /// Looks how far the device came, as far as so many chains are concerned.
    #[inline]
    pub(super) fn look(&mut self, wanted: usize) -> Result<(), Broken> {
        match self {
            Self::Split(ring) => ring.look(wanted),
            // Each descriptor says it itself.
            Self::Packed(_) => Ok(()),
        }
    }

    /// The packet of a used chain that comes `ahead` chains of one descriptor later.
    #[inline]
    pub(super) fn peek(&self, ahead: u16) -> Option<u32> {
        either!(self, ring => ring.peek(ahead))
    }

    /// The packet of the chain that the device used next, and how many bytes it says that it
    /// wrote; `None` where there is none, as far as was looked.
    #[inline]
    pub(super) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        either!(self, ring => ring.take_used())
    }

    /// Puts a packet into the ring: its first buffer, and those that follow. There are free
    /// descriptors for all. Not seen before [`Ring::publish`].
    #[inline]
    pub(super) fn give(&mut self, packet: u32, first: Buffer, rest: &[Segment]) {
        either!(self, ring => ring.give(packet, first, rest));
    }

    /// Shows the device what was given, and says whether it was anything.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        either!(self, ring => ring.publish())
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(super) fn device_wants_no_calls(&self) -> bool {
        either!(self, ring => ring.device_wants_no_calls())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ring::packed::Place;
    use super::super::super::ring::split::WRITE;
    use super::*;

    const SIZE: u16 = 8;
    const WHOLE: u32 = 2060;

    fn areas(is_packed: bool) -> [NonNull<u8>; 3] {
        Ring::area_bytes(SIZE.into(), is_packed).map(|bytes| {
            let words = vec![0_u64; (bytes as usize).next_multiple_of(16) / 8 + 2].leak();
            let at = words.as_mut_ptr().cast::<u8>();
            // SAFETY: there are 16 bytes more than are asked for.
            let at = unsafe { at.add(at.align_offset(16)) };
            NonNull::new(at).unwrap()
        })
    }

    /// A ring, and the device's side of it.
    struct Both {
        ring: Ring,
        split: Option<Split>,
        packed: Option<Packed>,
        /// Chains that were shown as used, and where the next one is.
        shown: u16,
        place: Place,
    }

    impl Both {
        fn new(is_packed: bool, order: Order) -> Self {
            let areas = areas(is_packed);
            // SAFETY: the areas are as long as is asked for, and never freed.
            let mut ring = unsafe { Ring::new(areas, SIZE.into(), is_packed) };
            // SAFETY: as above, for each of the two.
            let split = (!is_packed).then(|| unsafe { Split::new(areas, SIZE.into()) });
            // SAFETY: as above.
            let packed = is_packed.then(|| unsafe { Packed::new(areas, SIZE.into()) });
            ring.reset(|packet| panic!("{packet} was given by nobody"));
            ring.begin(order);
            Self { ring, split, packed, shown: 0, place: Place::START }
        }

        fn give(&mut self, packet: u32, rest: usize) {
            let bytes = vec![0_u8; 64].leak();
            let pointer = NonNull::from(bytes).cast();
            let rest = vec![Segment { pointer, length: 9 }; rest];
            self.ring.give(packet, Buffer { address: 1, length: WHOLE, flags: WRITE }, &rest);
            self.ring.publish();
        }

        /// The device shows `chains` as used, of so many descriptors, by the id of the last.
        fn show(&mut self, id: u16, written: u32, chains: u16, descriptors: u16) {
            if let Some(split) = &self.split {
                split.put_used(self.shown, id, written);
                self.shown = self.shown.wrapping_add(chains);
                split.publish_used(self.shown);
            }
            if let Some(packed) = &self.packed {
                packed.put_used(self.place, id, written);
                self.place = self.place.plus(descriptors, SIZE);
            }
        }

        fn take(&mut self) -> Result<Option<(u32, u32)>, Broken> {
            self.ring.look(1)?;
            self.ring.take_used()
        }
    }

    #[test]
    fn of_a_batch_in_order_the_last_is_enough() {
        for is_packed in [false, true] {
            for order in [Order::Filled(WHOLE), Order::Sent] {
                let mut both = Both::new(is_packed, order);
                let whole = if order == Order::Sent { 0 } else { WHOLE };
                let mut id = 0;
                // Rounds of three chains, of four descriptors in all, in a ring of eight.
                for round in 0..50 {
                    let first = 3 * round;
                    both.give(first, 0);
                    both.give(first + 1, usize::from(order == Order::Sent));
                    both.give(first + 2, 0);
                    let count = if order == Order::Sent { 4 } else { 3 };
                    // Split rings know a chain by its first descriptor, packed ones by a number.
                    let last = if is_packed { id + 2 } else { id + count - 1 } % SIZE;
                    both.show(last, 77, 3, count);
                    id += if is_packed { 3 } else { count };
                    both.ring.look(1).unwrap();
                    assert_eq!(both.ring.peek(0), Some(first));
                    for (packet, written) in [(first, whole), (first + 1, whole)] {
                        assert_eq!(both.take().unwrap(), Some((packet, written)), "{order:?}");
                    }
                    let written = if order == Order::Sent && !is_packed { 0 } else { 77 };
                    assert_eq!(both.take().unwrap(), Some((first + 2, written)), "{order:?}");
                    assert_eq!(both.take().unwrap(), None);
                    assert_eq!((both.ring.outstanding(), both.ring.free_count()), (0, 8));
                }
            }
        }
    }

    #[test]
    fn one_by_one_in_order_lengths_are_those_of_each() {
        for is_packed in [false, true] {
            let mut both = Both::new(is_packed, Order::Filled(WHOLE));
            for round in 0..50 {
                both.give(round, 0);
                both.show(round as u16 % SIZE, 100 + round, 1, 1);
                assert_eq!(both.take().unwrap(), Some((round, 100 + round)));
            }
        }
    }

    #[test]
    fn a_batch_that_ends_with_nobody_breaks_the_ring_and_loses_no_packet() {
        for is_packed in [false, true] {
            for id in [3, 7, 8, 9, u16::MAX] {
                let mut both = Both::new(is_packed, Order::Filled(WHOLE));
                (0..3).for_each(|packet| both.give(packet, 0));
                both.show(id, 77, 2, 2);
                let mut taken = Vec::new();
                let broken = loop {
                    match both.take() {
                        Ok(Some((packet, _))) => taken.push(packet),
                        Ok(None) => break false,
                        Err(Broken) => break true,
                    }
                };
                assert!(broken, "{id}, packed {is_packed}: {taken:?}");
                both.ring.reset(|packet| taken.push(packet));
                assert_eq!(taken, [0, 1, 2], "{id}, packed {is_packed}");
            }
        }
    }

    #[test]
    fn descriptors_of_a_chain_follow_each_other_in_the_ring() {
        let mut both = Both::new(false, Order::Sent);
        for round in 0..20 {
            both.give(round, 2);
            let split = both.split.as_ref().unwrap();
            let head = split.head(round as u16);
            assert_eq!(head, 3 * round as u16 % SIZE);
            let mut next = head;
            for _ in 0..2 {
                next = split.descriptor(next).next;
            }
            assert_eq!(next, (head + 2) % SIZE);
            both.show(head, 0, 1, 3);
            assert_eq!(both.take().unwrap(), Some((round, 0)));
        }
    }
}
