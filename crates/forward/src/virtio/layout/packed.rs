//! The packed ring. A chain uses consecutive descriptors and one id. The device writes this id to
//! the location of the next used descriptor.
//!
//! If both sides keep the order (VIRTIO_F_IN_ORDER), ids are consecutive, and the device may
//! publish only the last chain of a batch, in the first chain's descriptor (section 2.8 of virtio
//! 1.2).

use super::free::Free;
use super::{Broken, Buffer, NONE, Order};
use crate::pool::Segment;
use crate::ring::packed::{Location, Packed};
use crate::ring::split::NEXT;

/// The chain that belongs to an id that the device owns.
#[derive(Clone, Copy, Debug)]
struct Slot {
    packet: u32,
    /// The number of descriptors in the chain.
    count: u16,
}

const EMPTY: Slot = Slot { packet: NONE, count: 0 };

#[derive(Debug)]
pub(in crate::virtio) struct PackedRing {
    ring: Packed,
    slots: Box<[Slot]>,
    /// Free ids.
    ids: Free,
    /// The number of free descriptors.
    free_count: usize,
    next_available: Location,
    next_used: Location,
    /// The first unpublished descriptor, which is published last.
    held: Option<(Location, u16, u32, u16)>,
    outstanding: usize,
    order: Order,
    /// The oldest id that the device owns, if it keeps the order.
    next_id: u16,
    /// The used descriptor of a batch: the id of its last chain, and the bytes written to it.
    batch: Option<(u16, u32)>,
}

impl PackedRing {
    pub(in crate::virtio) fn new(ring: Packed) -> Self {
        let size = ring.size();
        Self {
            ring,
            slots: vec![EMPTY; usize::from(size)].into(),
            ids: Free::new(size),
            free_count: usize::from(size),
            next_available: Location::START,
            next_used: Location::START,
            held: None,
            outstanding: 0,
            order: Order::Any,
            next_id: 0,
            batch: None,
        }
    }

    /// Sets the order that the device keeps from now on. No chain is outstanding yet.
    pub(in crate::virtio) fn begin(&mut self, order: Order) {
        debug_assert!(self.outstanding == 0);
        self.order = order;
    }

    pub(in crate::virtio) fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline]
    pub(in crate::virtio) fn free_count(&self) -> usize {
        self.free_count
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
        self.ids.reset();
        (self.order, self.next_id, self.batch) = (Order::Any, 0, None);
        (self.free_count, self.outstanding, self.held) = (self.slots.len(), 0, None);
        (self.next_available, self.next_used) = (Location::START, Location::START);
        self.ring.clear();
        self.ring.set_polls(true);
    }

    /// The packet of the used chain `ahead` chains after the next one, if each chain before it
    /// has one descriptor.
    #[inline]
    pub(in crate::virtio) fn peek(&self, ahead: u16) -> Option<u32> {
        let location = self.next_used.plus(ahead, self.ring.size());
        let id = match (self.order, self.batch) {
            (Order::Any, _) => self.ring.used(location)?.0,
            (_, Some((last, _))) if self.ahead(last) >= ahead => self.id_after(ahead),
            _ => self.ring.used(location).map(|_| self.id_after(ahead))?,
        };
        self.slots.get(usize::from(id)).map(|slot| slot.packet).filter(|packet| *packet != NONE)
    }

    /// Takes the next used chain: its packet, and the number of bytes that the device reports as
    /// written. `None` if no chain is used.
    #[inline]
    pub(in crate::virtio) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
        let next = match self.order {
            Order::Any => self.ring.used(self.next_used),
            Order::Sent => self.next_of_batch(0)?,
            Order::Filled(whole) => self.next_of_batch(whole)?,
        };
        let Some((id, written)) = next else { return Ok(None) };
        let slot = self.slots.get_mut(usize::from(id)).ok_or(Broken)?;
        let Slot { packet, count } = *slot;
        if packet == NONE {
            return Err(Broken);
        }
        *slot = EMPTY;
        self.next_used = self.next_used.plus(count, self.ring.size());
        self.outstanding -= 1;
        self.free_count += usize::from(count);
        self.ids.put(id);
        Ok(Some((packet, written)))
    }

    /// The id of the chain `count` chains after the next one.
    #[inline]
    fn id_after(&self, count: u16) -> u16 {
        self.next_id.wrapping_add(count) & (self.ring.size() - 1)
    }

    /// How many chains after the next one the chain of this id follows.
    #[inline]
    fn ahead(&self, id: u16) -> u16 {
        id.wrapping_sub(self.next_id) & (self.ring.size() - 1)
    }

    /// The next chain in order, and the bytes written to it: `whole` for each chain before the last
    /// of a batch.
    #[inline]
    fn next_of_batch(&mut self, whole: u32) -> Result<Option<(u16, u32)>, Broken> {
        let id = self.next_id;
        let (last, written) = match self.batch {
            Some(batch) => batch,
            None => {
                let Some(shown) = self.ring.used(self.next_used) else { return Ok(None) };
                let ahead = usize::from(self.ahead(shown.0));
                if shown.0 >= self.ring.size() || ahead >= self.outstanding {
                    // The device does not own such a chain.
                    return Err(Broken);
                }
                shown
            }
        };
        let is_last = last == id;
        self.batch = (!is_last).then_some((last, written));
        self.next_id = self.id_after(1);
        Ok(Some((id, if is_last { written } else { whole })))
    }

    /// Makes a packet available: its first buffer, and the later ones. The ring must have free
    /// descriptors for all. The device sees it after [`PackedRing::publish`].
    #[inline]
    pub(in crate::virtio) fn make_available(
        &mut self,
        packet: u32,
        first: Buffer,
        rest: &[Segment],
    ) {
        debug_assert!(self.free_count > rest.len());
        let id = self.ids.take();
        let count = 1 + rest.len() as u16;
        self.slots[usize::from(id)] = Slot { packet, count };
        self.free_count -= usize::from(count);
        self.outstanding += 1;
        let start = self.next_available;
        self.next_available = start.plus(count, self.ring.size());
        let goes_on = |left: usize| if left > 0 { NEXT } else { 0 };
        // The first descriptor of a chain is handed over after the others.
        for (number, segment) in rest.iter().enumerate() {
            let location = start.plus(1 + number as u16, self.ring.size());
            let address = segment.pointer.as_ptr().expose_provenance() as u64;
            self.ring.set_address(location, address);
            let flags = goes_on(rest.len() - 1 - number) | first.flags;
            self.ring.put_available(location, id, segment.length as u32, flags);
        }
        let Buffer { address, length, flags } = first;
        self.ring.set_address(start, address);
        let flags = flags | goes_on(rest.len());
        if self.held.is_none() {
            self.held = Some((start, id, length, flags));
        } else {
            self.ring.put_available(start, id, length, flags);
        }
    }

    /// Publishes the available chains to the device, and returns whether there were any new ones.
    pub(in crate::virtio) fn publish(&mut self) -> bool {
        let Some((location, id, length, flags)) = self.held.take() else { return false };
        self.ring.put_available(location, id, length, flags);
        true
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(in crate::virtio) fn device_wants_no_calls(&self) -> bool {
        self.ring.device_wants_no_calls()
    }
}
