//! Packets from the host to the guest, through a split ring.
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
use super::chain::{Piece, Scratch, zip};
use super::device::Active;

/// The guest did what it may not with the ring as a whole, or its memory has gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

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

impl Active {
    /// Moves packets from the burst into the guest's buffers, as many as it has; nothing is shown
    /// to it yet. Those that are gone from the burst are freed.
    ///
    /// # Errors
    /// [`Broken`]; the burst is then as it was, or without the packets that were dropped.
    pub(super) fn enqueue(
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
        scratch.parts.clear();
        let mut done = Done::default();
        while done.gone < burst.len() && ready > 0 {
            let fast = self.enqueue_fast(pool, &burst.indices()[done.gone..], ready, scratch);
            ready -= fast.packets as u16;
            done.packets += fast.packets;
            done.bytes += fast.bytes;
            done.gone += fast.packets;
            if done.gone == burst.len() || ready == 0 {
                break;
            }
            let packet = Packet::from_index(burst.indices()[done.gone]);
            let before = self.next_available;
            match self.enqueue_one(pool, &packet, ready, scratch) {
                One::Sent => {
                    done.packets += 1;
                    done.bytes += pool.length(&packet) as u64;
                }
                One::Dropped(reason) => counts.dropped(reason, 1),
                One::Waits => break,
            }
            ready -= self.next_available.wrapping_sub(before);
            done.gone += 1;
        }
        // SAFETY: sources are packets of the burst, targets were looked up in the guest's memory,
        // which this ring keeps; each for its length.
        unsafe { copier.copy_batch(&scratch.parts) };
        if self.memory.is_broken() {
            return Err(Broken);
        }
        pool.free_first(burst, done.gone);
        counts.batch(done.packets, done.bytes);
        Ok(done.packets)
    }

    /// The packets, from the first on, whose buffers are one descriptor each with room for all.
    #[inline]
    fn enqueue_fast(
        &mut self,
        pool: &Pool,
        packets: &[u32],
        ready: u16,
        scratch: &mut Scratch,
    ) -> Done {
        let count = packets.len().min(usize::from(ready)).min(scratch.heads.len());
        let start = self.next_available;
        for (index, head) in scratch.heads[..count].iter_mut().enumerate() {
            *head = self.ring.head(start.wrapping_add(index as u16));
        }
        let mut fit = 0;
        let places = scratch.places.iter_mut();
        for ((packet, head), place) in packets.iter().zip(&scratch.heads[..count]).zip(places) {
            let packet = Packet::from_index(*packet);
            let descriptor = self.ring.descriptor(*head);
            let needed = self.header_bytes + pool.length(&packet);
            let is_fit = descriptor.flags == WRITE
                && descriptor.length as usize >= needed
                && *head < self.ring.size()
                && pool.is_one(&packet);
            if !is_fit {
                break;
            }
            let found = self.memory.at(&mut self.cached, descriptor.address, needed as u64);
            let Some(at) = found else { break };
            fetch(at, needed);
            *place = at;
            fit += 1;
        }
        let mut bytes = 0;
        let ready = packets[..fit].iter().zip(&scratch.heads).zip(&scratch.places);
        for ((packet, head), at) in ready {
            let (source, at) = (pool.first(&Packet::from_index(*packet)), *at);
            put_header(at, self.header_bytes);
            // SAFETY: the buffer has room for header and packet, as was just looked up.
            let target = unsafe { at.add(self.header_bytes) };
            let (target, length) = (target.as_ptr(), source.length);
            scratch.parts.push(Part { target, source: source.pointer.as_ptr(), length });
            let written = (self.header_bytes + length) as u32;
            self.ring.put_used(self.next_used, *head, written);
            self.next_used = self.next_used.wrapping_add(1);
            bytes += length as u64;
        }
        self.next_available = start.wrapping_add(fit as u16);
        Done { packets: fit, bytes, gone: fit }
    }

    /// One packet, whatever its chains look like.
    #[cold]
    fn enqueue_one(
        &mut self,
        pool: &Pool,
        packet: &Packet,
        ready: u16,
        scratch: &mut Scratch,
    ) -> One {
        let needed = self.header_bytes + pool.length(packet);
        scratch.pieces.clear();
        let (mut room, mut chains) = (0, 0_u16);
        // The used entries: each chain and how much of the packet it takes.
        let mut taken = [(0_u16, 0_u32); CHAINS_MAX];
        while room < needed {
            if chains == ready || (chains > 0 && !self.is_mergeable) {
                // Without mergeable buffers no later chain can help.
                let is_too_long = chains < ready;
                return match is_too_long {
                    true => self.give_back(chains, DropReason::TooLong),
                    false => One::Waits,
                };
            }
            if usize::from(chains) == CHAINS_MAX {
                return self.give_back(chains, DropReason::TooLong);
            }
            let head = self.ring.head(self.next_available.wrapping_add(chains));
            let gathered = self.gather(head, true, &mut scratch.pieces);
            chains += 1;
            let Ok(bytes) = gathered else {
                return self.give_back(chains, DropReason::BadDescriptor);
            };
            taken[usize::from(chains) - 1] = (head, bytes.min(needed - room) as u32);
            room += bytes;
        }
        let header =
            features::header(if self.header_bytes < HEADER_BYTES_MAX { 0 } else { chains });
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
        for (head, written) in &taken[..usize::from(chains)] {
            self.ring.put_used(self.next_used, *head, *written);
            self.next_used = self.next_used.wrapping_add(1);
        }
        self.next_available = self.next_available.wrapping_add(chains);
        One::Sent
    }

    /// Gives chains back with nothing in them.
    fn give_back(&mut self, chains: u16, reason: DropReason) -> One {
        for _ in 0..chains {
            let head = self.ring.head(self.next_available);
            self.ring.put_used(self.next_used, head, 0);
            self.next_available = self.next_available.wrapping_add(1);
            self.next_used = self.next_used.wrapping_add(1);
        }
        One::Dropped(reason)
    }
}

/// Most chains of one packet: buffers of 64 B still hold the longest.
const CHAINS_MAX: usize = 256;

/// Lines of a buffer that are asked for before they are written: the header's and the two that
/// follow; the processor sees from there where it goes.
const FETCH_BYTES: usize = 192;

#[inline(always)]
fn fetch(at: NonNull<u8>, bytes: usize) {
    for offset in (0..bytes.min(FETCH_BYTES)).step_by(prefetch::LINE_BYTES) {
        // SAFETY: below the bytes that were looked up.
        prefetch::to_write(unsafe { at.add(offset) });
    }
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
