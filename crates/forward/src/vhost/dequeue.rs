//! Packets from the guest to the host: the passes of
//! [`enqueue`](super::enqueue) the other way round.

use super::super::copy::{Copier, Part};
use super::super::counters::{Direction, DropReason};
use super::super::pool::{Burst, PACKET_BYTES_MAX, Pool, ROOM_BYTES};
use super::super::ring::prefetch;
use super::chain::{Gathered, Piece, Scratch, zip};
use super::layout::{Bad, Broken, Chain, First, Layout};
use super::vring::{Active, AnyActive};

/// Shortest packet that is taken: an Ethernet header.
const PACKET_BYTES_MIN: usize = 14;

/// Longest packet whose lines are all asked for before the copy, and most bytes of a burst of them:
/// three quarters of a first cache of 32 KiB.
const FETCHED_BYTES_MAX: usize = 768;
const FETCHED_BURST_BYTES_MAX: usize = 24 << 10;

/// What became of one chain.
enum One {
    Came(usize),
    Dropped(DropReason),
    /// There is none, or no buffer for it.
    Waits,
}

impl AnyActive {
    /// As [`Active::dequeue`].
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
        }
    }
}

impl<L: Layout> Active<L> {
    /// Appends packets of the guest's to the burst, as many as there are and fit; nothing is shown
    /// to it yet.
    ///
    /// # Errors
    /// [`Broken`]; nothing of this call is in the burst then.
    fn dequeue(
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
        self.followed = 0;
        let before = burst.len();
        let result = self.take_chains(pool, burst, scratch, counts);
        // SAFETY: sources were looked up in the guest's memory, which this ring keeps, targets are
        // packets that were just taken; each for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        let packets = burst.len() - before;
        match result {
            Ok(bytes) if !self.memory.is_broken() => {
                if packets > 0 || burst.room() > 0 && self.may_follow() {
                    self.rest.found(packets);
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

    /// Takes packets for the chains that are there, and notes what is to be copied; how many bytes.
    #[inline]
    fn take_chains(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<u64, Broken> {
        let mut bytes = 0;
        // Chains that are dropped take time as well.
        while burst.room() > 0 && self.may_follow() {
            let wanted = burst.room().min(scratch.firsts.len());
            let ready = self.ring.look(&mut scratch.firsts[..wanted])?;
            let (packets, fast_bytes) = self.dequeue_fast(pool, burst, ready, scratch);
            bytes += fast_bytes;
            if packets == ready {
                if ready < wanted {
                    break;
                }
                continue;
            }
            match self.dequeue_one(pool, burst, scratch)? {
                One::Came(length) => bytes += length as u64,
                One::Dropped(reason) => counts.dropped(reason, 1),
                One::Waits => break,
            }
        }
        Ok(bytes)
    }

    /// The chains, from the first on, that are one descriptor each with a packet of one buffer; how
    /// many there were, and their packets' bytes.
    #[inline]
    fn dequeue_fast(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        ready: usize,
        scratch: &mut Scratch,
    ) -> (usize, u64) {
        let header_bytes = self.header_bytes;
        let before = scratch.parts.len();
        for first in &scratch.firsts[..ready] {
            let First { id, flags, length: bytes, address } = *first;
            let length = (bytes as usize).wrapping_sub(header_bytes);
            let is_fit = flags == 0
                && (PACKET_BYTES_MIN..=ROOM_BYTES).contains(&length)
                && self.ring.has_id(id);
            if !is_fit {
                break;
            }
            let Some(at) = self.memory.at(&mut self.cached, address, bytes.into()) else { break };
            // SAFETY: the descriptor has more bytes than the header, as was just seen.
            let source = unsafe { at.add(header_bytes) }.as_ptr().cast_const();
            fetch(source, length, ready);
            scratch.parts.push(Part { target: std::ptr::null_mut(), source, length });
        }
        let (mut taken, mut bytes) = (0, 0);
        for (part, first) in scratch.parts[before..].iter_mut().zip(&scratch.firsts) {
            let Some(packet) = pool.take(part.length) else { break };
            part.target = pool.first(&packet).pointer.as_ptr();
            burst.push(packet);
            bytes += part.length as u64;
            self.ring.use_chain(Chain { id: first.id, descriptors: 1 }, 0);
            taken += 1;
        }
        scratch.parts.truncate(before + taken);
        (taken, bytes)
    }

    /// One chain, whatever it looks like.
    #[cold]
    fn dequeue_one(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        scratch: &mut Scratch,
    ) -> Result<One, Broken> {
        scratch.pieces.clear();
        let gathered = self.gather(self.ring.place(), false, &mut scratch.pieces)?;
        let Some(Gathered { chain, bytes, .. }) = gathered else { return Ok(One::Waits) };
        let packet = match bytes {
            Err(Bad) => Err(DropReason::BadDescriptor),
            Ok(bytes) if bytes < self.header_bytes + PACKET_BYTES_MIN => Err(DropReason::TooShort),
            Ok(bytes) if bytes - self.header_bytes > PACKET_BYTES_MAX => Err(DropReason::TooLong),
            Ok(bytes) => match pool.take(bytes - self.header_bytes) {
                Some(packet) => Ok(packet),
                // It stays where it is until there is a buffer.
                None => return Ok(One::Waits),
            },
        };
        self.ring.use_chain(chain, 0);
        let packet = match packet {
            Ok(packet) => packet,
            Err(reason) => return Ok(One::Dropped(reason)),
        };
        let pieces = scratch.pieces.iter().map(|Piece { at, length }| (*at, *length));
        let segments = pool.segments(&packet).map(|segment| (segment.pointer, segment.length));
        zip(pieces, self.header_bytes, segments, |source, target, length| {
            let (target, source) = (target.as_ptr(), source.as_ptr().cast_const());
            scratch.parts.push(Part { target, source, length });
        });
        let length = pool.length(&packet);
        burst.push(packet);
        Ok(One::Came(length))
    }
}

/// Asks for the lines of a packet of a burst of so many, past the second cache: they are read once,
/// and the guest, which writes to them next, is quicker then. 512 B came at 32.6 Mpps in packed
/// rings where it was 28.0, 768 B at 20.0 in split ones where it was 17.3. Of longer packets the
/// first line alone is asked for: not all would stay in the first cache (1500 B: 9.7 where it was
/// 17.7).
#[inline(always)]
fn fetch(source: *const u8, length: usize, packets: usize) {
    if length > FETCHED_BYTES_MAX || length * packets > FETCHED_BURST_BYTES_MAX {
        return prefetch::to_read(source);
    }
    prefetch::lines(source, length).for_each(prefetch::to_read_once);
}
