//! The bytes of a packet: where they are, and copies between them and private memory.

use std::ptr::NonNull;

use super::{NONE, Packet, Pool, STRIDE_BYTES, Segment};

impl Pool {
    /// A packet's first bytes.
    #[inline]
    #[must_use]
    pub fn first(&self, packet: &Packet) -> Segment {
        self.segment(packet.index)
    }

    #[inline]
    fn segment(&self, index: u32) -> Segment {
        let buffer = &self.buffers[index as usize];
        let at = index as usize * STRIDE_BYTES + buffer.offset as usize;
        // SAFETY: the index is one of a buffer, as the access above has checked; all buffers lie in
        // the block `rooms`, and the offset is inside the buffer.
        let pointer = unsafe { self.rooms.add(at) };
        Segment { pointer, length: buffer.length as usize }
    }

    /// A packet's bytes, in order.
    pub fn segments<'a>(&'a self, packet: &Packet) -> impl Iterator<Item = Segment> + use<'a> {
        let mut index = packet.index;
        std::iter::from_fn(move || {
            if index == NONE {
                return None;
            }
            let segment = self.segment(index);
            index = self.buffers[index as usize].next();
            Some(segment)
        })
    }

    /// Shortens a packet. The buffers that the packet no longer needs become free.
    ///
    /// # Panics
    /// Panics if the packet has fewer than `length` bytes.
    pub fn cut(&mut self, packet: &Packet, length: usize) {
        let head = packet.index as usize;
        assert!(length <= self.buffers[head].packet_bytes as usize, "a packet does not grow");
        self.buffers[head].packet_bytes = length as u32;
        let (mut index, mut left) = (head, length);
        loop {
            let buffer = &mut self.buffers[index];
            buffer.length = usize::from(buffer.length).min(left) as u16;
            left -= buffer.length as usize;
            let next = buffer.next();
            if next == NONE {
                return;
            }
            if left == 0 {
                self.buffers[index].set_next(NONE);
                self.free(Packet { index: next });
                return;
            }
            index = next as usize;
        }
    }

    /// Extends a packet of one buffer by `bytes` in front, into the headroom.
    pub(crate) fn shift(&mut self, packet: &Packet, bytes: usize) {
        let buffer = &mut self.buffers[packet.index as usize];
        assert!(bytes <= buffer.offset as usize, "there is no room in front of the packet");
        buffer.offset -= bytes as u16;
        buffer.length += bytes as u16;
        buffer.packet_bytes += bytes as u32;
    }

    /// Where the `bytes` bytes in front of a packet begin, for a header.
    ///
    /// # Panics
    /// Panics if its headroom is smaller.
    #[inline]
    pub(crate) fn front(&self, packet: &Packet, bytes: usize) -> NonNull<u8> {
        let offset = self.buffers[packet.index as usize].offset as usize;
        assert!(bytes <= offset, "there is no room in front of the packet");
        // SAFETY: the packet's bytes begin `offset` behind the beginning of its buffer.
        unsafe { self.first(packet).pointer.sub(bytes) }
    }

    /// Appends the bytes of `tail` to `packet` without a copy.
    pub(crate) fn join(&mut self, packet: &Packet, tail: Packet) {
        let head = packet.index as usize;
        let mut last = head;
        while self.buffers[last].next() != NONE {
            last = self.buffers[last].next() as usize;
        }
        self.buffers[last].set_next(tail.index);
        self.buffers[head].packet_bytes += self.buffers[tail.index as usize].packet_bytes;
    }

    /// Copies bytes of a packet from `offset` on to private memory. Returns false and copies
    /// nothing if the packet has too few bytes.
    #[inline]
    #[must_use]
    pub fn read(&self, packet: &Packet, offset: usize, target: &mut [u8]) -> bool {
        let pointer = target.as_mut_ptr();
        self.pieces(packet, offset, target.len(), |segment, at| {
            // SAFETY: `at` is inside `target`, by `pieces`.
            let target = unsafe { pointer.add(at) };
            // SAFETY: `target` also has the segment's length from there on; the segment belongs
            // to the packet, which the caller owns.
            unsafe { haul_copy::memcpy(target, segment.pointer.as_ptr(), segment.length) }
        })
    }

    /// Writes bytes into a packet from `offset` on. Returns false and writes nothing if they do not
    /// fit.
    #[inline]
    #[must_use]
    pub fn write(&mut self, packet: &Packet, offset: usize, source: &[u8]) -> bool {
        let pointer = source.as_ptr();
        self.pieces(packet, offset, source.len(), |segment, at| {
            // SAFETY: as in `read`, with source and target exchanged.
            let source = unsafe { pointer.add(at) };
            // SAFETY: as above.
            unsafe { haul_copy::memcpy(segment.pointer.as_ptr(), source, segment.length) }
        })
    }

    /// Calls `act` with each part of `[offset, offset + length)` and its distance from `offset`.
    #[inline(always)]
    fn pieces(
        &self,
        packet: &Packet,
        offset: usize,
        length: usize,
        mut act: impl FnMut(Segment, usize),
    ) -> bool {
        let size = self.length(packet);
        if offset > size || length > size - offset {
            return false;
        }
        let (mut index, mut skip, mut done) = (packet.index, offset, 0);
        while done < length {
            let segment = self.segment(index);
            if skip < segment.length {
                let here = (segment.length - skip).min(length - done);
                // SAFETY: `skip` is below the segment's length.
                let pointer = unsafe { segment.pointer.add(skip) };
                act(Segment { pointer, length: here }, done);
                done += here;
            }
            skip = skip.saturating_sub(segment.length);
            index = self.buffers[index as usize].next();
        }
        true
    }
}
