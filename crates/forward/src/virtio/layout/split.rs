//! The split ring.
//!
//! If both sides keep the order (VIRTIO_F_IN_ORDER), the device may publish only the last chain
//! of a batch, in the first chain's entry (section 2.7 of virtio 1.2). Chains are then taken in
//! the order in which they were made available, and entries are read only for their lengths.

use super::free::Free;
use super::{Broken, Buffer, NONE, Order};
use crate::pool::Segment;
use crate::ring::split::{Descriptor, NEXT, Split};

/// A descriptor that the device owns: its packet, and the descriptor that follows in its chain.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The packet, in the first descriptor of a chain.
    packet: u32,
    /// The next descriptor of the chain.
    next: u32,
}

const EMPTY: Slot = Slot { packet: NONE, next: NONE };

#[derive(Debug)]
pub(in crate::virtio) struct SplitRing {
    ring: Split,
    slots: Box<[Slot]>,
    /// Free descriptors.
    free: Free,
    next_available: u16,
    published: u16,
    next_used: u16,
    /// The device's index when it was last read.
    used: u16,
    outstanding: usize,
    order: Order,
    /// The oldest chain that the device owns, if it keeps the order.
    next_head: u16,
    /// The used entry of a batch: its last chain, and the bytes written to it.
    batch: Option<(u32, u32)>,
}

impl SplitRing {
    pub(in crate::virtio) fn new(ring: Split) -> Self {
        let size = ring.size();
        Self {
            ring,
            slots: vec![EMPTY; usize::from(size)].into(),
            free: Free::new(size),
            next_available: 0,
            published: 0,
            next_used: 0,
            used: 0,
            outstanding: 0,
            order: Order::Any,
            next_head: 0,
            batch: None,
        }
    }

    /// Sets the order that the device keeps from now on. No chain is outstanding yet.
    pub(in crate::virtio) fn begin(&mut self, order: Order) {
        debug_assert!(self.outstanding == 0 && self.next_used == 0);
        self.order = order;
    }

    pub(in crate::virtio) fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline]
    pub(in crate::virtio) fn free_count(&self) -> usize {
        self.free.count()
    }

    pub(in crate::virtio) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Restores the initial state; calls `free` with the packets that the device owned.
    pub(in crate::virtio) fn reset(&mut self, mut free: impl FnMut(u32)) {
        for slot in &mut self.slots {
            if slot.packet != NONE {
                free(slot.packet);
            }
            *slot = EMPTY;
        }
        self.free.reset();
        (self.next_available, self.published, self.next_used, self.used) = (0, 0, 0, 0);
        (self.outstanding, self.order, self.next_head, self.batch) = (0, Order::Any, 0, None);
        for index in 0..self.ring.size() {
            self.ring.set_descriptor(index, Descriptor::default());
            self.ring.put_available(index, 0);
            self.ring.put_used(index, 0, 0);
        }
        self.ring.publish_available(0);
        self.ring.publish_used(0);
        self.ring.set_driver_polls();
    }

    /// The number of used chains that were not taken yet.
    #[inline]
    fn ready(&self) -> u16 {
        self.used.wrapping_sub(self.next_used)
    }

    /// Reads the device's index, unless `wanted` used chains are already known.
    #[inline]
    pub(in crate::virtio) fn poll(&mut self, wanted: usize) -> Result<(), Broken> {
        if usize::from(self.ready()) < wanted {
            self.used = self.ring.used_index();
        }
        if usize::from(self.ready()) > self.outstanding { Err(Broken) } else { Ok(()) }
    }

    /// The packet of the used chain `ahead` chains after the next one, if that chain is known.
    #[inline]
    pub(in crate::virtio) fn peek(&self, ahead: u16) -> Option<u32> {
        if ahead >= self.ready() {
            return None;
        }
        let head = match self.order {
            Order::Any => self.ring.used(self.next_used.wrapping_add(ahead)).0,
            // Correct if none of the chains before it has several descriptors.
            _ => u32::from(self.next_head.wrapping_add(ahead) & (self.ring.size() - 1)),
        };
        self.slots.get(head as usize).map(|slot| slot.packet).filter(|packet| *packet != NONE)
    }

    /// Takes the next used chain: its packet, and the number of bytes that the device reports as
    /// written. `None` if no used chain is known.
    #[inline]
    pub(in crate::virtio) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        if self.ready() == 0 {
            return Ok(None);
        }
        let (head, written) = match self.order {
            Order::Any => self.ring.used(self.next_used),
            Order::Sent => (u32::from(self.next_head), 0),
            Order::Filled(whole) => self.next_of_batch(whole)?,
        };
        let slot = self.slots.get_mut(head as usize).ok_or(Broken)?;
        let (packet, mut next) = (slot.packet, slot.next);
        if packet == NONE {
            return Err(Broken);
        }
        *slot = EMPTY;
        self.next_used = self.next_used.wrapping_add(1);
        self.outstanding -= 1;
        self.free.put(head as u16);
        let mut last = head as u16;
        while next != NONE {
            let slot = &mut self.slots[next as usize];
            last = next as u16;
            next = slot.next;
            slot.next = NONE;
            self.free.put(last);
        }
        self.next_head = last.wrapping_add(1) & (self.ring.size() - 1);
        Ok(Some((packet, written)))
    }

    /// The next chain in order, and the bytes written to it: `whole` for each chain before the last
    /// of a batch.
    #[inline]
    fn next_of_batch(&mut self, whole: u32) -> Result<(u32, u32), Broken> {
        let head = u32::from(self.next_head);
        let (last, written) = match self.batch {
            Some(batch) => batch,
            None => self.ring.used(self.next_used),
        };
        if last == head {
            self.batch = None;
            return Ok((head, written));
        }
        if self.ready() == 1 {
            // The last chain of the batch is not among the published chains.
            return Err(Broken);
        }
        self.batch = Some((last, written));
        Ok((head, whole))
    }

    /// Makes a packet available: its first buffer, and the later ones. The ring must have free
    /// descriptors for all. The device sees it after [`SplitRing::publish`].
    #[inline]
    pub(in crate::virtio) fn make_available(
        &mut self,
        packet: u32,
        first: Buffer,
        rest: &[Segment],
    ) {
        let index = self.free.take();
        let Buffer { address, length, flags } = first;
        let mut descriptor = Descriptor { address, length, flags, next: 0 };
        if !rest.is_empty() {
            let next = self.chain(rest);
            descriptor.flags |= NEXT;
            descriptor.next = next;
            self.slots[usize::from(index)].next = u32::from(next);
        }
        self.ring.set_descriptor(index, descriptor);
        self.slots[usize::from(index)].packet = packet;
        self.ring.put_available(self.next_available, index);
        self.next_available = self.next_available.wrapping_add(1);
        self.outstanding += 1;
    }

    /// Sets the descriptors of a packet's later segments, and returns the index of the first one
    /// set. They follow the order of the free list, on which a device that keeps the order
    /// relies.
    #[cold]
    fn chain(&mut self, segments: &[Segment]) -> u16 {
        let first = self.free.take();
        let mut index = first;
        for (number, segment) in segments.iter().enumerate() {
            let is_last = number + 1 == segments.len();
            let next = if is_last { 0 } else { self.free.take() };
            let flags = if is_last { 0 } else { NEXT };
            let address = segment.pointer.as_ptr().expose_provenance() as u64;
            let length = segment.length as u32;
            self.ring.set_descriptor(index, Descriptor { address, length, flags, next });
            self.slots[usize::from(index)].next = if is_last { NONE } else { next.into() };
            index = next;
        }
        first
    }

    /// Publishes the available chains to the device, and returns whether there were any new ones.
    pub(in crate::virtio) fn publish(&mut self) -> bool {
        let is_new = self.next_available != self.published;
        if is_new {
            self.published = self.next_available;
            self.ring.publish_available(self.next_available);
        }
        is_new
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(in crate::virtio) fn device_wants_no_calls(&self) -> bool {
        self.ring.device_wants_no_calls()
    }
}
