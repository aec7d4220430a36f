//! Packets from the guest to the host, with the passes of [`enqueue`](super::enqueue) in the
//! other direction.

use std::ops::Range;
use std::ptr::NonNull;

use super::chain::{Gathered, Piece, Scratch, zip};
use super::enqueue::{Fast, Single};
use super::layout::{Bad, Broken, Chain, First, Layout};
use super::vring::{Active, AnyActive};
use crate::copy::{Copier, Part};
use crate::counters::{Direction, DropReason};
use crate::offloads::{Checksum, Header, NEEDS_CHECKSUM};
use crate::packets::{GuestMemory, Incoming, PoolRoom};
use crate::pool::{Burst, MERGED_BYTES_MAX, PACKET_BYTES_MAX, Pool, ROOM_BYTES};
use crate::ring::prefetch;
use haul_peer::guest::Guest;

/// Shortest packet that is received: an Ethernet header.
const PACKET_BYTES_MIN: usize = 14;

/// Longest packet whose lines are all prefetched before the copy, and most bytes of a burst of such
/// packets: three quarters of a first-level cache of 32 KiB.
const FETCHED_BYTES_MAX: usize = 768;
const FETCHED_BURST_BYTES_MAX: usize = 24 << 10;

/// The first bytes of a piece of a longer packet, which are prefetched while the next chain is
/// looked up. 4000 B pass at 1.01 of DPDK's rate, and at 0.96 and 0.97 with 256 and 1,024 bytes.
const PIECE_FETCHED_BYTES: usize = 512;

/// The result for one chain.
enum Outcome {
    Received(usize),
    Dropped(DropReason),
    /// No chain is available, or the pool has no buffer for its packet.
    Waits,
}

impl AnyActive {
    /// See [`Active::dequeue`].
    #[inline]
    pub(super) fn dequeue(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        match self {
            Self::Split(active) => active.dequeue(pool, burst, copier, scratch, counts),
            Self::Packed(active) => active.dequeue(pool, burst, copier, scratch, counts),
            // Rings from the guest have no engine.
            Self::SplitAhead(_) | Self::PackedAhead(_) => Ok(0),
        }
    }
}

impl<L: Layout, M: GuestMemory> Active<L, M> {
    /// Dequeues these chains of `scratch.firsts`, from the first on, while each is one descriptor
    /// whose packet has at most `longest` bytes and fits into one buffer.
    #[inline]
    pub(super) fn dequeue_fast<P: Incoming>(
        &mut self,
        room: &mut P,
        longest: usize,
        chains: Range<usize>,
        scratch: &mut Scratch,
    ) -> Fast {
        let (header_bytes, ready) = (self.header_bytes, chains.len());
        let before = scratch.parts.len();
        let firsts = &scratch.firsts[chains];
        for first in firsts {
            let First { id, flags, length: bytes, address } = *first;
            let length = (bytes as usize).wrapping_sub(header_bytes);
            let is_fit = flags == 0
                && (PACKET_BYTES_MIN..=longest).contains(&length)
                && self.ring.has_id(id);
            if !is_fit {
                break;
            }
            let Some(at) = self.memory.at(&mut self.cached, address, bytes.into()) else { break };
            if P::CHECKS_HEADERS {
                prefetch::to_read(at.as_ptr());
            }
            // SAFETY: the descriptor has more bytes than the header, as checked above.
            let source = unsafe { at.add(header_bytes) }.as_ptr().cast_const();
            fetch(source, length, ready);
            scratch.parts.push(Part { target: std::ptr::null_mut(), source, length });
        }
        let (mut packets, mut bytes) = (0, 0);
        for (part, first) in scratch.parts[before..].iter_mut().zip(firsts) {
            let mut request = Request::Copy;
            if P::CHECKS_HEADERS {
                let header = part.source.wrapping_sub(header_bytes);
                // SAFETY: the header lies in front of the packet, as looked up above.
                request = unsafe { Request::of(header) };
                if !request.is_served::<P>(self.may_leave.checksums, part.length) {
                    break;
                }
            }
            let Some(target) = room.take(part.length) else { break };
            if let Request::Checksum(checksum) = request {
                room.lacks(checksum);
            }
            part.target = target.as_ptr();
            bytes += part.length as u64;
            self.ring.use_chain(Chain { id: first.id, descriptors: 1 }, 0);
            packets += 1;
        }
        scratch.parts.truncate(before + packets);
        Fast { packets, bytes }
    }
}

/// What the header in front of a packet asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Nothing but a copy.
    Copy,
    Checksum(Checksum),
    /// A segmentation, or an unknown flag.
    Other,
}

impl Request {
    /// Reads each word of a header once: `flags` and `gso_type` of section 5.1.6, and, if the
    /// packet lacks a checksum, `csum_start` and `csum_offset`.
    ///
    /// # Safety
    /// The header's first 10 bytes can be read.
    #[inline(always)]
    unsafe fn of(header: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let kind = unsafe { header.cast::<[u8; 2]>().read_volatile() };
        match kind {
            [0, 0] => Self::Copy,
            [NEEDS_CHECKSUM, 0] => {
                let words = header.wrapping_add(CHECKSUM_AT).cast::<[[u8; 2]; 2]>();
                // SAFETY: the caller's promise.
                let [start, offset] = unsafe { words.read_volatile() }.map(u16::from_le_bytes);
                Self::Checksum(Checksum { start, offset })
            }
            _ => Self::Other,
        }
    }

    /// Whether a copy, and the record of a checksum, are all that a packet of `length` bytes needs.
    /// Without the feature, a header has no checksum.
    #[inline(always)]
    fn is_served<P: Incoming>(self, has_checksums: bool, length: usize) -> bool {
        match self {
            Self::Copy => true,
            Self::Checksum(checksum) => has_checksums && P::accepts(checksum, length),
            Self::Other => false,
        }
    }
}

/// The offset of `csum_start` in a header, section 5.1.6.
const CHECKSUM_AT: usize = 6;

impl<L: Layout, M: GuestMemory> Active<L, M> {
    /// Dequeues a chain of any form whose packet has at most `longest` bytes and fits into one
    /// buffer.
    #[inline(never)]
    pub(super) fn dequeue_gathered<P: Incoming>(
        &mut self,
        room: &mut P,
        longest: usize,
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Result<Single, Broken> {
        scratch.pieces.clear();
        let gathered = self.gather(self.ring.location(), false, &mut scratch.pieces)?;
        let Some(Gathered { chain, bytes, .. }) = gathered else { return Ok(Single::Waits) };
        let Ok(bytes) = bytes else { return Ok(Single::Stops) };
        let length = bytes.wrapping_sub(self.header_bytes);
        if !(PACKET_BYTES_MIN..=longest).contains(&length) {
            return Ok(Single::Stops);
        }
        let pieces = || scratch.pieces.iter().map(|Piece { at, length }| (*at, *length));
        let mut request = Request::Copy;
        if P::CHECKS_HEADERS {
            let header = gathered_header(pieces());
            // SAFETY: the header has 10 bytes.
            request = unsafe { Request::of(header.as_ptr()) };
        }
        if !request.is_served::<P>(self.may_leave.checksums, length) {
            return Ok(Single::Stops);
        }
        let Some(target) = room.take(length) else { return Ok(Single::Stops) };
        if let Request::Checksum(checksum) = request {
            room.lacks(checksum);
        }
        self.ring.use_chain(chain, 0);
        let target = std::iter::once((target, length));
        // SAFETY: the sources of recorded parts were looked up in the guest's memory, which this
        // ring keeps mapped; their targets are buffers of this burst; each is valid for its length.
        unsafe { add_parts(scratch, self.header_bytes, target, length, copier) };
        Ok(Single::Passed { chains: 1 })
    }
}

/// The header at the beginning of these pieces, which have more bytes than a header. Each byte is
/// copied once.
fn gathered_header(pieces: impl Iterator<Item = (NonNull<u8>, usize)>) -> [u8; Header::BYTES] {
    let mut header = [0_u8; Header::BYTES];
    let target = std::iter::once((NonNull::from(&mut header).cast(), header.len()));
    zip(pieces, 0, target, |source, target, length| {
        // SAFETY: the source lies in the guest's memory, as gathered, and the target in the header.
        unsafe { haul_copy::memcpy(target.as_ptr(), source.as_ptr(), length) }
    });
    header
}

impl<L: Layout> Active<L, Guest> {
    /// Appends packets of the guest to the burst, as many as are available and fit. The guest sees
    /// the used chains after [`Layout::publish`].
    ///
    /// # Errors
    /// [`Broken`]; the burst then holds no packet of this call.
    fn dequeue(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        if self.back_off.is_active() {
            counts.batch(0, 0);
            return Ok(0);
        }
        scratch.parts.clear();
        self.followed = 0;
        let before = burst.len();
        let result = self.dequeue_chains(pool, burst, copier, scratch, counts);
        // SAFETY: sources were looked up in the guest's memory, which this ring keeps mapped, and
        // targets are packets that were just allocated; each is valid for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        let packets = burst.len() - before;
        match result {
            Ok(bytes) if !self.memory.is_broken() => {
                if packets > 0 || burst.room() > 0 && self.may_follow() {
                    self.back_off.record_poll(packets);
                }
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

    /// Allocates packets for the available chains, and records the copies that remain. Returns the
    /// number of bytes.
    #[inline]
    fn dequeue_chains(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<u64, Broken> {
        let mut bytes = 0;
        // Dropped chains need time as well.
        while burst.room() > 0 && self.may_follow() {
            let wanted = burst.room().min(scratch.firsts.len());
            let ready = self.ring.poll(&mut scratch.firsts[..wanted])?;
            let (pool, burst) = (&mut *pool, &mut *burst);
            // A guest without the feature costs no access to headers.
            let fast = if self.may_leave.checksums {
                let mut room = PoolRoom::<true> { pool, burst };
                self.dequeue_fast(&mut room, ROOM_BYTES, 0..ready, scratch)
            } else {
                let mut room = PoolRoom::<false> { pool, burst };
                self.dequeue_fast(&mut room, ROOM_BYTES, 0..ready, scratch)
            };
            bytes += fast.bytes;
            if fast.packets == ready {
                if ready < wanted {
                    break;
                }
                continue;
            }
            match self.dequeue_one(pool, burst, copier, scratch)? {
                Outcome::Received(length) => bytes += length as u64,
                Outcome::Dropped(reason) => counts.dropped(reason, 1),
                Outcome::Waits => break,
            }
        }
        Ok(bytes)
    }

    /// Dequeues one chain of any form.
    #[cold]
    fn dequeue_one(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
    ) -> Result<Outcome, Broken> {
        scratch.pieces.clear();
        let gathered = self.gather(self.ring.location(), false, &mut scratch.pieces)?;
        let Some(Gathered { chain, bytes, .. }) = gathered else { return Ok(Outcome::Waits) };
        let (length, header) = match self.asked(bytes, &scratch.pieces) {
            Ok(asked) => asked,
            Err(reason) => {
                self.ring.use_chain(chain, 0);
                return Ok(Outcome::Dropped(reason));
            }
        };
        // The chain stays in the ring until the pool has a buffer.
        let Some(packet) = pool.take_merged(length) else { return Ok(Outcome::Waits) };
        self.ring.use_chain(chain, 0);
        if header != Header::default() {
            pool.set_header(&packet, header);
        }
        let segments = pool.segments(&packet).map(|segment| (segment.pointer, segment.length));
        // SAFETY: the sources of recorded parts were looked up in the guest's memory, which this
        // ring keeps mapped; their targets are packets of this burst, which are freed only after
        // its copies; each is valid for its length.
        unsafe { add_parts(scratch, self.header_bytes, segments, length, copier) };
        burst.push(packet);
        Ok(Outcome::Received(length))
    }

    /// The length of the packet in the pieces of a chain, and what it asks for.
    ///
    /// # Errors
    /// The reason to drop the packet.
    fn asked(
        &self,
        bytes: Result<usize, Bad>,
        pieces: &[Piece],
    ) -> Result<(usize, Header), DropReason> {
        let bytes = bytes.map_err(|Bad| DropReason::BadDescriptor)?;
        if bytes < self.header_bytes + PACKET_BYTES_MIN {
            return Err(DropReason::TooShort);
        }
        let length = bytes - self.header_bytes;
        let mut header = Header::default();
        // Without the feature, the header of a packet has no meaning.
        if self.may_leave.checksums {
            let given = gathered_header(pieces.iter().map(|Piece { at, length }| (*at, *length)));
            let checked = Header::parse(given).checked(length, self.may_leave);
            header = checked.ok_or(DropReason::BadDescriptor)?;
        }
        let is_merged = header.segmentation != 0;
        let longest = if is_merged { MERGED_BYTES_MAX } else { PACKET_BYTES_MAX };
        if length > longest { Err(DropReason::TooLong) } else { Ok((length, header)) }
    }
}

/// Records the copies of a packet of `length` bytes from the pieces in `scratch`. If it is long,
/// the recorded copies of earlier packets are made first, and the packet's own first lines arrive
/// while the next chain is looked up: 4000 B from the guest then pass at 1.01 of DPDK's rate
/// instead of 0.93 with all copies at the burst's end, and of 0.87 with each at once
/// (`bench/record/2026-11-28-emerald-rapids-2cpu-forward-turns`).
///
/// # Safety
/// The obligations of [`Copier::copy_batch`] hold for each recorded part. Those that are added are
/// copied by a later call.
#[inline(always)]
unsafe fn add_parts(
    scratch: &mut Scratch,
    header_bytes: usize,
    targets: impl Iterator<Item = (NonNull<u8>, usize)>,
    length: usize,
    copier: &Copier,
) {
    let Scratch { pieces, parts, .. } = scratch;
    let is_long = length > FETCHED_BYTES_MAX;
    if is_long {
        // SAFETY: the caller's promise.
        unsafe { copier.copy_batch(parts) };
        parts.clear();
    }
    let pieces = pieces.iter().map(|Piece { at, length }| (*at, *length));
    zip(pieces, header_bytes, targets, |source, target, length| {
        let (target, source) = (target.as_ptr(), source.as_ptr().cast_const());
        if is_long {
            let fetched = length.min(PIECE_FETCHED_BYTES);
            prefetch::lines(source, fetched).for_each(prefetch::to_read);
        }
        parts.push(Part { target, source, length });
    });
}

/// Prefetches the lines of a packet, in a burst of `packets`, bypassing the second-level cache.
/// The host reads these lines only once, and the guest, which writes them next, is then faster.
/// Packets of 512 B arrived at 32.6 Mpps instead of 28.0 in packed rings, packets of 768 B at
/// 20.0 instead of 17.3 in split ones. For longer packets only the first line is prefetched,
/// because not all lines would stay in the first-level cache (1500 B: 9.7 instead of 17.7).
#[inline(always)]
fn fetch(source: *const u8, length: usize, packets: usize) {
    if length > FETCHED_BYTES_MAX || length * packets > FETCHED_BURST_BYTES_MAX {
        return prefetch::to_read(source);
    }
    prefetch::lines(source, length).for_each(prefetch::to_read_once);
}
