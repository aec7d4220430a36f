//! Packed rings: invalid chains cost only their packet, and random rings cost only packets.

use std::collections::BTreeMap;

use haul_forward::{DropReason, Link, Port};

use crate::front::{
    BUFFER_BYTES, DESCRIPTORS, Descriptor, FROM_GUEST, Front, GUEST, IN_ORDER, IS_INDIRECT,
    MEMORY_BYTES, NEXT, PACKED, RING, SIZE, TO_GUEST, VERSION_1, WRITE,
};
use crate::random::Random;
use crate::victim::{FEATURES, Victim};

/// VIRTQ_DESC_F_AVAIL and VIRTQ_DESC_F_USED.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Offset of the tables of indirect descriptors.
const TABLE: u64 = 0x6000;

/// A front end's valid packed ring, in which chains may be invalid.
pub(crate) struct Driver {
    ring: u64,
    size: u16,
    pub(crate) next: u16,
    is_odd: bool,
    pub(crate) next_used: u16,
    is_odd_used: bool,
    counts: BTreeMap<u16, u16>,
}

fn put(front: &Front, at: u64, descriptor: Descriptor) {
    // The id is stored where a split ring stores the flags.
    let Descriptor { address, length, flags, next: id } = descriptor;
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    front.put(at, &bytes);
}

pub(crate) fn descriptor(address: u64, length: u32, flags: u16) -> Descriptor {
    Descriptor { address, length, flags, next: 0 }
}

impl Driver {
    pub(crate) fn new(ring: u64) -> Self {
        let (next, is_odd, next_used, is_odd_used) = (0, true, 0, true);
        Self { ring, size: SIZE, next, is_odd, next_used, is_odd_used, counts: BTreeMap::new() }
    }

    /// The location `count` descriptors after another location.
    fn after(&self, (next, is_odd): (u16, bool), count: u16) -> (u16, bool) {
        let sum = next + count;
        if sum >= self.size { (sum - self.size, !is_odd) } else { (sum, is_odd) }
    }

    /// Skips descriptors that the device has used.
    fn skip(&mut self, count: u16) {
        (self.next_used, self.is_odd_used) = self.after((self.next_used, self.is_odd_used), count);
    }

    /// Skips all descriptors, which the device has used.
    pub(crate) fn skip_all(&mut self) {
        (self.next_used, self.is_odd_used) = (self.next, self.is_odd);
        self.counts.clear();
    }

    pub(crate) fn at(&self, index: u16) -> u64 {
        self.ring * RING + DESCRIPTORS + 16 * u64::from(index)
    }

    /// Makes a chain of these descriptors available.
    pub(crate) fn make_available(&mut self, front: &Front, id: u16, chain: &[Descriptor]) {
        self.counts.insert(id, chain.len() as u16);
        for descriptor in chain {
            let bits = if self.is_odd { AVAILABLE } else { USED };
            let flags = descriptor.flags | bits;
            put(front, self.at(self.next), Descriptor { flags, next: id, ..*descriptor });
            (self.next, self.is_odd) = self.after((self.next, self.is_odd), 1);
        }
    }

    /// The id of the next used chain, and the number of bytes written to it.
    pub(crate) fn take(&mut self, front: &Front) -> Option<(u16, u32)> {
        let mut bytes = [0; 16];
        front.get(self.at(self.next_used), &mut bytes);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let bits = if self.is_odd_used { AVAILABLE | USED } else { 0 };
        if half(14) & (AVAILABLE | USED) != bits {
            return None;
        }
        let (id, length) = (half(12), u32::from_le_bytes(bytes[8..12].try_into().unwrap()));
        let count = self.counts.remove(&id).expect("an id that was given");
        self.skip(count);
        Some((id, length))
    }
}

/// Invalid chains that the device reads or, with [`WRITE`], writes.
fn invalid_chains(kind: u16) -> Vec<(&'static str, Vec<Descriptor>)> {
    let buffer = GUEST + Front::buffer(FROM_GUEST, 10);
    let (end, table, other) = (GUEST + MEMORY_BYTES, GUEST + TABLE, kind ^ WRITE);
    let one = |address, length, flags| vec![descriptor(address, length, flags)];
    vec![
        ("an unmapped address", one(0, 200, kind)),
        ("the highest address", one(u64::MAX, 200, kind)),
        ("a length that wraps", one(u64::MAX - 100, 200, kind)),
        ("bytes beyond the memory", one(end - 99, 200, kind)),
        ("one byte before the memory", one(GUEST - 1, 200, kind)),
        ("of the other kind", one(buffer, 200, other)),
        ("of both kinds", vec![descriptor(buffer, 8, NEXT | kind), descriptor(buffer, 200, other)]),
        (
            "of a wrong kind first",
            vec![
                descriptor(buffer, 8, NEXT | other),
                descriptor(buffer, 8, NEXT | kind),
                descriptor(buffer, 200, kind),
            ],
        ),
        ("an empty table", one(table, 0, IS_INDIRECT | kind)),
        ("half a table", one(table, 24, IS_INDIRECT | kind)),
        ("an unmapped table", one(16, 16, IS_INDIRECT | kind)),
        ("a table beyond the memory", one(end - 16, 32, IS_INDIRECT)),
        ("a table at an odd address", one(table + 1, 16, IS_INDIRECT)),
        ("the longest table", one(table, 0xFFFF_FFF0, IS_INDIRECT)),
        (
            "a table and more",
            vec![descriptor(table, 16, IS_INDIRECT | NEXT), descriptor(buffer, 200, kind)],
        ),
        ("a table in a table", one(table + 32, 16, IS_INDIRECT)),
        ("a table of the other kind", one(table + 48, 16, IS_INDIRECT)),
    ]
}

fn write_tables(front: &Front, kind: u16) {
    let buffer = GUEST + Front::buffer(FROM_GUEST, 10);
    put(front, TABLE, descriptor(buffer, 200, kind));
    put(front, TABLE + 32, descriptor(GUEST + TABLE, 16, IS_INDIRECT | kind));
    put(front, TABLE + 48, descriptor(buffer, 200, kind ^ WRITE));
}

pub(crate) fn packet(front: &Front, mark: u8) -> [Descriptor; 1] {
    let at = Front::buffer(FROM_GUEST, 1);
    let mut bytes = [mark; 72];
    bytes[..12].fill(0);
    front.put(at, &bytes);
    [descriptor(GUEST + at, 72, 0)]
}

pub(crate) fn room() -> [Descriptor; 1] {
    [descriptor(GUEST + Front::buffer(TO_GUEST, 1), BUFFER_BYTES as u32, WRITE)]
}

#[test]
fn packet_from_invalid_chain_is_dropped_and_next_one_arrives() {
    let mut victim = Victim::new();
    let front = victim.front_with(FEATURES | PACKED);
    write_tables(&front, 0);
    let mut driver = Driver::new(FROM_GUEST);
    // Enough repetitions for several rounds of the ring.
    for (number, (name, chain)) in (0..8).flat_map(|_| invalid_chains(0)).enumerate() {
        driver.make_available(&front, 2, &chain);
        driver.make_available(&front, 5, &packet(&front, number as u8));
        victim.poll(0, 0);
        let counters = victim.counters();
        let bad = counters.rx.drops_for(DropReason::BadDescriptor);
        assert_eq!(bad, number as u64 + 1, "{name}: {:?}", counters.rx.drops);
        assert_eq!(victim.came.last(), Some(&(number as u8, 60)), "{name}");
        let came = [driver.take(&front), driver.take(&front), driver.take(&front)];
        assert_eq!(came, [Some((2, 0)), Some((5, 0)), None], "{name}");
        assert_eq!((counters.resets, victim.port.link()), (0, Link::Up), "{name}");
    }
}

#[test]
fn packet_into_invalid_chain_is_dropped_and_next_one_is_sent() {
    let mut victim = Victim::new();
    let front = victim.front_with(FEATURES | PACKED);
    write_tables(&front, WRITE);
    let mut driver = Driver::new(TO_GUEST);
    for (number, (name, chain)) in (0..8).flat_map(|_| invalid_chains(WRITE)).enumerate() {
        driver.make_available(&front, 63, &chain);
        driver.make_available(&front, 7, &room());
        victim.poll(2, 100);
        let counters = victim.counters();
        let bad = counters.tx.drops_for(DropReason::BadDescriptor);
        assert_eq!(bad, number as u64 + 1, "{name}: {:?}", counters.tx.drops);
        assert_eq!(counters.tx.packets, number as u64 + 1, "{name}");
        let came = [driver.take(&front), driver.take(&front), driver.take(&front)];
        assert_eq!(came, [Some((63, 0)), Some((7, 112)), None], "{name}");
        assert_eq!((counters.resets, victim.port.link()), (0, Link::Up), "{name}");
    }
}

#[test]
fn packets_in_chains_and_tables_arrive_complete() {
    let mut victim = Victim::new();
    let front = victim.front_with(FEATURES | PACKED);
    let mut driver = Driver::new(FROM_GUEST);
    let at = Front::buffer(FROM_GUEST, 20);
    front.put(at, &(0..80).collect::<Vec<u8>>());
    for round in 0..20 {
        // The pieces have one byte each, in the ring and in a table, whose descriptors need no
        // flags.
        let piece = |index: u64, flags| descriptor(GUEST + at + index, 1, flags);
        let chain: Vec<_> =
            (0..40).map(|index| piece(index, if index < 39 { NEXT } else { 0 })).collect();
        (0..64).for_each(|index| put(&front, TABLE + 16 * index, piece(index, 0)));
        driver.make_available(&front, 1, &chain);
        driver.make_available(&front, 2, &[descriptor(GUEST + TABLE, 64 * 16, IS_INDIRECT)]);
        victim.poll(0, 0);
        assert_eq!(victim.came[2 * round..], [(39, 28), (63, 52)]);
        assert_eq!([driver.take(&front), driver.take(&front)], [Some((1, 0)), Some((2, 0))]);
    }
    let mut driver = Driver::new(TO_GUEST);
    for id in 0..4 {
        driver.make_available(&front, id, &room());
    }
    // The packet waits while there are too few buffers.
    victim.poll(1, 9000);
    assert_eq!((victim.counters().tx.packets, driver.take(&front)), (0, None));
    driver.make_available(&front, 4, &room());
    victim.poll(1, 9000);
    assert_eq!(victim.counters().tx.packets, 1);
    let lengths: Vec<_> = std::iter::from_fn(|| driver.take(&front)).collect();
    assert_eq!(lengths, [(0, 2048), (1, 2048), (2, 2048), (3, 2048), (4, 820)]);
}

/// If chains are read and used in order, only the last one of a burst is published, at the location
/// of the first. Filled chains are published one by one, for their lengths.
#[test]
fn ordered_burst_is_published_by_its_last_chain() {
    let mut victim = Victim::new();
    let front = victim.front_with(FEATURES | PACKED | IN_ORDER);
    let mut driver = Driver::new(FROM_GUEST);
    let mut id = 0;
    // Enough bursts for several rounds of the ring; each has an invalid chain in the middle.
    for burst in 1..20_u16 {
        let first = driver.next_used;
        for index in 0..burst {
            let bad = [descriptor(0, 8, NEXT), descriptor(0, 200, 0)];
            let packet = packet(&front, index as u8);
            driver.make_available(
                &front,
                id + index,
                if index == burst / 2 { &bad } else { &packet },
            );
        }
        let before = victim.came.len();
        victim.poll(0, 0);
        assert_eq!(victim.came.len() - before, usize::from(burst) - 1);
        // The driver skips the whole burst.
        let mut bytes = [0; 16];
        front.get(driver.at(first), &mut bytes);
        assert_eq!(u16::from_le_bytes([bytes[12], bytes[13]]), id + burst - 1);
        let count: u16 = (id..id + burst).filter_map(|id| driver.counts.remove(&id)).sum();
        let second = driver.at((first + 1) % SIZE);
        if burst > 2 {
            front.get(second, &mut bytes);
            let flags = u16::from_le_bytes([bytes[14], bytes[15]]) & (AVAILABLE | USED);
            assert!(flags == AVAILABLE || flags == USED, "{flags:#x}: it is still available");
        }
        driver.skip(count);
        assert_eq!(driver.next_used, driver.next);
        id += burst;
    }
    let bad = victim.counters().rx.drops_for(DropReason::BadDescriptor);
    assert_eq!((bad, victim.port.link()), (19, Link::Up));
    let mut driver = Driver::new(TO_GUEST);
    (0..8).for_each(|id| driver.make_available(&front, id, &room()));
    victim.poll(8, 100);
    let came: Vec<_> = std::iter::from_fn(|| driver.take(&front)).collect();
    assert_eq!(came, (0..8).map(|id| (id, 112)).collect::<Vec<_>>());
}

/// A packed ring may have any size: chains cross its end in every round, at different descriptors.
#[test]
fn rings_of_any_size_wrap_around() {
    for size in [3_u16, 37, 63] {
        let mut victim = Victim::new();
        let mut front = victim.front_with(FEATURES | PACKED);
        for ring in [TO_GUEST, FROM_GUEST] {
            front.restart(ring, size, 0x8000_8000);
        }
        victim.wait_for_link(Link::Up);
        let new = |ring| Driver { size, ..Driver::new(ring) };
        let (mut there, mut back) = (new(TO_GUEST), new(FROM_GUEST));
        for number in 0..4 * size {
            // A chain of two, and a packet into two buffers.
            let [whole] = packet(&front, number as u8);
            let first = Descriptor { length: 20, flags: NEXT, ..whole };
            let rest = Descriptor { address: whole.address + 20, length: 52, ..whole };
            back.make_available(&front, 1, &[first, rest]);
            there.make_available(&front, 2, &room());
            there.make_available(&front, 3, &room());
            victim.wait("a packet from the guest", |victim| {
                victim.poll(0, 0);
                victim.came.len() > usize::from(number)
            });
            assert_eq!(victim.came.last(), Some(&(number as u8, 60)), "{size}: {number}");
            assert_eq!([back.take(&front), back.take(&front)], [Some((1, 0)), None], "{size}");
            victim.poll(1, 3000);
            let came = [there.take(&front), there.take(&front), there.take(&front)];
            assert_eq!(came, [Some((2, 2048)), Some((3, 964)), None], "{size}: {number}");
        }
        let counters = victim.counters();
        assert_eq!((counters.tx.drops_sum(), counters.resets), (0, 0), "{size}");
    }
}

#[test]
fn endless_chain_ends_only_the_conversation() {
    for ring in [TO_GUEST, FROM_GUEST] {
        let mut victim = Victim::new();
        let mut front = victim.front_with(FEATURES | PACKED);
        let flags = NEXT | if ring == TO_GUEST { WRITE } else { 0 };
        let chain = vec![descriptor(GUEST + Front::buffer(ring, 0), 1, flags); SIZE.into()];
        Driver::new(ring).make_available(&front, 0, &chain);
        victim.poll(1, 9000);
        assert!(front.is_disconnected());
        victim.wait("a reset", |victim| victim.counters().resets == 1);
        victim.check_service();
    }
}

#[test]
fn random_packed_rings_cost_only_packets() {
    let mut victim = Victim::new();
    let mut random = Random::new(0xFEED_FACE_0123_4567);
    for _ in 0..200 {
        let features = random.next() & (FEATURES | IN_ORDER);
        let front = victim.front_with(PACKED | VERSION_1 | features);
        for _ in 0..100 {
            for _ in 0..1 + random.below(8) {
                let ring = random.below(2);
                let at = ring * RING + DESCRIPTORS + 16 * random.below(SIZE.into());
                let offset = if random.below(4) == 0 { TABLE + at % 256 } else { at };
                let mut wrong = crate::random::descriptor(&mut random);
                wrong.flags |= [0, AVAILABLE, USED, AVAILABLE | USED][random.below(4) as usize];
                put(&front, offset, wrong);
            }
            victim.poll(random.below(8) as usize, 14 + random.below(9000) as usize);
        }
        victim.counters();
        drop(front);
    }
    victim.check_service();
}
