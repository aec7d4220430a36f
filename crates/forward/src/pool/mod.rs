//! Packet buffers in memory that can be shared.
//!
//! A pool belongs to one worker. Each buffer is a headroom and a room of [`ROOM_BYTES`]. All
//! buffers lie in one block of a heap in a memory file. A packet is a chain of one or more
//! buffers. The state of each buffer lies in private memory. A virtual machine's other side may
//! write every byte of the file at any time, but it can corrupt only the content of packets. For
//! the same reason there are no references to a packet's bytes: they are copied, or accessed
//! through pointers.
//!
//! From the bottom up:
//!
//! - `memory`: a memory file with a heap in it;
//! - `burst`: a queue of packets;
//! - `bytes`: access to the bytes of a packet.

mod burst;
mod bytes;
mod memory;

use std::ptr::NonNull;
use std::sync::Arc;

use super::error::Error;
use super::offloads::Header;
pub(crate) use memory::Memory;

pub use burst::{BURST_MAX, Burst};

/// The number of packet bytes that fit into one buffer.
pub const ROOM_BYTES: usize = 2048;

/// The number of bytes in front of a packet, for a header: as many as DPDK's
/// RTE_PKTMBUF_HEADROOM.
pub const HEADROOM_BYTES: usize = 128;

/// Distance between two buffers. It is not a multiple of 4 KiB, so that the beginnings of packets
/// spread over all sets of the first-level cache.
const STRIDE_BYTES: usize = HEADROOM_BYTES + ROOM_BYTES;

/// Longest packet that is generated or received, from the Ethernet header on: an MTU of 9,000 B,
/// two VLAN tags, and a reserve.
pub const PACKET_BYTES_MAX: usize = 9216;

/// Longest packet that is to be divided: two VLAN tags, an IPv6 header, and the most bytes that it
/// can announce.
pub(crate) const MERGED_BYTES_MAX: usize = 22 + 40 + 65_535;

/// The largest number of buffers per pool: 2 GiB of buffers.
const PACKETS_MAX: u32 = 1 << 20;

/// No buffer.
const NONE: u32 = u32::MAX;

/// A link to no buffer, of a packet that asks for no work; and the bit of one that does.
const END: u64 = NONE as u64;
const ASKS: u64 = 1 << 32;

/// Memory of a pool for the rings of a device, [`Memory::block`].
const RINGS_BYTES: usize = 4 << 20;

/// Alignment of the first buffer: a page.
const STRIDE_ALIGN: usize = 4096;

/// A packet of a pool: the first buffer of its chain. [`Pool::free`] returns it. A packet that is
/// forgotten is lost to the pool until the pool is dropped. It must not be used with another pool.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a packet that is forgotten is lost to its pool"]
pub struct Packet {
    index: u32,
}

/// Contiguous bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The first byte. Valid to read and write as long as the caller owns the packet. If the pool's
    /// memory is shared, another process may access it at the same time.
    pub pointer: NonNull<u8>,
    /// The number of bytes.
    pub length: usize,
}

/// The pool's state of a buffer.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// The next buffer of the chain, or [`NONE`], in the lower half. [`ASKS`] is set in the first
    /// buffer of a packet that asks for work: one comparison with [`END`] finds the usual packet.
    link: u64,
    /// The size of the whole packet in bytes; only in the first buffer of a chain.
    packet_bytes: u32,
    /// Where in the buffer the packet's bytes begin.
    offset: u16,
    /// The number of the packet's bytes in this buffer.
    length: u16,
    /// The packet's tag, in the first buffer of a chain.
    tag: u64,
}

impl Buffer {
    #[inline(always)]
    fn next(&self) -> u32 {
        self.link as u32
    }

    /// Sets the next buffer of the chain.
    fn set_next(&mut self, next: u32) {
        self.link = self.link & ASKS | u64::from(next);
    }
}

/// Buffers for packets, of one worker.
#[derive(Debug)]
pub struct Pool {
    buffers: Box<[Buffer]>,
    /// What each packet asks for whose first buffer has [`ASKS`].
    headers: Box<[Header]>,
    /// Whether a packet has asked for work since the last [`Pool::take_asked`].
    has_asked: bool,
    /// The free buffers. The buffer that was freed last is allocated next, so that it is in a
    /// cache.
    free: Vec<u32>,
    rooms: NonNull<u8>,
    /// The memory, shared with each device whose rings lie in it.
    memory: Arc<Memory>,
}

// SAFETY: the rooms lie in the memory that the pool owns.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of `packets` buffers of [`ROOM_BYTES`], in huge pages if the kernel has free ones.
    ///
    /// Makes some twenty system calls. All pages are populated when this returns.
    ///
    /// # Errors
    /// [`Error::Value`] for 0 or more than 1,048,576 packets; [`Error::Memory`].
    pub fn new(packets: u32) -> Result<Self, Error> {
        if packets == 0 || packets > PACKETS_MAX {
            let (what, value) = ("a pool of", format!("{packets} packets"));
            return Err(Error::Value { what, value, limit: "choose 1 to 1048576" });
        }
        let bytes = packets as usize * STRIDE_BYTES;
        let memory = Memory::new(bytes + RINGS_BYTES).map_err(|reason| Error::Memory {
            packets,
            bytes,
            reason,
        })?;
        let rooms = memory.block(bytes, STRIDE_ALIGN).ok_or_else(|| Error::Memory {
            packets,
            bytes,
            reason: "the heap has no such block".into(),
        })?;
        let offset = HEADROOM_BYTES as u16;
        let buffer = Buffer { link: END, packet_bytes: 0, offset, length: 0, tag: 0 };
        let buffers = vec![buffer; packets as usize].into_boxed_slice();
        let headers = vec![Header::default(); packets as usize].into_boxed_slice();
        let free = (0..packets).rev().collect();
        let memory = Arc::new(memory);
        Ok(Self { buffers, headers, has_asked: false, free, rooms, memory })
    }

    /// How many buffers the pool has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buffers.len()
    }

    /// How many buffers are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// A packet of `length` bytes, which are not initialized. `None` if the pool has no buffers for
    /// it, or if `length` is above [`PACKET_BYTES_MAX`].
    #[inline]
    pub fn take(&mut self, length: usize) -> Option<Packet> {
        if length > ROOM_BYTES {
            return self.take_chain(length);
        }
        let index = self.free.pop()?;
        let buffer = &mut self.buffers[index as usize];
        buffer.link = END;
        buffer.packet_bytes = length as u32;
        buffer.offset = HEADROOM_BYTES as u16;
        buffer.length = length as u16;
        buffer.tag = 0;
        Some(Packet { index })
    }

    #[cold]
    fn take_chain(&mut self, length: usize) -> Option<Packet> {
        if length > PACKET_BYTES_MAX { None } else { self.take_merged(length) }
    }

    /// Like [`Pool::take`], for up to [`MERGED_BYTES_MAX`].
    pub(crate) fn take_merged(&mut self, length: usize) -> Option<Packet> {
        let count = length.div_ceil(ROOM_BYTES).max(1);
        if length > MERGED_BYTES_MAX || self.free.len() < count {
            return None;
        }
        let mut next = NONE;
        for at in (0..count).rev() {
            let here = (length - at * ROOM_BYTES).min(ROOM_BYTES);
            let packet = self.take(here)?;
            self.buffers[packet.index as usize].set_next(next);
            next = packet.index;
        }
        self.buffers[next as usize].packet_bytes = length as u32;
        Some(Packet { index: next })
    }

    /// Frees a packet.
    #[inline]
    pub fn free(&mut self, packet: Packet) {
        let mut index = packet.index;
        loop {
            let next = self.buffers[index as usize].next();
            debug_assert!(self.free.len() < self.buffers.len(), "a packet was freed twice");
            self.free.push(index);
            if next == NONE {
                return;
            }
            index = next;
        }
    }

    /// Frees all packets of a burst.
    pub fn free_burst(&mut self, burst: &mut Burst) {
        while let Some(packet) = burst.pop() {
            self.free(packet);
        }
    }

    /// Frees the first packets of a burst.
    #[inline]
    pub(crate) fn free_first(&mut self, burst: &mut Burst, count: usize) {
        for _ in 0..count {
            let Some(packet) = burst.pop() else { return };
            self.free(packet);
        }
    }

    /// Bytes of a packet.
    #[inline]
    #[must_use]
    pub fn length(&self, packet: &Packet) -> usize {
        self.buffers[packet.index as usize].packet_bytes as usize
    }

    /// Whether a packet's bytes are contiguous.
    #[inline]
    #[must_use]
    pub fn is_one(&self, packet: &Packet) -> bool {
        self.buffers[packet.index as usize].next() == NONE
    }

    /// Whether a packet's bytes are contiguous, and it asks for no work.
    #[inline(always)]
    pub(crate) fn is_plain_one(&self, packet: &Packet) -> bool {
        self.buffers[packet.index as usize].link == END
    }

    /// A number that the packet's producer attached to the packet, 0 at first: a time, a hash.
    #[inline]
    #[must_use]
    pub fn tag(&self, packet: &Packet) -> u64 {
        self.buffers[packet.index as usize].tag
    }

    /// Sets the number that [`Pool::tag`] returns.
    #[inline]
    pub fn set_tag(&mut self, packet: &Packet, tag: u64) {
        self.buffers[packet.index as usize].tag = tag;
    }

    /// What a packet asks of its receiver; every field is 0 at first.
    #[inline]
    #[must_use]
    pub fn header(&self, packet: &Packet) -> Header {
        if self.asks(packet) { self.headers[packet.index as usize] } else { Header::default() }
    }

    /// Whether a packet asks for work.
    #[inline(always)]
    pub(crate) fn asks(&self, packet: &Packet) -> bool {
        self.buffers[packet.index as usize].link & ASKS != 0
    }

    /// Sets what a packet asks of its receiver. A port may set it in [`Port::rx_burst`]; a
    /// forwarder's worker then does the work that the other port does not take
    /// ([`Port::offloads`]).
    ///
    /// [`Port::rx_burst`]: super::Port::rx_burst
    /// [`Port::offloads`]: super::Port::offloads
    #[inline]
    pub fn set_header(&mut self, packet: &Packet, header: Header) {
        let buffer = &mut self.buffers[packet.index as usize];
        if header == Header::default() {
            buffer.link &= !ASKS;
        } else {
            buffer.link |= ASKS;
            self.headers[packet.index as usize] = header;
            self.has_asked = true;
        }
    }

    /// Whether a packet has asked for work since the last call.
    #[inline(always)]
    pub(crate) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.has_asked)
    }

    /// Whether the buffers lie in huge pages of the kernel's pool.
    #[must_use]
    pub fn has_huge_pages(&self) -> bool {
        self.memory.is_huge()
    }

    /// The memory file that holds all buffers.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl Packet {
    /// The packet's index in the pool, for places that cannot hold a packet.
    pub(crate) fn into_index(self) -> u32 {
        self.index
    }

    /// The packet of an index that [`Packet::into_index`] returned.
    pub(crate) fn from_index(index: u32) -> Self {
        Self { index }
    }
}

#[cfg(test)]
mod tests;
