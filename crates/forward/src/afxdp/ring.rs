//! The rings of a socket of XDP: two counts and an array, in memory that is shared with the kernel.
//!
//! One side writes entries and then the producer's count, the other takes entries and then writes
//! the consumer's. Both counts run on without end; an entry's place is its count modulo the length.

use std::io;
use std::sync::atomic::Ordering;

use rustix::fd::OwnedFd;
use rustix::net::xdp::XdpRingOffset;

use super::super::interface::Mapping;

/// A packet in the shared memory: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) at: u64,
    pub(super) length: u32,
}

/// Bytes of an entry: a place alone, or a packet.
pub(super) const PLACE_BYTES: usize = 8;
pub(super) const DESCRIPTOR_BYTES: usize = 16;

/// The end of a ring that this side has.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    entry_bytes: usize,
    length: u32,
    /// The count that this side writes next, and the other side's as it was last seen.
    next: u32,
    other: u32,
}

impl Ring {
    /// A ring of `length` entries, a power of two, which the socket shares at `page`.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn map(
        socket: &OwnedFd,
        offset: &XdpRingOffset,
        page: u64,
        length: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        let bytes = offset.desc as usize + length as usize * entry_bytes;
        // A kernel without flags of a ring has no wakeup to ask for either: before Linux 5.4.
        let flags = offset.flags.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self {
            memory: Mapping::of(socket, bytes, page)?,
            producer: offset.producer as usize,
            consumer: offset.consumer as usize,
            flags: flags as usize,
            entries: offset.desc as usize,
            entry_bytes,
            length,
            next: 0,
            other: 0,
        })
    }

    /// Whether the kernel wants a system call before it goes on.
    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        self.memory.word(self.flags).load(Ordering::Relaxed) & WANTS_WAKEUP != 0
    }

    fn place(&self, behind: u32) -> usize {
        let index = self.next.wrapping_add(behind) & (self.length - 1);
        self.entries + index as usize * self.entry_bytes
    }

    /// How many entries this side may write, at least `wanted` if so many are free.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |other: u32, next: u32| self.length - next.wrapping_sub(other);
        if room(self.other, self.next) < wanted {
            self.other = self.memory.word(self.consumer).load(Ordering::Acquire);
        }
        self.length - self.next.wrapping_sub(self.other).min(self.length)
    }

    /// Whether the kernel has taken all that was written.
    #[inline]
    pub(super) fn is_taken(&mut self) -> bool {
        self.other = self.memory.word(self.consumer).load(Ordering::Acquire);
        self.other == self.next
    }

    /// Writes an entry that is a place; [`Ring::room`] has said that there is room.
    #[inline]
    pub(super) fn put_place(&mut self, at: u64) {
        let place = self.place(0);
        self.memory.part_mut(place, PLACE_BYTES).copy_from_slice(&at.to_ne_bytes());
        self.next = self.next.wrapping_add(1);
    }

    /// Writes an entry that is a packet, likewise.
    #[inline]
    pub(super) fn put(&mut self, packet: Descriptor) {
        let place = self.place(0);
        let entry = self.memory.part_mut(place, DESCRIPTOR_BYTES);
        entry[..8].copy_from_slice(&packet.at.to_ne_bytes());
        entry[8..12].copy_from_slice(&packet.length.to_ne_bytes());
        entry[12..].fill(0);
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was written.
    #[inline]
    pub(super) fn publish(&self) {
        self.memory.word(self.producer).store(self.next, Ordering::Release);
    }

    /// How many entries there are to take.
    #[inline]
    pub(super) fn found(&mut self) -> u32 {
        if self.other == self.next {
            self.other = self.memory.word(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.next).min(self.length)
    }

    /// The next entry, a place; [`Ring::found`] has said that there is one.
    #[inline]
    pub(super) fn take_place(&mut self) -> u64 {
        let at = self.number(self.place(0));
        self.next = self.next.wrapping_add(1);
        at
    }

    /// The next entry, a packet, likewise; it stays the next one until [`Ring::pass`].
    #[inline]
    pub(super) fn peek(&self) -> Descriptor {
        let place = self.place(0);
        Descriptor { at: self.number(place), length: self.memory.number(place + 8) }
    }

    /// On to the entry after it.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Gives the kernel the entries that were taken.
    #[inline]
    pub(super) fn give_back(&self) {
        self.memory.word(self.consumer).store(self.next, Ordering::Release);
    }

    fn number(&self, at: usize) -> u64 {
        let (low, high) = (self.memory.number(at), self.memory.number(at + 4));
        match cfg!(target_endian = "little") {
            true => u64::from(high) << 32 | u64::from(low),
            false => u64::from(low) << 32 | u64::from(high),
        }
    }
}

/// `XDP_RING_NEED_WAKEUP`.
const WANTS_WAKEUP: u32 = 1;
