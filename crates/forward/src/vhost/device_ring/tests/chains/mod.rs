//! Chains of several descriptors, and packets of several chains, in rings of both layouts.
//!
//! - `dequeue`: packets from the guest.

mod dequeue;

use super::*;
use crate::ring::packed::Location;
use crate::ring::split::{INDIRECT, NEXT, WRITE};

const SIZE: u16 = 8;
const MEMORY_BYTES: u64 = 8 * BUFFER;
/// The number of bytes on either side of the guest's memory that nothing may change.
const GUARD_BYTES: usize = 4096;
const LAYOUTS: [u64; 2] = [0, features::PACKED];
const ALL: u64 = features::VERSION_1 | features::INDIRECT | features::CHECKSUMS;

/// A descriptor: address, length and flags.
type Part = (u64, u32, u16);

/// The driver's side of a ring of either layout.
enum Driver {
    Split(Split),
    Packed(Packed, Location),
}

struct Guest {
    ring: DeviceRing<Flat>,
    driver: Driver,
    memory: NonNull<u8>,
    /// The progress of the device.
    base: u16,
    /// The number of descriptors, and of chains, that the driver has made available.
    descriptors: u16,
    chains: u16,
    /// The used chains that the driver has seen: their end in a packed ring, their number in a
    /// split ring.
    seen: Location,
    seen_chains: u16,
}

impl Guest {
    fn new(features: u64) -> Self {
        let is_packed = features & features::PACKED != 0;
        let area_bytes = if is_packed { packed::area_bytes } else { split::area_bytes };
        let areas = area_bytes(SIZE.into()).map(|bytes| {
            let at = zeros(bytes as usize + 16);
            // SAFETY: there are 16 more bytes.
            unsafe { at.add(at.as_ptr().align_offset(16)) }
        });
        let memory = zeros(MEMORY_BYTES as usize + 2 * GUARD_BYTES);
        // SAFETY: the guest's memory lies between two guards.
        let memory = unsafe { memory.add(GUARD_BYTES) };
        let flat = Flat(memory, MEMORY_BYTES);
        // SAFETY: the areas are never freed.
        let ring =
            unsafe { DeviceRing::new(areas, SIZE, features, flat, CopyMethod::Haul) }.unwrap();
        let driver = if is_packed {
            // SAFETY: as above.
            let ring = unsafe { Packed::new(areas, SIZE.into()) };
            ring.clear();
            Driver::Packed(ring, Location::START)
        } else {
            // SAFETY: as above.
            Driver::Split(unsafe { Split::new(areas, SIZE.into()) })
        };
        let base = if is_packed { Location::START.word() } else { 0 };
        let (seen, seen_chains) = (Location::START, 0);
        Self { ring, driver, memory, base, descriptors: 0, chains: 0, seen, seen_chains }
    }

    /// Makes a chain available.
    fn offer(&mut self, parts: &[Part]) {
        let first = self.descriptors;
        for (index, &(address, length, flags)) in parts.iter().enumerate().rev() {
            let flags = if index + 1 < parts.len() { flags | NEXT } else { flags };
            match &self.driver {
                Driver::Split(ring) => {
                    let at = first.wrapping_add(index as u16) % SIZE;
                    let next = (at + 1) % SIZE;
                    let descriptor = split::Descriptor { address, length, flags, next };
                    ring.set_descriptor(at, descriptor);
                }
                Driver::Packed(ring, location) => {
                    let at = location.plus(index as u16, SIZE);
                    ring.set_address(at, address);
                    ring.put_available(at, 100 + first, length, flags);
                }
            }
        }
        self.descriptors = first.wrapping_add(parts.len() as u16);
        match &mut self.driver {
            Driver::Split(ring) => {
                ring.put_available(self.chains, first % SIZE);
                self.chains = self.chains.wrapping_add(1);
                ring.publish_available(self.chains);
            }
            Driver::Packed(_, location) => *location = location.plus(parts.len() as u16, SIZE),
        }
    }

    /// The number of written bytes of the next used chain, which has this number of descriptors.
    fn next_used(&mut self, descriptors: u16) -> Option<u32> {
        let (seen, count) = (self.seen, self.seen_chains);
        match &self.driver {
            Driver::Split(ring) => {
                let is_used = ring.used_index().wrapping_sub(count) > 0;
                self.seen_chains = count.wrapping_add(is_used.into());
                is_used.then(|| ring.used(count).1)
            }
            Driver::Packed(ring, _) => {
                self.seen = seen.plus(descriptors, SIZE);
                ring.used(seen).map(|(_, written)| written)
            }
        }
    }

    fn is_packed(&self) -> bool {
        matches!(self.driver, Driver::Packed(..))
    }

    fn enqueue(&mut self, packets: Vec<Vec<u8>>) -> Progress {
        assert!(self.ring.resume(self.base));
        let count = packets.len();
        let progress = self.ring.enqueue(&Packets(packets), count);
        self.publish();
        progress
    }

    fn dequeue(&mut self, room: &mut Room, longest: usize) -> Progress {
        assert!(self.ring.resume(self.base));
        let progress = self.ring.dequeue(room, longest, 4);
        self.publish();
        progress
    }

    fn publish(&mut self) {
        if let Some(next) = self.ring.publish() {
            self.base = next;
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the guest's memory.
            unsafe { self.memory.as_ptr().wrapping_add(at as usize + offset).write(*byte) };
        }
    }

    fn get(&self, at: u64, length: usize) -> Vec<u8> {
        bytes(self.memory, at as usize, length)
    }

    /// Writes a descriptor of an indirect table.
    fn put_indirect(&self, at: u64, (address, length, flags): Part, next: u16) {
        let ends = if self.is_packed() { [0, flags] } else { [flags, next] };
        self.put(at, &address.to_le_bytes());
        self.put(at + 8, &length.to_le_bytes());
        self.put(at + 12, &ends.map(u16::to_le_bytes).concat());
    }
}

fn content(mark: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| if index == 0 { mark } else { (index * 7 % 251) as u8 }).collect()
}

#[test]
fn enqueue_fills_chain_of_several_descriptors() {
    for layout in LAYOUTS {
        let mut guest = Guest::new(ALL | layout);
        for round in 0..20_u8 {
            let mark = if round % 2 == 0 { round } else { 0xDD };
            let packet = content(mark, 60);
            guest.offer(&[(0, 12, WRITE), (100, 20, WRITE), (200, 256, WRITE)]);
            let progress = guest.enqueue(vec![packet.clone()]);
            assert_eq!(progress, Progress { packets: 1, is_stopped: false }, "{round}");
            assert_eq!(guest.next_used(3), Some(72), "{layout:x} {round}");
            assert_eq!(guest.get(0, 12), header(1));
            assert_eq!([guest.get(100, 20), guest.get(200, 40)].concat(), packet);
        }
    }
}

#[test]
fn enqueue_takes_several_buffers_if_guest_can_merge_them() {
    for layout in LAYOUTS {
        let mut guest = Guest::new(ALL | features::MERGEABLE | layout);
        let buffers = [0, 256, 512].map(|at| [(at, 64, WRITE)]);
        for round in 0..20_u8 {
            let packet = content(if round % 2 == 0 { 7 } else { 0xDD }, 150);
            buffers[..2].iter().for_each(|buffer| guest.offer(buffer));
            // The packet waits while there are too few buffers.
            let progress = guest.enqueue(vec![packet.clone()]);
            assert_eq!(progress, Progress { packets: 0, is_stopped: false }, "{round}");
            guest.offer(&buffers[2]);
            guest.offer(&buffers[0]);
            let progress = guest.enqueue(vec![packet.clone(), content(9, 40)]);
            assert_eq!(progress, Progress { packets: 2, is_stopped: false }, "{round}");
            let used = [(); 4].map(|()| guest.next_used(1));
            assert_eq!(used, [64, 64, 34, 52].map(Some), "{layout:x} {round}");
            assert_eq!(guest.get(256, 64), packet[52..116]);
            assert_eq!(guest.get(512, 34), packet[116..]);
            assert_eq!(guest.get(12, 40), content(9, 40));
        }
        buffers[..2].iter().for_each(|buffer| guest.offer(buffer));
        let _ = guest.enqueue(vec![content(7, 100)]);
        assert_eq!(guest.get(0, 12), header(2));
        let mut other = Guest::new(ALL | layout);
        (0..3).for_each(|index| other.offer(&buffers[index]));
        let progress = other.enqueue(vec![content(7, 150)]);
        assert_eq!(
            (progress, other.next_used(1)),
            (Progress { packets: 0, is_stopped: true }, None)
        );
    }
}

#[test]
fn invalid_chain_stops_burst_and_stays_in_ring() {
    let end = MEMORY_BYTES;
    let chains = |kind: u16| -> Vec<Vec<Part>> {
        vec![
            vec![(0, 12, kind), (end, 200, kind)],
            vec![(0, 12, kind), (u64::MAX, 200, kind)],
            vec![(0, 12, kind), (end - 50, 200, kind)],
            vec![(0, 12, kind), (0, u32::MAX, kind)],
            vec![(0, 12, kind), (100, 200, kind ^ WRITE)],
            vec![(0, 12, kind ^ WRITE), (100, 200, kind)],
            vec![(0, 12, kind), (1024, 16, INDIRECT)],
            vec![(1024, 0, INDIRECT)],
            vec![(1024, 24, INDIRECT)],
            vec![(1025, 16, INDIRECT)],
            vec![(end, 16, INDIRECT)],
            vec![(1040, 16, INDIRECT)],
        ]
    };
    for layout in LAYOUTS {
        for kind in [0, WRITE] {
            for (index, chain) in chains(kind).into_iter().enumerate() {
                for features in [ALL | features::MERGEABLE, ALL & !features::INDIRECT] {
                    let mut guest = Guest::new(features | layout);
                    guest.put_indirect(1024, (300, 100, kind), 0);
                    guest.put_indirect(1040, (1024, 16, INDIRECT), 0);
                    guest.offer(&[(500, 80, kind)]);
                    guest.offer(&chain);
                    let mut room = Room(Vec::new(), 4, Vec::new());
                    let progress = match kind {
                        WRITE => guest.enqueue(vec![content(1, 60), content(2, 60)]),
                        _ => guest.dequeue(&mut room, 250),
                    };
                    let expected = Progress { packets: 1, is_stopped: true };
                    assert_eq!(progress, expected, "{layout:x} {kind} {index}");
                    assert!(guest.next_used(1).is_some());
                    assert_eq!(guest.next_used(1), None, "{layout:x} {kind} {index}");
                }
            }
        }
    }
}

#[test]
fn packet_of_other_length_than_a_buffer_stays_in_ring() {
    for layout in LAYOUTS {
        for (longest, length, passes) in [(60, 60, true), (59, 60, false), (60, 13, false)] {
            let mut guest = Guest::new(ALL | layout);
            guest.offer(&[(0, 12, 0), (100, length, 0)]);
            let mut room = Room(Vec::new(), 1, Vec::new());
            let progress = guest.dequeue(&mut room, longest);
            assert_eq!((progress.packets == 1, progress.is_stopped), (passes, !passes));
        }
        let mut guest = Guest::new(ALL | layout);
        guest.offer(&[(0, 12, 0), (100, 60, 0)]);
        assert!(guest.dequeue(&mut Room::default(), 60).is_stopped, "no buffer is free");
    }
}

/// A guest that loops as long as a ring allows, again and again.
#[test]
fn looping_chains_end() {
    let mut guest = Guest::new(ALL);
    let Driver::Split(driver) = &guest.driver else { unreachable!("a split ring") };
    for at in 0..SIZE {
        let (address, length, flags, next) = (0, 1, NEXT, (at + 1) % SIZE);
        driver.set_descriptor(at, split::Descriptor { address, length, flags, next });
        driver.put_available(at, at);
    }
    driver.publish_available(SIZE);
    let mut room = Room(Vec::new(), 4, Vec::new());
    assert_eq!(guest.dequeue(&mut room, 2000), Progress { packets: 0, is_stopped: true });
    assert_eq!(guest.next_used(1), None);
}

#[test]
fn random_descriptors_change_nothing_outside_of_memory() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % end
    };
    let mut passed = [0; 2];
    for round in 0..6000 {
        let layout = LAYOUTS[round % 2];
        let mut guest = Guest::new(ALL | features::MERGEABLE | layout);
        guest.put(0, &vec![0; MEMORY_BYTES as usize]);
        let kind = if round / 2 % 2 == 0 { WRITE } else { 0 };
        let mut part = || {
            let address = [below(MEMORY_BYTES), below(2 * MEMORY_BYTES), u64::MAX - below(99)];
            let flags = [kind, kind | NEXT, INDIRECT, kind, kind, kind ^ WRITE];
            let length = [below(40), below(400), below(5000)];
            let pick = [below(9), below(9), below(16)].map(|value| value as usize);
            let address = address[pick[0].saturating_sub(6)];
            (address, length[pick[1] / 3] as u32, flags[pick[2].saturating_sub(10)])
        };
        for at in (0..512).step_by(16) {
            guest.put_indirect(at, part(), (at / 16 + 1) as u16);
        }
        for _ in 0..4 {
            let (mut first, second) = (part(), part());
            if first.2 & INDIRECT != 0 {
                first = (first.0 / 16 * 16 % 512, first.1 / 16 * 16, INDIRECT);
            }
            guest.offer(&if second.1 % 2 == 0 { vec![first] } else { vec![first, second] });
        }
        let mut room = Room(Vec::new(), 4, Vec::new());
        let progress = match kind {
            WRITE => guest.enqueue(vec![content(1, 60), content(0xDD, 300), content(3, 900)]),
            _ => guest.dequeue(&mut room, 1000),
        };
        passed[usize::from(kind == WRITE)] += progress.packets;
        for at in [-(GUARD_BYTES as isize), MEMORY_BYTES as isize] {
            let guard = guest.memory.as_ptr().wrapping_offset(at);
            // SAFETY: the guard's bytes lie beside the guest's memory.
            let guard = unsafe { std::slice::from_raw_parts(guard, GUARD_BYTES) };
            assert!(guard.iter().all(|byte| *byte == 0), "round {round}");
        }
    }
    assert!(passed.iter().all(|count| *count > 500), "{passed:?}");
}
