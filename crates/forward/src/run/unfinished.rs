//! Packets on their way to a port that does not take the work that their sender left to a device.
//! The work is done here: checksums are computed, and long packets are divided.

use crate::counters::{Direction, DropReason};
use crate::interface::{Cut, Offload};
use crate::offloads::{Header, Offloads};
use crate::pool::{BURST_MAX, Burst, PACKET_BYTES_MAX, Packet, Pool};

/// Packets that wait for work, and packets that wait for room in the burst of their port, in order.
#[derive(Debug)]
pub(super) struct Unfinished {
    staged: Burst,
    /// The parts of a divided packet. They come before the staged packets. A guest that asks for
    /// more parts than a burst holds would keep the worker busy, and its packet is dropped.
    parts: Burst,
    frame: Vec<u8>,
    part: Vec<u8>,
}

impl Unfinished {
    pub(super) fn new() -> Self {
        let [staged, parts] = [BURST_MAX; 2].map(Burst::with_limit);
        Self { staged, parts, frame: Vec::new(), part: Vec::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.parts.is_empty()
    }

    /// Takes the first packet of a burst that asks for work that the port does not take, and all
    /// packets behind it. No packets wait here before.
    pub(super) fn stage(&mut self, pool: &Pool, burst: &mut Burst, takes: Offloads) {
        debug_assert!(self.is_empty(), "packets would overtake others");
        for _ in 0..burst.len() {
            let Some(packet) = burst.pop() else { return };
            if self.is_empty() && takes.contain(pool.header(&packet)) {
                burst.push(packet);
            } else {
                self.staged.push(packet);
            }
        }
    }

    /// Moves packets to the burst of their port as long as it has room, and does the work that the
    /// port does not take. Returns the number of these packets. Counts packets whose work cannot be
    /// done.
    pub(super) fn refill(
        &mut self,
        pool: &mut Pool,
        burst: &mut Burst,
        takes: Offloads,
        counts: &mut Direction,
    ) -> usize {
        let before = burst.len();
        while burst.room() > 0 {
            if let Some(part) = self.parts.pop() {
                burst.push(part);
                continue;
            }
            let Some(packet) = self.staged.pop() else { break };
            let header = pool.header(&packet);
            if takes.contain(header) || self.complete(pool, &packet, header) {
                burst.push(packet);
                continue;
            }
            if header.segmentation == 0 {
                counts.dropped(DropReason::BadDescriptor, 1);
                pool.free(packet);
            } else {
                self.divide(pool, packet, header, counts);
            }
        }
        burst.len() - before
    }

    /// Computes the checksum of a packet that asks for nothing else. The packet is read once:
    /// another process may write it meanwhile.
    fn complete(&mut self, pool: &mut Pool, packet: &Packet, header: Header) -> bool {
        if header.segmentation != 0 {
            return false;
        }
        self.frame.resize(pool.length(packet), 0);
        let is_completed =
            pool.read(packet, 0, &mut self.frame) && Offload::of(header).complete(&mut self.frame);
        // The longest checksum has four bytes.
        let start = usize::from(header.checksum.start) + usize::from(header.checksum.offset);
        let end = self.frame.len().min(start + 4);
        let is_written = is_completed && pool.write(packet, start, &self.frame[start..end]);
        if is_written {
            pool.set_header(packet, Header::default());
        }
        is_written
    }

    /// Divides a packet into its parts.
    fn divide(&mut self, pool: &mut Pool, packet: Packet, header: Header, counts: &mut Direction) {
        let length = pool.length(&packet);
        self.frame.resize(length, 0);
        let is_read = pool.read(&packet, 0, &mut self.frame);
        pool.free(packet);
        let cut = is_read.then(|| Cut::of(&self.frame, length, &Offload::of(header))).flatten();
        let is_served = |cut: &Cut| {
            cut.parts() <= BURST_MAX as u64
                && cut.length().is_some_and(|length| length <= PACKET_BYTES_MAX)
        };
        let Some(mut cut) = cut.filter(is_served) else {
            return counts.dropped(DropReason::Merged, 1);
        };
        while let Some(length) = cut.length() {
            self.part.resize(length, 0);
            cut.write(&self.frame, &mut self.part);
            let Some(part) = pool.take(length) else {
                counts.dropped(DropReason::NoBuffer, 1);
                continue;
            };
            let is_written = pool.write(&part, 0, &self.part);
            debug_assert!(is_written, "a packet of {length} B holds {length} B");
            self.parts.push(part);
        }
    }

    /// Frees all packets, and returns their number.
    pub(super) fn free(&mut self, pool: &mut Pool) -> u64 {
        let count = self.staged.len() + self.parts.len();
        pool.free_burst(&mut self.staged);
        pool.free_burst(&mut self.parts);
        count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offloads::{Checksum, NEEDS_CHECKSUM, TCP_V4};

    /// A packet of TCP over IPv4 with this payload.
    fn packet(pool: &mut Pool, payload: usize, header: Header) -> Packet {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 9, 0, 80, 0, 0, 0, 7, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|it| (it * 7) as u8));
        let packet = pool.take_merged(frame.len()).unwrap();
        assert!(pool.write(&packet, 0, &frame));
        pool.set_header(&packet, header);
        packet
    }

    fn merged(segment_bytes: u16) -> Header {
        let checksum = Checksum { start: 34, offset: 16 };
        let (flags, segmentation) = (NEEDS_CHECKSUM, TCP_V4);
        Header { flags, segmentation, header_bytes: 54, segment_bytes, checksum }
    }

    /// The sequence number of a packet, and its length.
    fn found(pool: &mut Pool, burst: &mut Burst) -> Vec<(u32, usize)> {
        let packets = std::iter::from_fn(|| burst.pop());
        let each = |packet: Packet| {
            let mut sequence = [0; 4];
            assert!(pool.read(&packet, 38, &mut sequence) && !pool.asks(&packet));
            let found = (u32::from_be_bytes(sequence), pool.length(&packet));
            pool.free(packet);
            found
        };
        packets.map(each).collect()
    }

    #[test]
    fn packets_keep_their_order_through_little_room() {
        let mut pool = Pool::new(64).unwrap();
        let (mut unfinished, mut counts) = (Unfinished::new(), Direction::default());
        let mut burst = Burst::with_limit(4);
        burst.push(packet(&mut pool, 0, Header::default()));
        burst.push(packet(&mut pool, 10_000, merged(1000)));
        burst.push(packet(&mut pool, 5, Header::lacking(merged(0).checksum)));
        burst.push(packet(&mut pool, 3, Header::default()));
        unfinished.stage(&pool, &mut burst, Offloads::NONE);
        let mut seen = Vec::new();
        while !unfinished.is_empty() {
            unfinished.refill(&mut pool, &mut burst, Offloads::NONE, &mut counts);
            assert!((1..=4).contains(&burst.len()));
            seen.extend(found(&mut pool, &mut burst));
        }
        let mut expected = vec![(7, 54)];
        expected.extend((0..10).map(|part| (7 + 1000 * part, 1054)));
        expected.extend([(7, 59), (7, 57)]);
        assert_eq!((seen, counts.drops_sum()), (expected, 0));
        assert_eq!(pool.available(), 64);
    }

    #[test]
    fn port_gets_work_that_it_takes() {
        let mut pool = Pool::new(64).unwrap();
        let mut burst = Burst::new();
        let long = packet(&mut pool, 10_000, merged(1000));
        let header = pool.header(&long);
        burst.push(long);
        let mut unfinished = Unfinished::new();
        unfinished.stage(&pool, &mut burst, Offloads::ALL);
        assert!(unfinished.is_empty() && burst.len() == 1);
        let long = burst.pop().unwrap();
        assert_eq!(pool.header(&long), header);
        pool.free(long);
    }

    #[test]
    fn packet_that_cannot_be_divided_is_dropped_by_reason() {
        let mut pool = Pool::new(80).unwrap();
        let far = Header { checksum: Checksum { start: 84, offset: 16 }, ..merged(1000) };
        let sctp = Header::lacking(Checksum { start: 34, offset: 8 });
        for (payload, header, reason, count) in [
            (10_000, merged(39), DropReason::Merged, 1),
            (10_000, far, DropReason::Merged, 1),
            (60_000, merged(9200), DropReason::Merged, 1),
            // 80 buffers hold 80 of 200 parts.
            (60_000, merged(300), DropReason::NoBuffer, 120),
        ] {
            let (mut unfinished, mut counts) = (Unfinished::new(), Direction::default());
            let mut burst = Burst::with_limit(BURST_MAX);
            burst.push(packet(&mut pool, payload, header));
            unfinished.stage(&pool, &mut burst, Offloads::NONE);
            unfinished.refill(&mut pool, &mut burst, Offloads::NONE, &mut counts);
            assert_eq!(counts.drops_for(reason), count, "{header:?}");
            assert_eq!(counts.drops_sum(), count, "{header:?}");
            pool.free_burst(&mut burst);
            assert_eq!((pool.available(), unfinished.free(&mut pool)), (80, 0));
        }
        // A checksum of four bytes, of which the packet has two.
        let short = pool.take(44).unwrap();
        pool.set_header(&short, sctp);
        let (mut unfinished, mut counts) = (Unfinished::new(), Direction::default());
        let mut burst = Burst::new();
        burst.push(short);
        unfinished.stage(&pool, &mut burst, Offloads::NONE);
        assert_eq!(unfinished.refill(&mut pool, &mut burst, Offloads::NONE, &mut counts), 0);
        assert_eq!(counts.drops_for(DropReason::BadDescriptor), 1);
        assert_eq!(pool.available(), 80);
    }
}
