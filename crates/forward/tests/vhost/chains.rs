//! Invalid chains of descriptors: each costs only its packet.

use haul_forward::{DropReason, Link, Port};

use crate::front::{
    BUFFER_BYTES, Descriptor, FROM_GUEST, Front, GUEST, IS_INDIRECT, MEMORY_BYTES, NEXT, SIZE,
    TO_GUEST, VERSION_1, WRITE, bytes_of,
};
use crate::victim::Victim;

/// An invalid chain: its name, its descriptors from index 10 on, and the head that is made
/// available.
type InvalidChain = (&'static str, Vec<Descriptor>, u16);

/// Offset of the tables of indirect descriptors.
const TABLE: u64 = 0x6000;

fn descriptor(address: u64, length: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor { address, length, flags, next }
}

/// Invalid chains that the device reads or, with [`WRITE`], writes.
fn invalid_chains(kind: u16) -> Vec<InvalidChain> {
    let buffer = GUEST + Front::buffer(FROM_GUEST, 10);
    let other = kind ^ WRITE;
    let end = GUEST + MEMORY_BYTES;
    let table = GUEST + TABLE;
    vec![
        ("a chain of one that loops", vec![descriptor(buffer, 72, NEXT | kind, 10)], 10),
        (
            "a chain of two that loops",
            vec![descriptor(buffer, 8, NEXT | kind, 11), descriptor(buffer, 8, NEXT | kind, 10)],
            10,
        ),
        ("a next beyond the table", vec![descriptor(buffer, 8, NEXT | kind, SIZE)], 10),
        ("a next far beyond it", vec![descriptor(buffer, 8, NEXT | kind, u16::MAX)], 10),
        ("an unmapped address", vec![descriptor(0, 200, kind, 0)], 10),
        ("the highest address", vec![descriptor(u64::MAX, 200, kind, 0)], 10),
        ("a length that wraps", vec![descriptor(u64::MAX - 100, 200, kind, 0)], 10),
        ("bytes beyond the memory", vec![descriptor(end - 99, 200, kind, 0)], 10),
        ("one byte before the memory", vec![descriptor(GUEST - 1, 200, kind, 0)], 10),
        ("the highest length", vec![descriptor(buffer, u32::MAX, kind, 0)], 10),
        ("of the other kind", vec![descriptor(buffer, 200, other, 0)], 10),
        (
            "of both kinds",
            vec![descriptor(buffer, 8, NEXT | kind, 11), descriptor(buffer, 200, other, 0)],
            10,
        ),
        ("a head beyond the table", vec![], SIZE),
        ("a head far beyond it", vec![], u16::MAX),
        ("an empty table", vec![descriptor(table, 0, IS_INDIRECT | kind, 0)], 10),
        ("half a table", vec![descriptor(table, 24, IS_INDIRECT | kind, 0)], 10),
        ("an unmapped table", vec![descriptor(16, 16, IS_INDIRECT | kind, 0)], 10),
        ("a table beyond the memory", vec![descriptor(end - 16, 32, IS_INDIRECT, 0)], 10),
        ("a table at an odd address", vec![descriptor(table + 1, 16, IS_INDIRECT, 0)], 10),
        ("the longest table", vec![descriptor(table, 0xFFFF_FFF0, IS_INDIRECT, 0)], 10),
        ("a table and more", vec![descriptor(table, 16, IS_INDIRECT | NEXT, 11)], 10),
        ("a table in a table", vec![descriptor(table + 32, 16, IS_INDIRECT, 0)], 10),
        ("a table that loops", vec![descriptor(table + 64, 16, IS_INDIRECT, 0)], 10),
        ("a table that leaves itself", vec![descriptor(table + 96, 16, IS_INDIRECT, 0)], 10),
    ]
}

/// The tables to which the chains above refer.
fn write_tables(front: &Front, kind: u16) {
    let buffer = GUEST + Front::buffer(FROM_GUEST, 10);
    for (offset, entry) in [
        (0, descriptor(buffer, 200, kind, 0)),
        (32, descriptor(GUEST + TABLE, 16, IS_INDIRECT, 0)),
        (64, descriptor(buffer, 8, NEXT | kind, 0)),
        (96, descriptor(buffer, 8, NEXT | kind, 1)),
    ] {
        front.put(TABLE + offset, &bytes_of(entry));
    }
}

#[test]
fn packet_from_invalid_chain_is_dropped_and_next_one_arrives() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    write_tables(&front, 0);
    for (number, (name, descriptors, head)) in invalid_chains(0).into_iter().enumerate() {
        for (index, descriptor) in descriptors.into_iter().enumerate() {
            front.set(FROM_GUEST, 10 + index as u16, descriptor);
        }
        front.make_available(FROM_GUEST, head);
        front.send_packet(1, number as u8);
        victim.poll(0, 0);
        let counters = victim.counters();
        let bad = counters.rx.drops_for(DropReason::BadDescriptor);
        assert_eq!(bad, number as u64 + 1, "{name}: {:?}", counters.rx.drops);
        assert_eq!(victim.came.last(), Some(&(number as u8, 60)), "{name}");
        assert_eq!(front.used(FROM_GUEST), 2 * (number as u16 + 1), "{name}");
        assert_eq!((counters.resets, victim.port.link()), (0, Link::Up), "{name}");
    }
}

#[test]
fn packet_into_invalid_chain_is_dropped_and_next_one_is_sent() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    write_tables(&front, WRITE);
    // The device uses only as much of a buffer as it needs, even if the reported length exceeds the
    // memory.
    let chains =
        invalid_chains(WRITE).into_iter().filter(|(name, ..)| *name != "the highest length");
    for (number, (name, descriptors, head)) in chains.enumerate() {
        for (index, descriptor) in descriptors.into_iter().enumerate() {
            front.set(TO_GUEST, 10 + index as u16, descriptor);
        }
        front.make_available(TO_GUEST, head);
        front.add_buffer(1);
        victim.poll(2, 100);
        let counters = victim.counters();
        let bad = counters.tx.drops_for(DropReason::BadDescriptor);
        assert_eq!(bad, number as u64 + 1, "{name}: {:?}", counters.tx.drops);
        assert_eq!(counters.tx.packets, number as u64 + 1, "{name}");
        assert_eq!(front.used(TO_GUEST), 2 * (number as u16 + 1), "{name}");
        assert_eq!((counters.resets, victim.port.link()), (0, Link::Up), "{name}");
    }
}

#[test]
fn too_short_and_too_long_packets_are_dropped_by_reason() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    let buffer = |index| GUEST + Front::buffer(FROM_GUEST, index);
    let (mut short, mut long) = (0, 0);
    for length in [0, 1, 11, 12, 13, 25] {
        front.set(FROM_GUEST, 2, descriptor(buffer(2), length, 0, 0));
        front.make_available(FROM_GUEST, 2);
        short += 1;
    }
    for length in [12 + 9217, 65_535] {
        front.set(FROM_GUEST, 3, descriptor(GUEST, length, 0, 0));
        front.make_available(FROM_GUEST, 3);
        victim.poll(0, 0);
        long += 1;
    }
    let counters = victim.counters();
    assert_eq!(counters.rx.drops_for(DropReason::TooShort), short);
    assert_eq!(counters.rx.drops_for(DropReason::TooLong), long);
    // The longest valid packet.
    front.set(FROM_GUEST, 3, descriptor(GUEST, 12 + 9216, 0, 0));
    front.make_available(FROM_GUEST, 3);
    victim.poll(0, 0);
    assert_eq!(victim.came.last().map(|(_, length)| *length), Some(9216));
    victim.counters();
}

/// A chain in a table, with as many pieces of one byte as a ring has descriptors.
#[test]
fn packet_in_many_pieces_arrives_complete() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    let at = Front::buffer(FROM_GUEST, 20);
    let bytes: Vec<u8> = (0..64).collect();
    front.put(at, &bytes);
    for index in 0..64_u16 {
        let flags = if index == 63 { 0 } else { NEXT };
        let entry = descriptor(GUEST + at + u64::from(index), 1, flags, index + 1);
        front.put(TABLE + 16 * u64::from(index), &bytes_of(entry));
    }
    front.set(FROM_GUEST, 0, descriptor(GUEST + TABLE, 64 * 16, IS_INDIRECT, 0));
    front.make_available(FROM_GUEST, 0);
    victim.poll(0, 0);
    assert_eq!(victim.came, [(63, 52)]);
    victim.counters();
}

#[test]
fn packet_uses_several_buffers_or_none() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    for index in 0..4 {
        front.add_buffer(index);
    }
    // The packet waits while there are too few buffers.
    victim.poll(1, 9000);
    assert_eq!((victim.counters().tx.packets, front.used(TO_GUEST)), (0, 0));
    front.add_buffer(4);
    victim.poll(1, 9000);
    assert_eq!((victim.counters().tx.packets, front.used(TO_GUEST)), (1, 5));
    let mut count = [0; 2];
    front.get(Front::buffer(TO_GUEST, 0) + 10, &mut count);
    assert_eq!(u16::from_le_bytes(count), 5);
    drop(front);
    victim.wait_for_link(Link::Down);
    // Without mergeable buffers, the packet never fits.
    let mut front = Front::connect(&victim.path());
    front.start(VERSION_1);
    victim.wait_for_link(Link::Up);
    front.add_buffer(0);
    front.add_buffer(1);
    victim.poll(1, BUFFER_BYTES as usize - 11);
    assert_eq!(victim.counters().tx.drops_for(DropReason::TooLong), 1);
    victim.poll(1, BUFFER_BYTES as usize - 12);
    assert_eq!(victim.counters().tx.packets, 2);
}

#[test]
fn jumping_index_ends_only_the_conversation() {
    for ring in [TO_GUEST, FROM_GUEST] {
        for index in [SIZE + 1, 1000, 32_768, u16::MAX] {
            let mut victim = Victim::new();
            let mut front = victim.front();
            front.set_available(ring, index);
            victim.poll(1, 64);
            assert!(front.is_disconnected());
            victim.wait("a reset", |victim| victim.counters().resets == 1);
            victim.check_service();
        }
    }
}
