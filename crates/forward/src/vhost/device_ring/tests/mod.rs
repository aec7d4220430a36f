//! A driver's side of the ring, in memory of the test.
//!
//! - `chains`: chains of several descriptors, and packets of several chains.

mod chains;

use super::*;
use crate::offloads::{Checksum, Header};
use crate::pool::Segment;

/// A guest's memory: addresses are offsets.
#[derive(Debug)]
struct Flat(NonNull<u8>, u64);

// SAFETY: the bytes are never freed.
unsafe impl GuestMemory for Flat {
    type Cached = ();

    fn at(&self, _: &mut (), guest: u64, bytes: u64) -> Option<NonNull<u8>> {
        let is_inside = guest < self.1 && bytes <= self.1 - guest;
        // SAFETY: inside the bytes.
        is_inside.then(|| unsafe { self.0.add(guest as usize) })
    }

    fn part(&self, cached: &mut (), guest: u64) -> Option<(NonNull<u8>, u64)> {
        Some((self.at(cached, guest, 1)?, self.1 - guest))
    }
}

/// Packets that begin with 0xDD and 0xCD have segments of 11 bytes. Those with 0xCC and 0xCD have
/// [`ASKED`] as header. Those with 0xEE ask for more than a header says.
struct Packets(Vec<Vec<u8>>);

// SAFETY: the vectors are not changed.
unsafe impl Outgoing for Packets {
    fn length(&self, index: usize) -> usize {
        self.0[index].len()
    }

    fn is_one(&self, index: usize) -> bool {
        ![0xDD, 0xCD, 0xEE].contains(&self.0[index][0])
    }

    fn first(&self, index: usize) -> Segment {
        let bytes = &self.0[index];
        Segment { pointer: NonNull::from(&bytes[0]), length: bytes.len() }
    }

    fn is_plain(&self, index: usize) -> bool {
        self.0[index][0] != 0xEE
    }

    fn segments(&self, index: usize) -> impl Iterator<Item = Segment> {
        let bytes = &self.0[index];
        let length = if self.is_one(index) { bytes.len() } else { 11 };
        let segment =
            |part: &[u8]| Segment { pointer: NonNull::from(&part[0]), length: part.len() };
        bytes.chunks(length).map(segment)
    }

    fn header(&self, index: usize) -> Header {
        if [0xCC, 0xCD].contains(&self.0[index][0]) { ASKED } else { Header::default() }
    }
}

/// A header with different bytes in each field, and its bytes in front of the number of buffers.
const ASKED: Header = Header {
    flags: 1,
    segmentation: 2,
    header_bytes: 0x0403,
    segment_bytes: 0x0605,
    checksum: Checksum { start: 0x0807, offset: 0x0A09 },
};
const ASKED_BYTES: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// The header of a packet that asks for nothing.
fn header(buffers: u16) -> [u8; 12] {
    features::header(Header::default(), buffers)
}

/// Received packets, and how many there may be.
#[derive(Default)]
struct Room(Vec<Box<[u8]>>, usize, Vec<(usize, Checksum)>);

// SAFETY: the boxes do not move their bytes.
unsafe impl Incoming for Room {
    const CHECKS_HEADERS: bool = true;

    fn take(&mut self, length: usize) -> Option<NonNull<u8>> {
        if self.0.len() == self.1 {
            return None;
        }
        self.0.push(vec![0; length].into());
        self.0.last_mut().map(|bytes| NonNull::from(&mut bytes[0]))
    }

    fn lacks(&mut self, checksum: Checksum) {
        self.2.push((self.0.len() - 1, checksum));
    }
}

fn zeros(bytes: usize) -> NonNull<u8> {
    NonNull::new(vec![0_u64; bytes.div_ceil(8) + 1].leak().as_mut_ptr().cast()).unwrap()
}

const BUFFER: u64 = 256;

/// A device's ring of 8, the driver's side of the same ring, and the guest's memory.
fn ring() -> (DeviceRing<Flat>, Split, NonNull<u8>) {
    let areas = split::area_bytes(8).map(|bytes| zeros(bytes as usize + 16));
    // The descriptors are aligned to 16.
    let areas = areas.map(|at| {
        // SAFETY: there are 16 more bytes.
        unsafe { at.add(at.as_ptr().align_offset(16)) }
    });
    let memory = zeros(8 * BUFFER as usize);
    let flat = Flat(memory, 8 * BUFFER);
    // SAFETY: the areas are never freed.
    let ring = unsafe { DeviceRing::new(areas, 8, features::VERSION_1, flat, CopyMethod::Haul) };
    // SAFETY: as above.
    (ring.unwrap(), unsafe { Split::new(areas, 8) }, memory)
}

fn offer(driver: &Split, at: u16, flags: u16, length: u32) {
    let address = u64::from(at) * BUFFER;
    driver.set_descriptor(at, split::Descriptor { address, length, flags, next: 0 });
    driver.put_available(at, at);
    driver.publish_available(at + 1);
}

fn bytes(memory: NonNull<u8>, at: usize, length: usize) -> Vec<u8> {
    // SAFETY: inside the guest's memory, which nothing writes meanwhile.
    let slice = unsafe { std::slice::from_raw_parts(memory.as_ptr().wrapping_add(at), length) };
    slice.to_vec()
}

#[test]
fn enqueue_stops_at_packet_that_needs_more_than_a_copy() {
    let (mut ring, driver, memory) = ring();
    (0..4).for_each(|at| offer(&driver, at, split::WRITE, BUFFER as u32));
    let mut packets = vec![vec![1; 60], vec![2; 60], vec![3; 60]];
    packets.push(vec![0xEE; 60]);
    assert!(ring.resume(0));
    let progress = ring.enqueue(&Packets(packets), 4);
    assert_eq!(progress, Progress { packets: 3, is_stopped: true });
    assert_eq!(driver.used_index(), 0);
    assert_eq!((ring.publish(), ring.may_want_call()), (Some(3), true));
    driver.set_driver_polls();
    assert_eq!((driver.used_index(), driver.used(2)), (3, (2, 72)));
    assert_eq!(bytes(memory, 512 + 12, 60), [3; 60]);
    assert_eq!(bytes(memory, 512, 12), header(1));
    assert!(ring.resume(3));
    // The buffer of another direction, one that is too small, one outside the memory.
    for (at, flags, length) in [(3, 0, 256), (4, split::WRITE, 71), (15, split::WRITE, 256)] {
        assert!(ring.resume(at));
        offer(&driver, at, flags, length);
        let progress = ring.enqueue(&Packets(vec![vec![4; 60]]), 1);
        assert_eq!(progress, Progress { packets: 0, is_stopped: true }, "{at}");
        assert_eq!(ring.publish(), None);
    }
    let more = ring.resume(3);
    driver.publish_available(3);
    assert!(more && !ring.enqueue(&Packets(vec![vec![4; 60]]), 1).is_stopped);
    driver.publish_available(40);
    let broken = ring.enqueue(&Packets(vec![vec![4; 60]]), 1);
    assert_eq!(broken, Progress { packets: 0, is_stopped: true });
}

#[test]
fn enqueue_writes_header_that_packet_asks_for() {
    let (mut ring, driver, memory) = ring();
    (0..4).for_each(|at| offer(&driver, at, split::WRITE, BUFFER as u32));
    // A buffer that had a header before, and one that did not; then a packet of segments.
    for (at, mark, expected) in [(0, 0xCC, true), (0, 1, false), (0, 0xCC, true), (1, 0xCD, true)] {
        let base = if at == 0 { 0 } else { 1 };
        assert!(ring.resume(base));
        let mut packet = vec![9; 60];
        packet[0] = mark;
        let progress = ring.enqueue(&Packets(vec![packet]), 1);
        assert_eq!(progress, Progress { packets: 1, is_stopped: false });
        assert_eq!(ring.publish(), Some(base + 1));
        let asked = if expected { ASKED_BYTES } else { [0; 10] };
        assert_eq!(bytes(memory, at * BUFFER as usize, 12), [&asked[..], &[1, 0]].concat());
        assert_eq!(bytes(memory, at * BUFFER as usize + 12, 2), [mark, 9]);
    }
}

#[test]
fn dequeue_stops_at_offload_and_without_buffer() {
    let (mut ring, driver, memory) = ring();
    for at in 0..4_u16 {
        offer(&driver, at, 0, 72);
        // SAFETY: inside the guest's memory.
        unsafe { memory.as_ptr().wrapping_add(usize::from(at) * 256 + 12).write(at as u8) };
    }
    // The third packet's header asks for a checksum.
    // SAFETY: inside the guest's memory.
    unsafe { memory.as_ptr().wrapping_add(512).write(1) };
    let mut room = Room(Vec::new(), 1, Vec::new());
    assert!(ring.resume(0));
    assert_eq!(ring.dequeue(&mut room, 2048, 4), Progress { packets: 1, is_stopped: true });
    room.1 = 4;
    assert_eq!(ring.dequeue(&mut room, 2048, 4), Progress { packets: 1, is_stopped: true });
    driver.set_driver_polls();
    assert_eq!((ring.publish(), driver.used_index()), (Some(2), 2));
    assert!(!ring.may_want_call());
    assert_eq!(room.0.iter().map(|packet| packet[0]).collect::<Vec<_>>(), [0, 1]);
    assert!(ring.resume(3));
    assert_eq!(ring.dequeue(&mut room, 59, 4), Progress { packets: 0, is_stopped: true });
    assert_eq!(ring.dequeue(&mut room, 60, 4), Progress { packets: 1, is_stopped: false });
    assert_eq!(ring.dequeue(&mut room, 60, 4), Progress { packets: 0, is_stopped: false });
    assert_eq!(room.0.last().map(|packet| (packet[0], packet.len())), Some((3, 60)));
}

#[test]
fn new_refuses_impossible_rings() {
    let areas = [(); 3].map(|()| zeros(4096));
    let new = |size, features| {
        let flat = Flat(areas[0], 8);
        // SAFETY: the areas are large enough and never freed.
        unsafe { DeviceRing::new(areas, size, features, flat, CopyMethod::Haul) }.is_some()
    };
    assert!(!new(0, 0) && !new(3, 0) && !new(0, features::PACKED));
    assert!(!new(32_769, features::PACKED) && !new(65_535, 0));
}
