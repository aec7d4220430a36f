//! Packets and memory as the code of a ring uses them, so that one code serves haul's own buffers
//! and buffers of other programs.

use std::fmt::Debug;
use std::ptr::NonNull;

use super::offloads::{Checksum, Header, Offloads};
use super::pool::{Burst, Packet, Pool, Segment};
use haul_peer::guest::{Cached, Guest};

/// The memory of a guest, in which addresses of descriptors are looked up.
///
/// # Safety
/// All `bytes` bytes at an address that [`GuestMemory::at`] returns can be read and written as
/// long as the value exists. Other processes may write them at any time.
pub unsafe trait GuestMemory: Debug {
    /// What a lookup leaves for the next one.
    type Cached: Debug + Default + Send;

    /// Translates the address `guest` in the guest to an address in this process, if all `bytes`
    /// bytes there are in one region.
    fn at(&self, cached: &mut Self::Cached, guest: u64, bytes: u64) -> Option<NonNull<u8>>;

    /// Translates the address `guest` as [`GuestMemory::at`] does. Also returns the number of bytes
    /// from there to the end of the region, all of which can be read and written.
    fn part(&self, cached: &mut Self::Cached, guest: u64) -> Option<(NonNull<u8>, u64)>;
}

/// Packets that go to a guest, in order.
///
/// # Safety
/// The bytes of a [`Segment`] can be read until the ring has copied them.
pub unsafe trait Outgoing {
    /// The size in bytes of the packet at `index`, counted from 0.
    fn length(&self, index: usize) -> usize;

    /// Whether the packet's bytes are contiguous, and [`Outgoing::header`] says all that the packet
    /// asks for.
    fn is_one(&self, index: usize) -> bool;

    /// Whether the packet may ask for anything; if not, its header need not be read.
    #[inline(always)]
    fn asks(&self, _index: usize) -> bool {
        true
    }

    /// The bytes of a packet that [`Outgoing::is_one`].
    fn first(&self, index: usize) -> Segment;

    /// Whether [`Outgoing::header`] says all that the packet asks for, and the packet has
    /// [`Outgoing::length`] bytes in its segments. Cost: a visit of each segment.
    fn is_plain(&self, index: usize) -> bool;

    /// The bytes of a packet that [`Outgoing::is_plain`], in order.
    fn segments(&self, index: usize) -> impl Iterator<Item = Segment>;

    /// What a packet that [`Outgoing::is_one`] or [`Outgoing::is_plain`] asks of the guest. The
    /// ring calls this once for a packet that it sends, before it copies the bytes: a packet that
    /// lacks a checksum gets the sum of its pseudo header now.
    fn header(&self, index: usize) -> Header;
}

/// Buffers for packets that come from a guest.
///
/// # Safety
/// `length` bytes at an address that [`Incoming::take`] returns can be written until the ring has
/// copied the packet.
pub unsafe trait Incoming {
    /// Whether the headers of packets have a meaning. A packet whose header asks for more than a
    /// checksum is then left in the ring.
    const CHECKS_HEADERS: bool;

    /// Whether a packet of `length` bytes may lack this checksum. If not, it is left in the ring.
    #[inline(always)]
    fn accepts(_checksum: Checksum, _length: usize) -> bool {
        true
    }

    /// Appends a packet of `length` bytes, which are not initialized, and returns the address of
    /// its bytes. `None` if no buffer is free, or the packet does not fit into one.
    fn take(&mut self, length: usize) -> Option<NonNull<u8>>;

    /// Records that the packet of the last [`Incoming::take`] lacks a checksum. Called only with
    /// [`Incoming::CHECKS_HEADERS`], and before the packet's bytes are copied.
    fn lacks(&mut self, checksum: Checksum);
}

// SAFETY: the mappings live as long as the value.
unsafe impl GuestMemory for Guest {
    type Cached = Cached;

    #[inline(always)]
    fn at(&self, cached: &mut Cached, guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        Guest::at(self, cached, guest, bytes)
    }

    fn part(&self, cached: &mut Cached, guest: u64) -> Option<(NonNull<u8>, u64)> {
        Guest::part(self, cached, guest)
    }
}

/// Packets of a pool, by their indices in it.
#[derive(Debug)]
pub(crate) struct PoolPackets<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) indices: &'a [u32],
    /// The work that the guest takes with a packet.
    pub(crate) takes: Offloads,
}

impl PoolPackets<'_> {
    #[inline(always)]
    fn packet(&self, index: usize) -> Packet {
        Packet::from_index(self.indices[index])
    }

    /// Whether the bytes of a packet that asks for work are contiguous, and the guest takes the
    /// work.
    #[cold]
    fn is_one_taken(&self, index: usize) -> bool {
        let packet = self.packet(index);
        self.pool.is_one(&packet) && self.takes.contain(self.pool.header(&packet))
    }
}

// SAFETY: the packets belong to a burst that the caller borrows.
unsafe impl Outgoing for PoolPackets<'_> {
    #[inline(always)]
    fn length(&self, index: usize) -> usize {
        self.pool.length(&self.packet(index))
    }

    #[inline(always)]
    fn is_one(&self, index: usize) -> bool {
        self.pool.is_plain_one(&self.packet(index)) || self.is_one_taken(index)
    }

    #[inline(always)]
    fn asks(&self, index: usize) -> bool {
        self.pool.asks(&self.packet(index))
    }

    #[inline(always)]
    fn first(&self, index: usize) -> Segment {
        self.pool.first(&self.packet(index))
    }

    fn is_plain(&self, index: usize) -> bool {
        self.takes.contain(self.pool.header(&self.packet(index)))
    }

    fn segments(&self, index: usize) -> impl Iterator<Item = Segment> {
        self.pool.segments(&self.packet(index))
    }

    #[inline(always)]
    fn header(&self, index: usize) -> Header {
        self.pool.header(&self.packet(index))
    }
}

/// A burst that receives packets of a pool. `HAS_HEADERS`: whether the guest may leave checksums to
/// the device. Otherwise the header of a packet has no meaning.
#[derive(Debug)]
pub(crate) struct PoolRoom<'a, const HAS_HEADERS: bool> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) burst: &'a mut Burst,
}

// SAFETY: the packets were just allocated, and the burst owns them.
unsafe impl<const HAS_HEADERS: bool> Incoming for PoolRoom<'_, HAS_HEADERS> {
    const CHECKS_HEADERS: bool = HAS_HEADERS;

    #[inline(always)]
    fn accepts(checksum: Checksum, length: usize) -> bool {
        checksum.is_inside(length)
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
        let packet = self.pool.take(length)?;
        let at = self.pool.first(&packet).pointer;
        self.burst.push(packet);
        Some(at)
    }

    #[inline]
    fn lacks(&mut self, checksum: Checksum) {
        if let Some(index) = self.burst.indices().last() {
            self.pool.set_header(&Packet::from_index(*index), Header::lacking(checksum));
        }
    }
}
