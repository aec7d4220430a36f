//! Packets and memory as the code of a ring uses them, so that one code serves haul's own buffers
//! and buffers of other programs.

use std::fmt::Debug;
use std::ptr::NonNull;

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

/// A checksum of a packet that its sender has left out: `csum_start` and `csum_offset` of section
/// 5.1.6 of virtio 1.2, as the sender wrote them. They may lie outside the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// The offset in bytes at which the checksummed part of the packet begins.
    pub start: u16,
    /// The offset in bytes of the checksum behind `start`.
    pub offset: u16,
}

/// What a packet asks of the guest that receives it: the header of section 5.1.6 of virtio 1.2,
/// except for its number of buffers. Zero in every field for a packet that asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `flags`.
    pub flags: u8,
    /// `gso_type`: how the packet is to be divided into shorter ones.
    pub segmentation: u8,
    /// `hdr_len`: the size in bytes of the headers that each shorter packet repeats.
    pub header_bytes: u16,
    /// `gso_size`: the most bytes of each shorter packet behind its headers.
    pub segment_bytes: u16,
    /// `csum_start` and `csum_offset`.
    pub checksum: Checksum,
}

impl Header {
    /// The fields in the order of the header: the first eight bytes as a word of this machine, and
    /// the next two.
    #[inline(always)]
    pub(crate) fn words(self) -> (u64, u16) {
        let Self { flags, segmentation, header_bytes, segment_bytes, checksum } = self;
        let first = u64::from(flags)
            | u64::from(segmentation) << 8
            | u64::from(header_bytes) << 16
            | u64::from(segment_bytes) << 32
            | u64::from(checksum.start) << 48;
        (first.to_le(), checksum.offset.to_le())
    }
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
}

// SAFETY: the packets belong to a burst that the caller borrows.
unsafe impl Outgoing for PoolPackets<'_> {
    #[inline(always)]
    fn length(&self, index: usize) -> usize {
        self.pool.length(&Packet::from_index(self.indices[index]))
    }

    #[inline(always)]
    fn is_one(&self, index: usize) -> bool {
        self.pool.is_one(&Packet::from_index(self.indices[index]))
    }

    #[inline(always)]
    fn first(&self, index: usize) -> Segment {
        self.pool.first(&Packet::from_index(self.indices[index]))
    }

    fn is_plain(&self, _: usize) -> bool {
        true
    }

    fn segments(&self, index: usize) -> impl Iterator<Item = Segment> {
        self.pool.segments(&Packet::from_index(self.indices[index]))
    }

    #[inline(always)]
    fn header(&self, _: usize) -> Header {
        Header::default()
    }
}

/// A burst that receives packets of a pool.
#[derive(Debug)]
pub(crate) struct PoolRoom<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) burst: &'a mut Burst,
}

// SAFETY: the packets were just allocated, and the burst owns them.
unsafe impl Incoming for PoolRoom<'_> {
    /// haul's port offers no offloads, so that the header has no meaning.
    const CHECKS_HEADERS: bool = false;

    #[inline(always)]
    fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
        let packet = self.pool.take(length)?;
        let at = self.pool.first(&packet).pointer;
        self.burst.push(packet);
        Some(at)
    }
    fn lacks(&mut self, _: Checksum) {
        // The headers have no meaning here.
    }
}
