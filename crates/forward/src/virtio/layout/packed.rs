//! The packed ring. A chain takes descriptors that follow each other, and one id; the device gives
//! its id back where the next used descriptor goes.
//!
//! Where both sides keep the order (VIRTIO_F_IN_ORDER), ids follow each other, and the device may
//! show the last chain of a batch alone, in the descriptor of the first, section 2.8 of virtio 1.2.

use super::super::super::pool::Segment;
use super::super::super::ring::packed::{Packed, Place};
use super::super::super::ring::split::NEXT;
use super::free::Free;
use super::{Broken, Buffer, NONE, Order};

/// What stands behind an id that the device has.
#[derive(Clone, Copy, Debug)]
struct Slot {
    packet: u32,
    /// Descriptors of the chain.
    count: u16,
}

const EMPTY: Slot = Slot { packet: NONE, count: 0 };

#[derive(Debug)]
pub(in super::super) struct PackedRing {
    ring: Packed,
    slots: Box<[Slot]>,
    /// Ids that are free.
    ids: Free,
    /// Descriptors that are free.
    free_count: usize,
    next_available: Place,
    next_used: Place,
    /// The first descriptor of those that the device has not been shown: shown last.
    held: Option<(Place, u16, u32, u16)>,
    outstanding: usize,
    order: Order,
    /// The id that was given first of those that the device has, where it keeps the order.
    next_id: u16,
    /// The descriptor that was read: the last chain of a batch, and what was written to it.
    batch: Option<(u16, u32)>,
}

impl PackedRing {
    pub(in super::super) fn new(ring: Packed) -> Self {
        let size = ring.size();
        Self {
            ring,
            slots: vec![EMPTY; usize::from(size)].into(),
            ids: Free::new(size),
            free_count: usize::from(size),
            next_available: Place::START,
            next_used: Place::START,
            held: None,
            outstanding: 0,
            order: Order::Any,
            next_id: 0,
            batch: None,
        }
    }

    /// The device keeps this order from now on. Nothing was given yet.
    pub(in super::super) fn begin(&mut self, order: Order) {
        debug_assert!(self.outstanding == 0);
        self.order = order;
    }

    pub(in super::super) fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline]
    pub(in super::super) fn free_count(&self) -> usize {
        self.free_count
    }

    pub(in super::super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// As it was when new; calls `give` with the packets that the device had.
    pub(in super::super) fn reset(&mut self, mut give: impl FnMut(u32)) {
        for slot in &mut self.slots {
            if slot.packet != NONE {
                give(slot.packet);
            }
            *slot = EMPTY;
        }
        self.ids.reset();
        (self.order, self.next_id, self.batch) = (Order::Any, 0, None);
        (self.free_count, self.outstanding, self.held) = (self.slots.len(), 0, None);
        (self.next_available, self.next_used) = (Place::START, Place::START);
        self.ring.clear();
        self.ring.set_polls(true);
    }

    /// The packet of a used chain that comes `ahead` chains of one descriptor later.
    #[inline]
    pub(in super::super) fn peek(&self, ahead: u16) -> Option<u32> {
        let place = self.next_used.plus(ahead, self.ring.size());
        let id = match (self.order, self.batch) {
            (Order::Any, _) => self.ring.used(place)?.0,
            (_, Some((last, _))) if self.ahead(last) >= ahead => self.id_after(ahead),
            _ => self.ring.used(place).map(|_| self.id_after(ahead))?,
        };
        self.slots.get(usize::from(id)).map(|slot| slot.packet).filter(|packet| *packet != NONE)
    }

    /// The packet of the chain that the device used next, and how many bytes it says that it
    /// wrote; `None` where there is none.
    #[inline]
    pub(in super::super) fn take_used(&mut self) -> Result<Option<(u32, u32)>, Broken> {
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

    /// The id that comes so many chains after the next.
    #[inline]
    fn id_after(&self, count: u16) -> u16 {
        self.next_id.wrapping_add(count) & (self.ring.size() - 1)
    }

    /// How many chains after the next this id comes.
    #[inline]
    fn ahead(&self, id: u16) -> u16 {
        id.wrapping_sub(self.next_id) & (self.ring.size() - 1)
    }

    /// The next chain in order, and what was written to it: all of a chain before the last of a
    /// batch.
    #[inline]
    fn next_of_batch(&mut self, whole: u32) -> Result<Option<(u16, u32)>, Broken> {
        let id = self.next_id;
        let (last, written) = match self.batch {
            Some(batch) => batch,
            None => {
                let Some(shown) = self.ring.used(self.next_used) else { return Ok(None) };
                let ahead = usize::from(self.ahead(shown.0));
                if shown.0 >= self.ring.size() || ahead >= self.outstanding {
                    // None of those that it has.
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

    /// Puts a packet into the ring: its first buffer, and those that follow. There are free
    /// descriptors for all. Not seen before [`PackedRing::publish`].
    #[inline]
    pub(in super::super) fn give(&mut self, packet: u32, first: Buffer, rest: &[Segment]) {
        debug_assert!(self.free_count > rest.len());
        let id = self.ids.take();
        let count = 1 + rest.len() as u16;
        self.slots[usize::from(id)] = Slot { packet, count };
        self.free_count -= usize::from(count);
        self.outstanding += 1;
        let start = self.next_available;
        self.next_available = start.plus(count, self.ring.size());
        let goes_on = |left: usize| if left > 0 { NEXT } else { 0 };
        // The first of a chain is handed over after the others.
        for (number, segment) in rest.iter().enumerate() {
            let place = start.plus(1 + number as u16, self.ring.size());
            let address = segment.pointer.as_ptr().expose_provenance() as u64;
            self.ring.set_address(place, address);
            let flags = goes_on(rest.len() - 1 - number) | first.flags;
            self.ring.put_available(place, id, segment.length as u32, flags);
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

    /// Shows the device what was given, and says whether it was anything.
    pub(in super::super) fn publish(&mut self) -> bool {
        let Some((place, id, length, flags)) = self.held.take() else { return false };
        self.ring.put_available(place, id, length, flags);
        true
    }

    /// Whether the device wants no calls.
    #[inline]
    pub(in super::super) fn device_wants_no_calls(&self) -> bool {
        self.ring.device_wants_no_calls()
    }
}
