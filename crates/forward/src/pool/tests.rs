use super::*;
use crate::offloads::Checksum;

#[test]
fn pool_allocates_every_buffer_once_and_reuses_it() {
    let mut pool = Pool::new(100).unwrap();
    assert_eq!((pool.size(), pool.available()), (100, 100));
    let mut starts = std::collections::BTreeSet::new();
    let mut packets = Vec::new();
    while let Some(packet) = pool.take(ROOM_BYTES) {
        assert!(starts.insert(pool.first(&packet).pointer));
        assert!(pool.write(&packet, 0, &[packets.len() as u8; ROOM_BYTES]));
        packets.push(packet);
    }
    assert_eq!((packets.len(), pool.available()), (100, 0));
    for (number, packet) in packets.iter().enumerate() {
        let mut bytes = [0; ROOM_BYTES];
        assert!(pool.read(packet, 0, &mut bytes));
        assert_eq!(bytes, [number as u8; ROOM_BYTES], "packet {number}");
    }
    packets.into_iter().for_each(|packet| pool.free(packet));
    assert_eq!(pool.available(), 100);
}

/// Safe code may free a packet in a pool other than its own, so a packet may refer to any buffer
/// in any state.
#[test]
fn header_needs_headroom_in_front_of_packet() {
    let mut pool = Pool::new(1).unwrap();
    let packet = pool.take(100).unwrap();
    let first = pool.first(&packet).pointer;
    assert_eq!(pool.front(&packet, 12).addr().get() + 12, first.addr().get());
    pool.shift(&packet, HEADROOM_BYTES - 8);
    assert_eq!(pool.front(&packet, 8).addr().get() + HEADROOM_BYTES, first.addr().get());
    let beyond = std::panic::AssertUnwindSafe(|| pool.front(&packet, 12));
    assert!(std::panic::catch_unwind(beyond).is_err(), "in front of the first buffer of the pool");
    pool.free(packet);
}

#[test]
fn chain_holds_bytes_written_across_its_buffers() {
    let mut pool = Pool::new(16).unwrap();
    for length in [1, 2048, 2049, 4096, 4097, 9000, PACKET_BYTES_MAX] {
        let packet = pool.take(length).unwrap();
        assert_eq!(pool.length(&packet), length);
        assert_eq!(16 - pool.available(), length.div_ceil(ROOM_BYTES));
        let sum: usize = pool.segments(&packet).map(|segment| segment.length).sum();
        assert_eq!(sum, length);
        assert_eq!(pool.is_one(&packet), length <= ROOM_BYTES);
        let source: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        assert!(pool.write(&packet, 0, &source));
        for offset in [0, 1, length / 2, length - 1, length] {
            let mut target = vec![0; length - offset];
            assert!(pool.read(&packet, offset, &mut target));
            assert_eq!(target, source[offset..], "{length} B from {offset}");
            assert!(!pool.read(&packet, offset + 1, &mut target), "beyond the end");
            assert!(!pool.write(&packet, offset + 1, &target), "beyond the end");
        }
        pool.free(packet);
        assert_eq!(pool.available(), 16);
    }
    assert!(pool.take(PACKET_BYTES_MAX + 1).is_none());
}

#[test]
fn cut_chain_frees_its_buffers() {
    let mut pool = Pool::new(40).unwrap();
    let cuts = [(9000, 9000), (9000, 4096), (9000, 4097), (9000, 0), (100, 60), (65_597, 65_540)];
    for (length, cut) in cuts {
        let packet = pool.take_merged(length).unwrap();
        pool.cut(&packet, cut);
        let sum: usize = pool.segments(&packet).map(|segment| segment.length).sum();
        assert_eq!((pool.length(&packet), sum), (cut, cut));
        assert_eq!(40 - pool.available(), cut.div_ceil(ROOM_BYTES).max(1));
        pool.free(packet);
        assert_eq!(pool.available(), 40);
    }
}

#[test]
fn header_stays_with_its_packet_alone() {
    let mut pool = Pool::new(64).unwrap();
    let checksum = Checksum { start: 34, offset: 16 };
    let header = Header { flags: 1, segmentation: 1, segment_bytes: 1448, checksum, ..plain() };
    assert!(!pool.take_asked());
    for length in [0, 60, ROOM_BYTES, ROOM_BYTES + 1, MERGED_BYTES_MAX] {
        let (packet, other) = (pool.take_merged(length).unwrap(), pool.take(60).unwrap());
        assert_eq!(pool.header(&packet), plain(), "{length} B");
        pool.set_header(&packet, header);
        assert!(pool.take_asked() && !pool.take_asked());
        assert_eq!((pool.header(&packet), pool.header(&other)), (header, plain()));
        let is_one = length <= ROOM_BYTES;
        assert_eq!((pool.is_one(&packet), pool.is_plain_one(&packet)), (is_one, false));
        assert!(pool.is_plain_one(&other));
        assert_eq!(pool.segments(&packet).map(|part| part.length).sum::<usize>(), length);
        pool.cut(&packet, 0);
        assert_eq!((pool.header(&packet), pool.is_one(&packet)), (header, true));
        pool.set_header(&packet, plain());
        assert!(pool.is_plain_one(&packet) && pool.header(&packet) == plain());
        pool.set_header(&packet, header);
        pool.free(packet);
        pool.free(other);
        assert_eq!(pool.available(), 64);
    }
    assert!(pool.take_merged(MERGED_BYTES_MAX + 1).is_none());
}

fn plain() -> Header {
    Header::default()
}

#[test]
fn pool_rejects_sizes_outside_limits() {
    for packets in [0, PACKETS_MAX + 1] {
        assert!(matches!(Pool::new(packets), Err(Error::Value { .. })), "{packets}");
    }
}

#[test]
fn burst_keeps_packet_order() {
    let mut burst = Burst::with_limit(BURST_MAX);
    let (mut pushed, mut popped) = (0, 0);
    for round in 0..2000_u32 {
        while burst.room() > 0 && pushed % 7 != round % 7 {
            burst.push(Packet::from_index(pushed));
            pushed += 1;
        }
        for _ in 0..round % 5 {
            let Some(packet) = burst.pop() else { break };
            assert_eq!(packet.into_index(), popped);
            popped += 1;
        }
        if burst.room() > 0 {
            burst.push(Packet::from_index(pushed));
            pushed += 1;
        }
        assert_eq!(burst.len(), (pushed - popped) as usize);
    }
    assert!(popped > 1000);
    let mut seen = popped;
    burst.for_each(|packet| {
        assert_eq!(packet.index, seen);
        seen += 1;
    });
    assert_eq!(seen, pushed);
}

#[test]
fn pool_memory_is_sealed_and_holds_blocks() {
    let pool = Pool::new(10).unwrap();
    let file = pool.memory().file().try_clone_to_owned().unwrap();
    assert!(haul_peer::memory::is_sealed(&file, haul_peer::memory::Sealed::Size));
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    let size = rustix::fs::fstat(&file).unwrap().st_size;
    assert_eq!(size as usize, pool.memory().bytes());
    let block = pool.memory().block(70_000, 4096).unwrap();
    let (base, address) = (pool.memory().base().as_ptr().addr(), block.as_ptr().addr());
    assert!(address >= base && address + 70_000 <= base + pool.memory().bytes());
    pool.memory().free(block);
}
