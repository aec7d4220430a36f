//! A split ring from the driver's side. The device writes the used ring and the packets as it
//! likes: what it says is checked against what was made available.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::super::counters::{Direction, DropReason};
use super::super::error::Error;
use super::super::messages::{Kick, RingAt};
use super::super::pool::{Burst, HEADROOM_BYTES, PACKET_BYTES_MAX, Packet, Pool, ROOM_BYTES};
use super::super::ring::features::{self, HEADER_BYTES_MAX};
use super::super::ring::prefetch;
use super::super::ring::split::{self, Descriptor, NEXT, Split, WRITE};

const _: () = assert!(HEADER_BYTES_MAX <= HEADROOM_BYTES);

/// The device said what cannot be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// No packet, or no descriptor.
const NONE: u32 = u32::MAX;

/// Where the three areas lie in the ring's memory: each at a line of its own.
struct Areas {
    offsets: [usize; 3],
    bytes: usize,
}

impl Areas {
    fn of(size: u16) -> Self {
        let mut offsets = [0; 3];
        let mut end = 0;
        for (offset, bytes) in offsets.iter_mut().zip(split::area_bytes(u32::from(size))) {
            *offset = end;
            // A line between two areas, so that no side's prefetcher takes the other's.
            end += (bytes as usize).next_multiple_of(prefetch::LINE_BYTES) + prefetch::LINE_BYTES;
        }
        Self { offsets, bytes: end }
    }
}

/// What stands behind a descriptor that the device has.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The packet, in the first descriptor of a chain.
    packet: u32,
    /// The next descriptor of the chain.
    next: u32,
}

/// A ring and what the device has of it.
#[derive(Debug)]
pub(super) struct Queue {
    block: NonNull<u8>,
    ring: Split,
    slots: Box<[Slot]>,
    /// Free descriptors, first in, first out: where the device keeps the order, every round of the
    /// ring is then like the one before.
    free: Box<[u16]>,
    free_start: usize,
    free_count: usize,
    next_available: u16,
    published: u16,
    next_used: u16,
    outstanding: usize,
}

// SAFETY: the block is of the pool of the worker that drives the ring.
unsafe impl Send for Queue {}

impl Queue {
    /// A ring in the pool's memory.
    pub(super) fn new(pool: &Pool, size: u16) -> Result<Self, Error> {
        let areas = Areas::of(size);
        let block = pool.memory().block(areas.bytes, 4096).ok_or_else(|| Error::Value {
            what: "a ring of",
            value: format!("{size} descriptors"),
            limit: "the pool's memory has no room for it: use smaller rings",
        })?;
        // SAFETY: the areas lie in the block, which has so many bytes, is aligned to a page, and is
        // freed with this value; the size was checked by the port.
        let places = areas.offsets.map(|offset| unsafe { block.add(offset) });
        // SAFETY: as above.
        let ring = unsafe { Split::new(places, u32::from(size)) };
        Ok(Self {
            block,
            ring,
            slots: vec![Slot { packet: NONE, next: NONE }; usize::from(size)].into(),
            free: (0..size).collect(),
            free_start: 0,
            free_count: usize::from(size),
            next_available: 0,
            published: 0,
            next_used: 0,
            outstanding: 0,
        })
    }

    /// Where the back end finds it.
    pub(super) fn place(&self) -> RingAt {
        let size = self.ring.size();
        let start = self.block.as_ptr().expose_provenance() as u64;
        let areas = Areas::of(size).offsets.map(|offset| start + offset as u64);
        RingAt { size, areas }
    }

    /// Packets that the device has.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// As it was when new; packets go back to the pool.
    pub(super) fn reset(&mut self, pool: &mut Pool) {
        for slot in &mut self.slots {
            if slot.packet != NONE {
                pool.free(Packet::from_index(slot.packet));
            }
            *slot = Slot { packet: NONE, next: NONE };
        }
        for (number, free) in self.free.iter_mut().enumerate() {
            *free = number as u16;
        }
        (self.free_start, self.free_count) = (0, self.free.len());
        (self.next_available, self.published, self.next_used) = (0, 0, 0);
        self.outstanding = 0;
        for index in 0..self.ring.size() {
            self.ring.set_descriptor(index, Descriptor::default());
            self.ring.put_available(index, 0);
            self.ring.put_used(index, 0, 0);
        }
        self.ring.publish_available(0);
        self.ring.publish_used(0);
        self.ring.set_driver_polls();
    }

    /// Gives the ring's memory back.
    pub(super) fn free(mut self, pool: &mut Pool) {
        self.reset(pool);
        pool.memory().free(self.block);
    }

    #[inline]
    fn take_descriptor(&mut self) -> u16 {
        debug_assert!(self.free_count > 0);
        let index = self.free[self.free_start];
        self.free_start = (self.free_start + 1) & (self.free.len() - 1);
        self.free_count -= 1;
        index
    }

    #[inline]
    fn free_descriptor(&mut self, index: u16) {
        let end = (self.free_start + self.free_count) & (self.free.len() - 1);
        self.free[end] = index;
        self.free_count += 1;
    }

    /// The next packet that the device has used, and how many bytes it says that it wrote.
    #[inline]
    fn take_used(&mut self) -> Result<(Packet, u32), Broken> {
        let (head, written) = self.ring.used(self.next_used);
        let slot = self.slots.get_mut(head as usize).ok_or(Broken)?;
        let (packet, mut next) = (slot.packet, slot.next);
        if packet == NONE {
            return Err(Broken);
        }
        *slot = Slot { packet: NONE, next: NONE };
        self.next_used = self.next_used.wrapping_add(1);
        self.outstanding -= 1;
        self.free_descriptor(head as u16);
        while next != NONE {
            let slot = &mut self.slots[next as usize];
            let index = next as u16;
            next = slot.next;
            slot.next = NONE;
            self.free_descriptor(index);
        }
        Ok((Packet::from_index(packet), written))
    }

    /// Chains that the device has used and nobody looked at.
    #[inline]
    fn used(&self) -> Result<u16, Broken> {
        let used = self.ring.used_index().wrapping_sub(self.next_used);
        if usize::from(used) > self.outstanding { Err(Broken) } else { Ok(used) }
    }

    /// Appends packets that the device filled to the burst.
    pub(super) fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        features: u64,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        let (mut used, mut bytes, before) = (self.used()?, 0, burst.len());
        let header_bytes = features::header_bytes(features);
        let is_mergeable = features & features::MERGEABLE != 0;
        while used > 0 && burst.room() > 0 {
            let (packet, written) = self.take_used()?;
            used -= 1;
            let length = (written as usize).wrapping_sub(header_bytes);
            if length > ROOM_BYTES || length == 0 {
                // A chain that came back empty, or a length that the buffer has not.
                counts.dropped(DropReason::BadDescriptor, 1);
                pool.free(packet);
                continue;
            }
            pool.cut(&packet, length);
            if is_mergeable {
                let buffers = buffers_of(pool, &packet);
                if buffers > 1 {
                    let rest = buffers - 1;
                    if rest > used {
                        pool.free(packet);
                        return Err(Broken);
                    }
                    used -= rest;
                    if !self.receive_rest(pool, &packet, rest, header_bytes)? {
                        counts.dropped(DropReason::TooLong, 1);
                        pool.free(packet);
                        continue;
                    }
                }
            }
            bytes += pool.length(&packet) as u64;
            burst.push(packet);
        }
        let packets = burst.len() - before;
        counts.batch(packets, bytes);
        Ok(packets)
    }

    /// The buffers of a packet after its first; false where it is longer than any may be.
    #[cold]
    fn receive_rest(
        &mut self,
        pool: &mut Pool,
        packet: &Packet,
        rest: u16,
        header_bytes: usize,
    ) -> Result<bool, Broken> {
        let mut fits = true;
        for _ in 0..rest {
            let (tail, written) = self.take_used()?;
            let length = written as usize;
            fits &= length <= ROOM_BYTES + header_bytes;
            fits &= pool.length(packet) + length <= PACKET_BYTES_MAX;
            if fits && length > 0 {
                // Later buffers have no header: their bytes begin where it would be.
                pool.shift(&tail, header_bytes);
                pool.cut(&tail, length);
                pool.join(packet, tail);
            } else {
                pool.free(tail);
            }
        }
        Ok(fits)
    }

    /// Gives the device buffers to fill, for all free descriptors, as many as the pool has.
    pub(super) fn fill(&mut self, pool: &mut Pool, header_bytes: usize) {
        // A few at a time are not worth a line's way to the device and back.
        if self.free_count < FILL_MIN.min(self.free.len() / 4) {
            return;
        }
        while self.free_count > 0 {
            let Some(packet) = pool.take(ROOM_BYTES) else { break };
            let address = pool.first(&packet).pointer.as_ptr().expose_provenance() as u64;
            let index = self.take_descriptor();
            let descriptor = Descriptor {
                address: address - header_bytes as u64,
                length: (ROOM_BYTES + header_bytes) as u32,
                flags: WRITE,
                next: 0,
            };
            self.give(index, descriptor, packet);
        }
        self.publish();
    }

    /// Puts a chain's first descriptor into the ring.
    #[inline]
    fn give(&mut self, index: u16, descriptor: Descriptor, packet: Packet) {
        self.ring.set_descriptor(index, descriptor);
        self.slots[usize::from(index)].packet = packet.into_index();
        self.ring.put_available(self.next_available, index);
        self.next_available = self.next_available.wrapping_add(1);
        self.outstanding += 1;
    }

    fn publish(&mut self) {
        if self.next_available != self.published {
            self.ring.publish_available(self.next_available);
        }
    }

    /// Calls the device if it waits to be called and there is something new.
    #[inline]
    pub(super) fn call(&mut self, kick: Option<&Kick>) {
        if self.next_available == self.published {
            return;
        }
        self.published = self.next_available;
        // What the device wants is read after it can see the chains.
        fence(Ordering::SeqCst);
        if !self.ring.device_wants_no_calls()
            && let Some(kick) = kick
        {
            kick.call();
        }
    }

    /// Takes packets back that the device has sent.
    pub(super) fn reclaim(&mut self, pool: &mut Pool) -> Result<(), Broken> {
        for _ in 0..self.used()? {
            let (packet, _) = self.take_used()?;
            pool.free(packet);
        }
        Ok(())
    }

    /// Hands packets of the burst to the device, as many as there are descriptors for.
    pub(super) fn send(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        header_bytes: usize,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        // Not for each burst: the used index is a line of the device's.
        if self.free_count < self.free.len() / 2 {
            self.reclaim(pool)?;
        }
        let (mut packets, mut bytes) = (0, 0);
        while !burst.is_empty() {
            let packet = Packet::from_index(burst.indices()[0]);
            let needed = if pool.is_one(&packet) { 1 } else { pool.segments(&packet).count() };
            if needed > self.free_count {
                break;
            }
            let length = pool.length(&packet);
            let Some(packet) = burst.pop() else { break };
            self.send_one(pool, packet, header_bytes);
            packets += 1;
            bytes += length as u64;
        }
        self.publish();
        counts.batch(packets, bytes);
        Ok(packets)
    }

    #[inline]
    fn send_one(&mut self, pool: &Pool, packet: Packet, header_bytes: usize) {
        let first = pool.first(&packet);
        // SAFETY: the headroom in front of a packet has the header's bytes; see the assertion
        // above.
        let start = unsafe { first.pointer.sub(header_bytes) };
        clear_header(start, header_bytes);
        let address = start.as_ptr().expose_provenance() as u64;
        let length = (first.length + header_bytes) as u32;
        let index = self.take_descriptor();
        let mut descriptor = Descriptor { address, length, flags: 0, next: 0 };
        if !pool.is_one(&packet) {
            let next = self.chain(pool, &packet);
            descriptor.flags = NEXT;
            descriptor.next = next;
            self.slots[usize::from(index)].next = u32::from(next);
        }
        self.give(index, descriptor, packet);
    }

    /// The descriptors of a packet after its first; the first of them.
    #[cold]
    fn chain(&mut self, pool: &Pool, packet: &Packet) -> u16 {
        let segments: Vec<_> = pool.segments(packet).skip(1).collect();
        let mut next = NONE;
        for segment in segments.iter().rev() {
            let address = segment.pointer.as_ptr().expose_provenance() as u64;
            let index = self.take_descriptor();
            let flags = if next == NONE { 0 } else { NEXT };
            let after = if next == NONE { 0 } else { next as u16 };
            let length = segment.length as u32;
            self.ring.set_descriptor(index, Descriptor { address, length, flags, next: after });
            self.slots[usize::from(index)].next = next;
            next = u32::from(index);
        }
        next as u16
    }
}

/// Free descriptors from which on buffers are given to the device.
const FILL_MIN: usize = 32;

/// How many buffers the device says that a packet took, in the header in front of it.
#[inline]
fn buffers_of(pool: &Pool, packet: &Packet) -> u16 {
    // SAFETY: the last two bytes of the headroom, where the header ends.
    let at = unsafe { pool.first(packet).pointer.sub(2) };
    // SAFETY: as above; the device may write there meanwhile, and any value is checked.
    u16::from_le(unsafe { at.cast::<u16>().as_ptr().read_unaligned() })
}

/// Zeros the header of a packet that is sent, unless it is zero already.
#[inline]
fn clear_header(start: NonNull<u8>, bytes: usize) {
    let zeros = [0_u8; HEADER_BYTES_MAX];
    let mut header = [0_u8; HEADER_BYTES_MAX];
    // SAFETY: the headroom has so many bytes from there on.
    unsafe { start.as_ptr().copy_to_nonoverlapping(header.as_mut_ptr(), bytes) };
    if header[..bytes] != zeros[..bytes] {
        // SAFETY: as above.
        unsafe { start.as_ptr().copy_from_nonoverlapping(zeros.as_ptr(), bytes) };
    }
}
