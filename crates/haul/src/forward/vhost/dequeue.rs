//! Packets from the guest to the host, through a split ring: the passes of
//! [`enqueue`](super::enqueue) the other way round.

use super::super::copy::{Copier, Part};
use super::super::counters::{Direction, DropReason};
use super::super::pool::{Burst, PACKET_BYTES_MAX, Pool, ROOM_BYTES};
use super::super::ring::prefetch;
use super::chain::{Bad, Piece, Scratch, zip};
use super::device::Active;
use super::enqueue::Broken;

/// Shortest packet that is taken: an Ethernet header.
const PACKET_BYTES_MIN: usize = 14;

impl Active {
    /// Appends packets of the guest's to the burst, as many as there are and fit; nothing is shown
    /// to it yet.
    ///
    /// # Errors
    /// [`Broken`]; nothing of this call is in the burst then.
    pub(super) fn dequeue(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        copier: &Copier,
        scratch: &mut Scratch,
        counts: &mut Direction,
    ) -> Result<usize, Broken> {
        let available = self.ring.available_index();
        let mut ready = available.wrapping_sub(self.next_available);
        if ready > self.ring.size() {
            return Err(Broken);
        }
        if ready == 0 || burst.room() == 0 {
            counts.batch(0, 0);
            return Ok(0);
        }
        scratch.parts.clear();
        let (before, mut bytes) = (burst.len(), 0);
        while ready > 0 && burst.room() > 0 {
            let (packets, fast_bytes) = self.dequeue_fast(pool, burst, ready, scratch);
            ready -= packets;
            bytes += fast_bytes;
            if ready == 0 || burst.room() == 0 {
                break;
            }
            match self.dequeue_one(pool, burst, scratch) {
                Ok(length) => bytes += length as u64,
                Err(DropReason::NoBuffer) => break,
                Err(reason) => counts.dropped(reason, 1),
            }
            ready -= 1;
        }
        // SAFETY: sources were looked up in the guest's memory, which this ring keeps, targets are
        // packets that were just taken; each for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        let packets = burst.len() - before;
        if self.memory.is_broken() {
            for _ in 0..packets {
                burst.pop_last().into_iter().for_each(|packet| pool.free(packet));
            }
            counts.dropped(DropReason::Reset, packets as u64);
            return Err(Broken);
        }
        counts.batch(packets, bytes);
        Ok(packets)
    }

    /// The chains, from the first on, that are one descriptor each with a packet of one buffer; how
    /// many there were, and their packets' bytes.
    #[inline]
    fn dequeue_fast(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        ready: u16,
        scratch: &mut Scratch,
    ) -> (u16, u64) {
        let count = burst.room().min(usize::from(ready)).min(scratch.heads.len());
        let (start, header_bytes) = (self.next_available, self.header_bytes);
        for (index, head) in scratch.heads[..count].iter_mut().enumerate() {
            *head = self.ring.head(start.wrapping_add(index as u16));
        }
        let first = scratch.parts.len();
        let (mut fit, mut bytes) = (0, 0);
        for head in &scratch.heads[..count] {
            let descriptor = self.ring.descriptor(*head);
            let length = (descriptor.length as usize).wrapping_sub(header_bytes);
            let is_fit = descriptor.flags == 0
                && (PACKET_BYTES_MIN..=ROOM_BYTES).contains(&length)
                && *head < self.ring.size();
            if !is_fit {
                break;
            }
            let bytes_all = u64::from(descriptor.length);
            let found = self.memory.at(&mut self.cached, descriptor.address, bytes_all);
            let Some(at) = found else { break };
            // SAFETY: the descriptor has more bytes than the header, as was just seen.
            let source = unsafe { at.add(header_bytes) }.as_ptr().cast_const();
            prefetch::to_read(source);
            scratch.parts.push(Part { target: std::ptr::null_mut(), source, length });
            fit += 1;
        }
        let mut taken = 0;
        for part in &mut scratch.parts[first..] {
            let Some(packet) = pool.take(part.length) else { break };
            part.target = pool.first(&packet).pointer.as_ptr();
            burst.push(packet);
            bytes += part.length as u64;
            self.ring.put_used(self.next_used, scratch.heads[taken], 0);
            self.next_used = self.next_used.wrapping_add(1);
            taken += 1;
        }
        debug_assert!(taken <= fit);
        scratch.parts.truncate(first + taken);
        self.next_available = start.wrapping_add(taken as u16);
        (taken as u16, bytes)
    }

    /// One chain, whatever it looks like.
    #[cold]
    fn dequeue_one(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        scratch: &mut Scratch,
    ) -> Result<usize, DropReason> {
        let head = self.ring.head(self.next_available);
        scratch.pieces.clear();
        let gathered = self.gather(head, false, &mut scratch.pieces);
        let packet = match gathered {
            Err(Bad) => Err(DropReason::BadDescriptor),
            Ok(bytes) if bytes < self.header_bytes + PACKET_BYTES_MIN => Err(DropReason::TooShort),
            Ok(bytes) if bytes - self.header_bytes > PACKET_BYTES_MAX => Err(DropReason::TooLong),
            Ok(bytes) => match pool.take(bytes - self.header_bytes) {
                Some(packet) => Ok(packet),
                // It stays where it is until there is a buffer.
                None => return Err(DropReason::NoBuffer),
            },
        };
        self.ring.put_used(self.next_used, head, 0);
        self.next_available = self.next_available.wrapping_add(1);
        self.next_used = self.next_used.wrapping_add(1);
        let packet = packet?;
        let pieces = scratch.pieces.iter().map(|Piece { at, length }| (*at, *length));
        let segments = pool.segments(&packet).map(|segment| (segment.pointer, segment.length));
        zip(pieces, self.header_bytes, segments, |source, target, length| {
            let (target, source) = (target.as_ptr(), source.as_ptr().cast_const());
            scratch.parts.push(Part { target, source, length });
        });
        let length = pool.length(&packet);
        burst.push(packet);
        Ok(length)
    }
}
