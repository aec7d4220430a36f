//! The layout of a ring, from the driver's side: the chains that the device owns, and the chains
//! that it used. The device's values are checked against the driver's own record.
//!
//! From the bottom up:
//!
//! - `free`: the free descriptors of either layout;
//! - `split`: the split ring;
//! - `packed`: the packed ring.

mod free;
mod packed;
mod split;

use std::ptr::NonNull;

use crate::pool::Segment;
use crate::ring::packed::{self as packed_ring, Packed};
use crate::ring::split::{self as split_ring, Split};
use packed::PackedRing;
use split::SplitRing;

/// The device violated the protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// No packet, or no descriptor.
pub(super) const NONE: u32 = u32::MAX;

/// The order in which the device uses chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Any order: the device names each chain.
    Any,
    /// The order in which chains were made available. The device reads the chains.
    Sent,
    /// The order of `Sent`; the device fills chains. For a batch of full chains, each of this
    /// many bytes, the device may name only the last.
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

/// Applies one expression to either layout.
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
    /// 16, and can be read and written as long as this value is used.
    pub(super) unsafe fn new(areas: [NonNull<u8>; 3], size: u32, is_packed: bool) -> Self {
        if is_packed {
            // SAFETY: the caller's promise.
            Self::Packed(PackedRing::new(unsafe { Packed::new(areas, size) }))
        } else {
            // SAFETY: the caller's promise.
            Self::Split(SplitRing::new(unsafe { Split::new(areas, size) }))
        }
    }

    /// Bytes of the three areas.
    pub(super) fn area_bytes(size: u32, is_packed: bool) -> [u64; 3] {
        if is_packed { packed_ring::area_bytes(size) } else { split_ring::area_bytes(size) }
    }

    /// Whether the ring is packed.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Descriptors of the ring.
    #[inline]
    pub(super) fn size(&self) -> u16 {
        either!(self, ring => ring.size())
    }

    /// Free descriptors.
    #[inline]
    pub(super) fn free_count(&self) -> usize {
        either!(self, ring => ring.free_count())
    }

    /// Packets that the device owns.
    pub(super) fn outstanding(&self) -> usize {
        either!(self, ring => ring.outstanding())
    }

    /// Sets the order that the device keeps from now on. No chain is outstanding yet.
    pub(super) fn begin(&mut self, order: Order) {
        either!(self, ring => ring.begin(order));
    }

    /// Restores the initial state; calls `free` with the packets that the device owned.
    pub(super) fn reset(&mut self, free: impl FnMut(u32)) {
        either!(self, ring => ring.reset(free));
    }

    /// Reads the device's progress, unless `wanted` used chains are already known.
    #[inline]
    pub(super) fn poll(&mut self, wanted: usize) -> Result<(), Broken> {
        match self {
            Self::Split(ring) => ring.poll(wanted),
            // Each descriptor of a packed ring holds its own state.
            Self::Packed(_) => Ok(()),
        }
    }

    /// The packet of the used chain `ahead` chains after the next one, if each chain before it
    /// has one descriptor.
    #[inline]
    pub(super) fn peek(&self, ahead: u16) -> Option<u32> {
        either!(self, ring => ring.peek(ahead))
    }

    /// Takes the next used chain: its packet, and the number of bytes that the device reports as
    /// written. `None` if no used chain is known.
    #[inline]
    pub(super) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        either!(self, ring => ring.take_used())
    }

    /// Makes a packet available: its first buffer, and the later ones. The ring must have free
    /// descriptors for all. The device sees it after [`Ring::publish`].
    #[inline]
    pub(super) fn make_available(&mut self, packet: u32, first: Buffer, rest: &[Segment]) {
        either!(self, ring => ring.make_available(packet, first, rest));
    }

    /// Publishes the available chains to the device, and returns whether there were any new ones.
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
    use super::*;
    use crate::ring::packed::Location;
    use crate::ring::split::WRITE;

    const SIZE: u16 = 8;
    const WHOLE: u32 = 2060;

    fn areas(is_packed: bool) -> [NonNull<u8>; 3] {
        Ring::area_bytes(SIZE.into(), is_packed).map(|bytes| {
            let words = vec![0_u64; (bytes as usize).next_multiple_of(16) / 8 + 2].leak();
            let at = words.as_mut_ptr().cast::<u8>();
            // SAFETY: the allocation has 16 bytes more than the areas need.
            let at = unsafe { at.add(at.align_offset(16)) };
            NonNull::new(at).unwrap()
        })
    }

    /// A ring, and the device's side of it.
    struct Both {
        ring: Ring,
        split: Option<Split>,
        packed: Option<Packed>,
        /// The number of chains that were published as used, and the location of the next chain.
        shown: u16,
        location: Location,
    }

    impl Both {
        fn new(is_packed: bool, order: Order) -> Self {
            let areas = areas(is_packed);
            // SAFETY: the areas have the required length, and are never freed.
            let mut ring = unsafe { Ring::new(areas, SIZE.into(), is_packed) };
            // SAFETY: as above, for each of the two.
            let split = (!is_packed).then(|| unsafe { Split::new(areas, SIZE.into()) });
            // SAFETY: as above.
            let packed = is_packed.then(|| unsafe { Packed::new(areas, SIZE.into()) });
            ring.reset(|packet| panic!("{packet} was never made available"));
            ring.begin(order);
            Self { ring, split, packed, shown: 0, location: Location::START }
        }

        fn make_available(&mut self, packet: u32, rest: usize) {
            let bytes = vec![0_u8; 64].leak();
            let pointer = NonNull::from(bytes).cast();
            let rest = vec![Segment { pointer, length: 9 }; rest];
            self.ring.make_available(
                packet,
                Buffer { address: 1, length: WHOLE, flags: WRITE },
                &rest,
            );
            self.ring.publish();
        }

        /// Publishes `chains` chains of `descriptors` descriptors as used, through the id of the
        /// last.
        fn show(&mut self, id: u16, written: u32, chains: u16, descriptors: u16) {
            if let Some(split) = &self.split {
                split.put_used(self.shown, id, written);
                self.shown = self.shown.wrapping_add(chains);
                split.publish_used(self.shown);
            }
            if let Some(packed) = &self.packed {
                packed.put_used(self.location, id, written);
                self.location = self.location.plus(descriptors, SIZE);
            }
        }

        fn take(&mut self) -> Result<Option<(u32, u32)>, Broken> {
            self.ring.poll(1)?;
            self.ring.take_used()
        }
    }

    #[test]
    fn last_chain_completes_ordered_batch() {
        for is_packed in [false, true] {
            for order in [Order::Filled(WHOLE), Order::Sent] {
                let mut both = Both::new(is_packed, order);
                let whole = if order == Order::Sent { 0 } else { WHOLE };
                let mut id = 0;
                // Rounds of three chains, of four descriptors in all, in a ring of eight.
                for round in 0..50 {
                    let first = 3 * round;
                    both.make_available(first, 0);
                    both.make_available(first + 1, usize::from(order == Order::Sent));
                    both.make_available(first + 2, 0);
                    let count = if order == Order::Sent { 4 } else { 3 };
                    // Split rings identify a chain by its first descriptor, packed ones by a
                    // number.
                    let last = if is_packed { id + 2 } else { id + count - 1 } % SIZE;
                    both.show(last, 77, 3, count);
                    id += if is_packed { 3 } else { count };
                    both.ring.poll(1).unwrap();
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
    fn single_ordered_chains_keep_their_lengths() {
        for is_packed in [false, true] {
            let mut both = Both::new(is_packed, Order::Filled(WHOLE));
            for round in 0..50 {
                both.make_available(round, 0);
                both.show(round as u16 % SIZE, 100 + round, 1, 1);
                assert_eq!(both.take().unwrap(), Some((round, 100 + round)));
            }
        }
    }

    #[test]
    fn batch_with_unknown_end_breaks_ring_and_loses_no_packet() {
        for is_packed in [false, true] {
            for id in [3, 7, 8, 9, u16::MAX] {
                let mut both = Both::new(is_packed, Order::Filled(WHOLE));
                (0..3).for_each(|packet| both.make_available(packet, 0));
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
    fn descriptors_of_a_chain_are_consecutive() {
        let mut both = Both::new(false, Order::Sent);
        for round in 0..20 {
            both.make_available(round, 2);
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
