//! The rings of an AF_XDP socket: two counts and an array, in memory that is shared with the
//! kernel.
//!
//! The producer writes entries and then its count. The consumer reads entries and then writes its
//! own count. Both counts grow without end; an entry's index is its count modulo the length.

use std::io;
use std::sync::atomic::Ordering;

use rustix::fd::OwnedFd;
use rustix::net::xdp::XdpRingOffset;

use crate::interface::Mapping;

/// A packet in the shared memory: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) at: u64,
    pub(super) length: u32,
}

/// The size of an entry in bytes: of an address alone, and of a packet.
pub(super) const ADDRESS_BYTES: usize = 8;
pub(super) const DESCRIPTOR_BYTES: usize = 16;

/// This side's end of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    entry_bytes: usize,
    length: u32,
    /// The next count of this side, and the last known count of the other side.
    next: u32,
    other: u32,
}

impl Ring {
    /// A ring of `length` entries, a power of two, which the socket shares at `page`.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn map(
        socket: &OwnedFd,
        offset: &XdpRingOffset,
        page: u64,
        length: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        let bytes = offset.desc as usize + length as usize * entry_bytes;
        // A kernel without ring flags, before Linux 5.4, has no wakeup either.
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

    /// Whether the kernel wants a system call before it continues.
    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        self.memory.word(self.flags).load(Ordering::Relaxed) & WANTS_WAKEUP != 0
    }

    fn entry_offset(&self, behind: u32) -> usize {
        let index = self.next.wrapping_add(behind) & (self.length - 1);
        self.entries + index as usize * self.entry_bytes
    }

    /// How many entries this side may write. The value is up to date if it is below `wanted`.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |other: u32, next: u32| self.length - next.wrapping_sub(other);
        if room(self.other, self.next) < wanted {
            self.other = self.memory.word(self.consumer).load(Ordering::Acquire);
        }
        self.length - self.next.wrapping_sub(self.other).min(self.length)
    }

    /// Whether the kernel has consumed all entries.
    #[inline]
    pub(super) fn is_consumed(&mut self) -> bool {
        self.other = self.memory.word(self.consumer).load(Ordering::Acquire);
        self.other == self.next
    }

    /// Writes an entry that is an address. [`Ring::room`] must have returned room for it.
    #[inline]
    pub(super) fn put_address(&mut self, at: u64) {
        let offset = self.entry_offset(0);
        self.memory.part_mut(offset, ADDRESS_BYTES).copy_from_slice(&at.to_ne_bytes());
        self.next = self.next.wrapping_add(1);
    }

    /// Writes an entry that is a packet. [`Ring::room`] must have returned room for it.
    #[inline]
    pub(super) fn put(&mut self, packet: Descriptor) {
        let offset = self.entry_offset(0);
        let entry = self.memory.part_mut(offset, DESCRIPTOR_BYTES);
        entry[..8].copy_from_slice(&packet.at.to_ne_bytes());
        entry[8..12].copy_from_slice(&packet.length.to_ne_bytes());
        entry[12..].fill(0);
        self.next = self.next.wrapping_add(1);
    }

    /// Publishes the written entries to the kernel.
    #[inline]
    pub(super) fn publish(&self) {
        self.memory.word(self.producer).store(self.next, Ordering::Release);
    }

    /// How many entries can be read.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.other == self.next {
            self.other = self.memory.word(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.next).min(self.length)
    }

    /// Takes the next entry, an address. [`Ring::available`] must have returned at least one.
    #[inline]
    pub(super) fn take_address(&mut self) -> u64 {
        let at = self.number(self.entry_offset(0));
        self.next = self.next.wrapping_add(1);
        at
    }

    /// The next entry, a packet; the same entry until [`Ring::pass`]. [`Ring::available`] must
    /// have returned at least one.
    #[inline]
    pub(super) fn peek(&self) -> Descriptor {
        let offset = self.entry_offset(0);
        Descriptor { at: self.number(offset), length: self.memory.number(offset + 8) }
    }

    /// Moves to the next entry.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Returns the consumed entries to the kernel.
    #[inline]
    pub(super) fn release(&self) {
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
