//! Packets from the host to the guest.
//!
//! A packet costs cache misses and little else: the heads of chains, their descriptors and the
//! buffers were written last by the guest's processor, so that each is a line from its cache. So a
//! burst goes in passes, and the misses of one pass are under way together:
//!
//! ```text
//! for each packet: read the chain's head
//! for each:        read its descriptor, once; check it; look its address up; ask for the lines of
//!                  the buffer, to write
//! for each:        write the header where it differs; note the copy; put the used entry
//! copy all;  show the guest the used index, once;  call it if it waits
//! ```
//!
//! What is not one descriptor with room for header and packet goes through [`gather`](Active), one
//! packet at a time.

use std::ptr::NonNull;

use super::super::copy::{Copier, Part};
use super::super::counters::{Direction, DropReason};
use super::super::pool::{Burst, Packet, Pool};
use super::super::ring::features::{self, HEADER_BYTES_MAX};
use super::super::ring::prefetch;
use super::super::ring::split::WRITE;
use super::chain::{Gathered, PACKET_DESCRIPTORS_MAX, Piece, Scratch, zip};
use super::layout::{Bad, Broken, Chain, First, Layout};
use super::vring::{Active, AnyActive};

/// What became of a burst's first packets.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    packets: usize,
    bytes: u64,
    /// Packets that were taken from the burst, sent or dropped.
    gone: usize,
}

/// What became of one packet.
enum One {
    Sent,
    Dropped(DropReason),
    /// The guest has no room for it.
    Waits,
}

impl AnyActive {
    /// As [`Active::enqueue`].
    #[inline]
    pub(super) fn enqueue(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        match self {
            Self::Split(active) => active.enqueue(pool, burst, copier, scratch, counts),
            Self::Packed(active) => active.enqueue(pool, burst, copier, scratch, counts),
        }
    }
}

impl<L: Layout> Active<L> {
    /// Moves packets from the burst into the guest's buffers, as many as it has; nothing is shown
    /// to it yet. Those that are gone from the burst are freed.
    ///
    /// # Errors
    /// [`Broken`]; the burst is then as it was, and nothing of it is counted.
    fn enqueue(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        if self.rest.is_on() {
            counts.batch(0, 0);
            return Ok(0);
        }
        scratch.parts.clear();
        let mut done = Done::default();
        scratch.drops.clear();
        self.followed = 0;
        while done.gone < burst.len() && self.may_follow() {
            let packets = &burst.indices()[done.gone..];
            let wanted = packets.len().min(scratch.firsts.len());
            let ready = self.ring.look(&mut scratch.firsts[..wanted])?;
            let fast = self.enqueue_fast(pool, packets, ready, scratch);
            done.packets += fast.packets;
            done.bytes += fast.bytes;
            done.gone += fast.gone;
            if fast.gone == ready {
                if ready < wanted {
                    break;
                }
                continue;
            }
            let packet = Packet::from_index(burst.indices()[done.gone]);
            match self.enqueue_one(pool, &packet, scratch)? {
                One::Sent => {
                    done.packets += 1;
                    done.bytes += pool.length(&packet) as u64;
                }
                One::Dropped(reason) => scratch.drops.push(reason),
                One::Waits => break,
            }
            done.gone += 1;
        }
        // SAFETY: sources are packets of the burst, targets were looked up in the guest's memory,
        // which this ring keeps; each for its length.
        unsafe { copy(copier, &scratch.parts) };
        if self.memory.is_broken() {
            return Err(Broken);
        }
        if done.gone < burst.len() && self.may_follow() {
            self.rest.full(self.ring.size());
        }
        pool.free_first(burst, done.gone);
        scratch.drops.iter().for_each(|reason| counts.dropped(*reason, 1));
        counts.batch(done.packets, done.bytes);
        Ok(done.packets)
    }

    /// The packets, from the first on, whose buffers are one descriptor each with room for all.
    #[inline]
    fn enqueue_fast(
        &mut self,
        pool: &Pool,
        packets: &[u32],
        ready: usize,
        scratch: &mut Scratch,
    ) -> Done {
        let mut fit = 0;
        let firsts = &scratch.firsts[..ready];
        for ((packet, first), place) in packets.iter().zip(firsts).zip(&mut scratch.places) {
            let packet = Packet::from_index(*packet);
            let First { id, flags, length, address } = *first;
            let needed = self.header_bytes + pool.length(&packet);
            let is_fit = flags == WRITE
                && length as usize >= needed
                && self.ring.has_id(id)
                && pool.is_one(&packet);
            if !is_fit {
                break;
            }
            let found = self.memory.at(&mut self.cached, address, needed as u64);
            let Some(at) = found else { break };
            fetch(at, self.header_bytes, needed);
            *place = at;
            fit += 1;
        }
        let mut bytes = 0;
        for ((packet, first), at) in packets[..fit].iter().zip(firsts).zip(&scratch.places) {
            let (source, at) = (pool.first(&Packet::from_index(*packet)), *at);
            put_header(at, self.header_bytes);
            // SAFETY: the buffer has room for header and packet, as was just looked up.
            let target = unsafe { at.add(self.header_bytes) };
            let (target, length) = (target.as_ptr(), source.length);
            scratch.parts.push(Part { target, source: source.pointer.as_ptr(), length });
            let chain = Chain { id: first.id, descriptors: 1 };
            self.ring.use_chain(chain, (self.header_bytes + length) as u32);
            bytes += length as u64;
        }
        Done { packets: fit, bytes, gone: fit }
    }

    /// One packet, whatever its chains look like.
    #[cold]
    fn enqueue_one(
        &mut self,
        pool: &Pool,
        packet: &Packet,
        scratch: &mut Scratch,
    ) -> Result<One, Broken> {
        let needed = self.header_bytes + pool.length(packet);
        let followed = self.followed;
        scratch.pieces.clear();
        let (mut room, mut chains, mut place) = (0, 0_usize, self.ring.place());
        // The used entries: each chain and how much of the packet it takes.
        let mut taken = [(Chain::default(), 0_u32); CHAINS_MAX];
        while room < needed {
            let is_long = self.followed - followed > PACKET_DESCRIPTORS_MAX;
            if chains == CHAINS_MAX || is_long || (chains > 0 && !self.is_mergeable) {
                // Without mergeable buffers no later chain can help.
                return Ok(self.give_back(&taken[..chains], DropReason::TooLong));
            }
            let gathered = self.gather(place, true, &mut scratch.pieces)?;
            let Some(Gathered { chain, bytes, next }) = gathered else { return Ok(One::Waits) };
            let length = bytes.unwrap_or(0);
            taken[chains] = (chain, length.min(needed - room) as u32);
            (chains, place) = (chains + 1, next);
            if bytes == Err(Bad) {
                return Ok(self.give_back(&taken[..chains], DropReason::BadDescriptor));
            }
            room += length;
        }
        let count = if self.header_bytes < HEADER_BYTES_MAX { 0 } else { chains as u16 };
        let header = features::header(count);
        let header = &header[..self.header_bytes];
        // The first chain holds at least the header, or its length says less and the guest reads a
        // header of it that goes on in the next: section 5.1.6.4 has it in the first.
        let pieces = || scratch.pieces.iter().map(|Piece { at, length }| (*at, *length));
        let source = std::iter::once((NonNull::from(header).cast(), header.len()));
        zip(pieces(), 0, source, |target, source, length| {
            // SAFETY: the target is of the guest's memory, as gathered, the source of the header.
            unsafe { haul_copy::memcpy(target.as_ptr(), source.as_ptr(), length) }
        });
        let segments = pool.segments(packet).map(|segment| (segment.pointer, segment.length));
        zip(pieces(), self.header_bytes, segments, |target, source, length| {
            let (target, source) = (target.as_ptr(), source.as_ptr());
            scratch.parts.push(Part { target, source, length });
        });
        for (chain, written) in &taken[..chains] {
            self.ring.use_chain(*chain, *written);
        }
        Ok(One::Sent)
    }

    /// Gives chains back with nothing in them.
    fn give_back(&mut self, taken: &[(Chain, u32)], reason: DropReason) -> One {
        for (chain, _) in taken {
            self.ring.use_chain(*chain, 0);
        }
        One::Dropped(reason)
    }
}

/// Most chains of one packet: buffers of 64 B still hold the longest.
const CHAINS_MAX: usize = 256;

/// Bytes of a packet whose lines are asked for before they are written; the processor sees from
/// there where it goes.
const FETCH_BYTES: usize = 128;

/// Packets whose lines are asked for before the copy comes to them.
const AHEAD: usize = 2;

/// Copies a burst. Lines of long packets beyond the first are asked for some packets ahead, each to
/// write it: 1500 B went to the guest at 13.5 Mpps, at 10.5 where the copy finds them missing, and
/// at 10.3 where they are asked for in the second cache alone.
///
/// # Safety
/// As [`Copier::copy_batch`].
#[inline]
unsafe fn copy(copier: &Copier, parts: &[Part]) {
    if !copier.writes_targets() || parts.iter().all(|part| part.length <= FETCH_BYTES) {
        // SAFETY: the caller's promise.
        return unsafe { copier.copy_batch(parts) };
    }
    parts.iter().take(AHEAD).for_each(fetch_all);
    for (index, part) in parts.iter().enumerate() {
        parts.get(index + AHEAD).into_iter().for_each(fetch_all);
        // SAFETY: the caller's promise.
        unsafe { copier.copy_batch(std::slice::from_ref(part)) };
    }
}

/// Asks for all lines of a copy's target, to write them.
#[inline(always)]
fn fetch_all(part: &Part) {
    prefetch::lines(part.target, part.length).for_each(prefetch::to_write);
}

/// Asks for the header's line to read it, for it mostly stands there already, and the guest's copy
/// of the line is then left alone; for those of the packet to write them. Behind a header in an
/// aligned buffer, as a kernel's driver has it, 64 B stand in two lines: they went to the guest at
/// 20.8 Mpps, at 17.3 where the second was not asked for.
#[inline(always)]
fn fetch(at: NonNull<u8>, header_bytes: usize, bytes: usize) {
    prefetch::to_read(at.as_ptr());
    let packet_bytes = (bytes - header_bytes).min(FETCH_BYTES);
    let packet = at.as_ptr().wrapping_add(header_bytes);
    prefetch::lines(packet, packet_bytes).for_each(prefetch::to_write);
}

/// Writes the header of a packet in one buffer, unless it stands there already: the line is then
/// not dirty, and the guest's copy of it stays.
#[inline(always)]
fn put_header(at: NonNull<u8>, bytes: usize) {
    let has_count = bytes == HEADER_BYTES_MAX;
    let tail = if has_count { u32::from(1_u16.to_le()) << 16 } else { 0 };
    let first = at.cast::<u64>().as_ptr();
    // SAFETY: the buffer has the header's bytes; whatever the guest writes there meanwhile, it is
    // the guest that reads it.
    if unsafe { first.read_unaligned() } != 0 {
        // SAFETY: as above.
        unsafe { first.write_unaligned(0) };
    }
    // SAFETY: as above, and a header has 10 bytes at least.
    let second = unsafe { at.add(8) };
    if has_count {
        let second = second.cast::<u32>().as_ptr();
        // SAFETY: as above, for a header of 12 bytes.
        if unsafe { second.read_unaligned() } != tail {
            // SAFETY: as above.
            unsafe { second.write_unaligned(tail) };
        }
    } else {
        // SAFETY: as above, for one of 10.
        unsafe { second.cast::<u16>().as_ptr().write_unaligned(0) };
    }
}
