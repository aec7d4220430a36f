//! A ring from the driver's side. The device may write anything to it and to the packets: its
//! values are checked against the driver's own record.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fd::AsFd;

use super::layout::{Broken, Buffer, Order, Ring};
use crate::counters::{Direction, DropReason};
use crate::error::Error;
use crate::messages::{Kick, RingAt};
use crate::pool::{
    Burst, HEADROOM_BYTES, Memory, PACKET_BYTES_MAX, Packet, Pool, ROOM_BYTES, Segment,
};
use crate::ring::features::{self, HEADER_BYTES_MAX};
use crate::ring::prefetch;
use crate::ring::split::WRITE;
use haul_peer::caller::Caller;

const _: () = assert!(HEADER_BYTES_MAX <= HEADROOM_BYTES);

/// The offsets of the three areas in the ring's memory, each aligned to a cache line.
struct Areas {
    offsets: [usize; 3],
    bytes: usize,
}

impl Areas {
    fn of(size: u16, is_packed: bool) -> Self {
        let mut offsets = [0; 3];
        let mut end = 0;
        let all = Ring::area_bytes(u32::from(size), is_packed);
        for (offset, bytes) in offsets.iter_mut().zip(all) {
            *offset = end;
            // A free line between two areas, so that the prefetcher of one side does not fetch the
            // other side's line.
            end += (bytes as usize).next_multiple_of(prefetch::LINE_BYTES) + prefetch::LINE_BYTES;
        }
        Self { offsets, bytes: end }
    }
}

/// A ring and the packets that the device owns.
#[derive(Debug)]
pub(super) struct Queue {
    block: NonNull<u8>,
    /// The memory that holds the block. It lives as long as the ring, also after the pool was
    /// dropped.
    memory: Arc<Memory>,
    ring: Ring,
    /// Whether chains were published since the last check for a call.
    is_new: bool,
}

// SAFETY: the block belongs to this value alone, and its memory can be sent.
unsafe impl Send for Queue {}

impl Queue {
    /// A ring in the pool's memory.
    pub(super) fn new(pool: &Pool, size: u16, is_packed: bool) -> Result<Self, Error> {
        let areas = Areas::of(size, is_packed);
        let block = pool.memory().block(areas.bytes, 4096).ok_or_else(|| Error::Value {
            what: "a ring of",
            value: format!("{size} descriptors"),
            limit: "the pool's memory has no room for it: use smaller rings",
        })?;
        // SAFETY: the areas lie in the block, which has enough bytes, is aligned to a page, and is
        // freed when this value is dropped; the size was checked by the port.
        let addresses = areas.offsets.map(|offset| unsafe { block.add(offset) });
        // SAFETY: as above.
        let ring = unsafe { Ring::new(addresses, u32::from(size), is_packed) };
        Ok(Self { block, memory: pool.memory().clone(), ring, is_new: false })
    }

    /// Whether the ring, and thus each packet that it holds, lies in this pool's memory.
    #[inline]
    pub(super) fn is_of(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.memory, pool.memory())
    }

    /// The addresses of the ring for the back end.
    pub(super) fn location(&self) -> RingAt {
        let (size, is_packed) = (self.ring.size(), self.ring.is_packed());
        let start = self.block.as_ptr().expose_provenance() as u64;
        let areas = Areas::of(size, is_packed).offsets.map(|offset| start + offset as u64);
        RingAt { size, areas }
    }

    /// Packets that the device owns.
    pub(super) fn outstanding(&self) -> usize {
        self.ring.outstanding()
    }

    /// Restores the initial state; returns packets to the pool.
    pub(super) fn reset(&mut self, pool: &mut Pool) {
        self.ring.reset(|packet| pool.free(Packet::from_index(packet)));
        self.is_new = false;
    }

    /// Begins a session with these negotiated features; `fills` says whether the device fills
    /// buffers.
    pub(super) fn begin(&mut self, features: u64, fills: bool) {
        self.ring.begin(match (features & features::IN_ORDER != 0, fills) {
            (false, _) => Order::Any,
            (true, false) => Order::Sent,
            (true, true) => Order::Filled((ROOM_BYTES + features::header_bytes(features)) as u32),
        });
    }

    /// Appends to the burst the packets that the device filled.
    ///
    /// # Errors
    /// [`Broken`]; the burst then holds no packet of this call.
    pub(super) fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        features: u64,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        let before = burst.len();
        let result = self.take_filled(pool, burst, features, counts);
        let packets = burst.len() - before;
        match result {
            Ok(bytes) if !self.memory.is_broken() => {
                counts.batch(packets, bytes);
                Ok(packets)
            }
            _ => {
                for _ in 0..packets {
                    burst.pop_last().into_iter().for_each(|packet| pool.free(packet));
                }
                counts.dropped(DropReason::Reset, packets as u64);
                Err(Broken)
            }
        }
    }

    /// Appends filled packets to the burst until the ring is broken; returns their bytes.
    #[inline]
    fn take_filled(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        features: u64,
        counts: &mut Direction,
    ) -> Result<u64, Broken> {
        let mut bytes = 0;
        let header_bytes = features::header_bytes(features);
        let is_mergeable = features & features::MERGEABLE != 0;
        self.ring.poll(burst.room())?;
        self.fetch_used(pool, burst.room(), is_mergeable);
        while burst.room() > 0 {
            let Some((packet, written)) = self.ring.take_used()? else { break };
            let packet = Packet::from_index(packet);
            let length = (written as usize).wrapping_sub(header_bytes);
            if length > ROOM_BYTES || length == 0 {
                // The device returned the chain empty, or reported a length beyond the buffer.
                counts.dropped(DropReason::BadDescriptor, 1);
                pool.free(packet);
                continue;
            }
            pool.cut(&packet, length);
            let buffers = if is_mergeable { buffers_of(pool, &packet) } else { 1 };
            if buffers > 1 {
                match self.receive_rest(pool, &packet, buffers - 1, header_bytes) {
                    Ok(true) => {}
                    Ok(false) => {
                        counts.dropped(DropReason::TooLong, 1);
                        pool.free(packet);
                        continue;
                    }
                    Err(Broken) => {
                        pool.free(packet);
                        return Err(Broken);
                    }
                }
            }
            bytes += pool.length(&packet) as u64;
            burst.push(packet);
        }
        Ok(bytes)
    }

    /// Prefetches the lines of the next packets that the device has filled, so that their misses
    /// overlap: the end of the header, if it is read, and the packet's first line.
    #[inline]
    fn fetch_used(&self, pool: &Pool, count: usize, has_header: bool) {
        for ahead in 0..count.min(usize::from(self.ring.size())) {
            let Some(packet) = self.ring.peek(ahead as u16) else { return };
            let first = pool.first(&Packet::from_index(packet)).pointer.as_ptr();
            if has_header {
                prefetch::to_read(first.wrapping_sub(1));
            }
            prefetch::to_read(first);
        }
    }

    /// Appends the later buffers of a packet. Returns false if the packet is longer than the limit.
    #[cold]
    fn receive_rest(
        &mut self,
        pool: &mut Pool,
        packet: &Packet,
        rest: u16,
        header_bytes: usize,
    ) -> Result<bool, Broken> {
        let mut fits = true;
        self.ring.poll(rest.into())?;
        for _ in 0..rest {
            // All buffers of a packet are published together.
            let (tail, written) = self.ring.take_used()?.ok_or(Broken)?;
            let (tail, length) = (Packet::from_index(tail), written as usize);
            fits &= length <= ROOM_BYTES + header_bytes;
            fits &= pool.length(packet) + length <= PACKET_BYTES_MAX;
            if fits && length > 0 {
                // Later buffers have no header: their bytes begin at its position.
                pool.shift(&tail, header_bytes);
                pool.cut(&tail, length);
                pool.join(packet, tail);
            } else {
                pool.free(tail);
            }
        }
        Ok(fits)
    }

    /// Makes buffers available for the device to fill, for all free descriptors, while the pool has
    /// any.
    pub(super) fn fill(&mut self, pool: &mut Pool, header_bytes: usize) {
        // A few buffers at a time are not worth the transfer of a line to the device and back.
        if self.ring.free_count() < FILL_MIN.min(usize::from(self.ring.size()) / 4) {
            return;
        }
        while self.ring.free_count() > 0 {
            let Some(packet) = pool.take(ROOM_BYTES) else { break };
            let address = pool.first(&packet).pointer.as_ptr().expose_provenance() as u64;
            let buffer = Buffer {
                address: address - header_bytes as u64,
                length: (ROOM_BYTES + header_bytes) as u32,
                flags: WRITE,
            };
            self.ring.make_available(packet.into_index(), buffer, &[]);
        }
        self.publish();
    }

    fn publish(&mut self) {
        self.is_new |= self.ring.publish();
    }

    /// Calls the device if it wants a call and there are new chains.
    #[inline]
    pub(super) fn call(&mut self, caller: &Caller, kick: Option<&Kick>) {
        if !std::mem::take(&mut self.is_new) {
            return;
        }
        // Read whether the device wants a call only after the device can see the chains.
        fence(Ordering::SeqCst);
        if !self.ring.device_wants_no_calls()
            && let Some(kick) = kick
        {
            caller.call(kick.as_fd());
        }
    }

    /// Returns to the pool the packets that the device has sent.
    pub(super) fn reclaim(&mut self, pool: &mut Pool) -> Result<(), Broken> {
        self.ring.poll(usize::MAX)?;
        while let Some((packet, _)) = self.ring.take_used()? {
            pool.free(Packet::from_index(packet));
        }
        Ok(())
    }

    /// Hands as many packets of the burst to the device as there are free descriptors for.
    pub(super) fn send(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        header_bytes: usize,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        // Does not reclaim for each burst, because the line of the used index stays with the
        // device while the driver does not read it.
        if self.ring.free_count() < usize::from(self.ring.size()) / 2 {
            self.reclaim(pool)?;
        }
        if self.memory.is_broken() {
            return Err(Broken);
        }
        let (mut packets, mut bytes) = (0, 0);
        while !burst.is_empty() {
            let packet = Packet::from_index(burst.indices()[0]);
            let needed = if pool.is_one(&packet) { 1 } else { pool.segments(&packet).count() };
            if needed > self.ring.free_count() {
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
        let (first, start) = (pool.first(&packet), pool.front(&packet, header_bytes));
        clear_header(start, header_bytes);
        let address = start.as_ptr().expose_provenance() as u64;
        let buffer = Buffer { address, length: (first.length + header_bytes) as u32, flags: 0 };
        if pool.is_one(&packet) {
            self.ring.make_available(packet.into_index(), buffer, &[]);
        } else {
            self.send_chain(pool, packet, buffer);
        }
    }

    #[cold]
    fn send_chain(&mut self, pool: &Pool, packet: Packet, first: Buffer) {
        let rest: Vec<Segment> = pool.segments(&packet).skip(1).collect();
        self.ring.make_available(packet.into_index(), first, &rest);
    }
}

/// The smallest number of free descriptors for which buffers are made available.
const FILL_MIN: usize = 32;

/// The number of buffers of a packet, as the device reports it in the packet's header.
#[inline]
fn buffers_of(pool: &Pool, packet: &Packet) -> u16 {
    let at = pool.front(packet, size_of::<u16>());
    // SAFETY: these are the last two bytes of the headroom, where the header ends; the device may
    // write there meanwhile, and any value is checked.
    u16::from_le(unsafe { at.cast::<u16>().as_ptr().read_unaligned() })
}

/// Zeros the header of a packet that is sent, unless it is zero already.
#[inline]
fn clear_header(start: NonNull<u8>, bytes: usize) {
    let zeros = [0_u8; HEADER_BYTES_MAX];
    let mut header = [0_u8; HEADER_BYTES_MAX];
    // SAFETY: the headroom has `bytes` bytes from `start` on.
    unsafe { start.as_ptr().copy_to_nonoverlapping(header.as_mut_ptr(), bytes) };
    if header[..bytes] != zeros[..bytes] {
        // SAFETY: as above.
        unsafe { start.as_ptr().copy_from_nonoverlapping(zeros.as_ptr(), bytes) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.memory.free(self.block);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::with_exposed_provenance_mut;

    use super::*;
    use crate::ring::packed::{Location, Packed};
    use crate::ring::split::Split;

    /// A device that returns three packets, and then a chain that it does not own.
    fn corrupt(queue: &Queue, id: u16) {
        let RingAt { size, areas } = queue.location();
        let areas = areas.map(|at| NonNull::new(with_exposed_provenance_mut(at as usize)).unwrap());
        if queue.ring.is_packed() {
            // SAFETY: the areas of the ring, which lives longer.
            let ring = unsafe { Packed::new(areas, size.into()) };
            for (number, id) in [0, 1, 2, id].into_iter().enumerate() {
                ring.put_used(Location::START.plus(number as u16, size), id, 72);
            }
        } else {
            // SAFETY: as above.
            let ring = unsafe { Split::new(areas, size.into()) };
            for (number, id) in [0, 1, 2, id].into_iter().enumerate() {
                ring.put_used(number as u16, id, 72);
            }
            ring.publish_used(4);
        }
    }

    #[test]
    fn packets_before_invalid_chain_are_dropped_and_counted() {
        for is_packed in [false, true] {
            for id in [0, 2, 64, u16::MAX] {
                let mut pool = Pool::new(256).unwrap();
                let mut queue = Queue::new(&pool, 64, is_packed).unwrap();
                queue.reset(&mut pool);
                queue.begin(features::VERSION_1, true);
                queue.fill(&mut pool, HEADER_BYTES_MAX);
                corrupt(&queue, id);
                let (mut burst, mut counts) = (Burst::new(), Direction::default());
                let features = features::VERSION_1;
                let came = queue.receive(&mut pool, &mut burst, features, &mut counts);
                assert!(came.is_err() && burst.is_empty(), "{id}, packed {is_packed}");
                let dropped = counts.drops_for(DropReason::Reset);
                assert_eq!((counts.packets, dropped), (0, 3), "{id}, packed {is_packed}");
                queue.reset(&mut pool);
                assert_eq!(pool.available(), pool.size(), "{id}, packed {is_packed}");
            }
        }
    }
}
