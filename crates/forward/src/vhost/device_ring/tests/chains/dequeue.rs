//! Packets from the guest, in chains of several descriptors.

use super::*;

#[test]
fn dequeue_gathers_chain_whose_header_is_in_several_descriptors() {
    for layout in LAYOUTS {
        let mut guest = Guest::new(ALL | layout);
        let packet = content(5, 60);
        for round in 0..20 {
            let all = [&[0; 12][..], &packet].concat();
            guest.put(0, &all[..5]);
            guest.put(100, &all[5..22]);
            guest.put(300, &all[22..]);
            let parts = [(0, 5, 0), (100, 17, 0), (300, 50, 0)];
            for (index, part) in parts.into_iter().enumerate() {
                let flags = if index < 2 { NEXT } else { 0 };
                // As DPDK's driver marks the header in a packed ring's table.
                let is_marked = index == 0 && layout == features::PACKED && round % 4 == 3;
                let flags = if is_marked { flags | WRITE } else { flags };
                let at = 1024 + 16 * index as u64;
                guest.put_indirect(at, (part.0, part.1, flags), index as u16 + 1);
            }
            let is_indirect = round % 2 == 1;
            if is_indirect {
                guest.offer(&[(1024, 48, INDIRECT)]);
            } else {
                guest.offer(&parts);
            }
            let mut room = Room(Vec::new(), 1, Vec::new());
            let progress = guest.dequeue(&mut room, 60);
            assert_eq!(progress, Progress { packets: 1, is_stopped: false }, "{round}");
            assert_eq!(room.0[0][..], packet);
            assert_eq!(guest.next_used(if is_indirect { 1 } else { 3 }), Some(0), "{round}");
            assert!(room.2.is_empty());
        }
    }
}

/// The copies of a long packet's predecessors are made within the burst, and its own later.
#[test]
fn dequeue_mixes_long_packets_in_pieces_with_short_ones() {
    for (layout, room) in LAYOUTS.into_iter().flat_map(|it| [(it, 4), (it, 3), (it, 2)]) {
        let mut guest = Guest::new(ALL | layout);
        for round in 0..20 {
            let lengths = [60, 800, 70, 780];
            let packets: Vec<_> =
                lengths.iter().zip(1..).map(|(&it, mark)| content(mark + round, it)).collect();
            let starts = [1800, 0, 1900, 900];
            for (packet, at) in packets.iter().zip(starts) {
                guest.put(at, &[&[0; 12][..], packet].concat());
            }
            guest.offer(&[(1800, 72, 0)]);
            guest.offer(&[(0, 412, 0), (412, 400, 0)]);
            guest.offer(&[(1900, 82, 0)]);
            guest.offer(&[(900, 12, 0), (912, 300, 0), (1212, 480, 0)]);
            let mut taken = Room(Vec::new(), room, Vec::new());
            let progress = guest.dequeue(&mut taken, 1000);
            assert_eq!(progress, Progress { packets: room, is_stopped: room < 4 }, "{round}");
            let found: Vec<_> = taken.0.iter().map(|it| it.to_vec()).collect();
            assert_eq!(found, packets[..room], "{round}");
            // The other packets of the round.
            let mut rest = Room(Vec::new(), 4, Vec::new());
            let progress = guest.dequeue(&mut rest, 1000);
            assert_eq!(progress, Progress { packets: 4 - room, is_stopped: false }, "{round}");
            assert_eq!(rest.0.iter().map(|it| it.to_vec()).collect::<Vec<_>>(), packets[room..]);
            for descriptors in [1, 2, 1, 3] {
                assert_eq!(guest.next_used(descriptors), Some(0), "{round}");
            }
        }
    }
}

#[test]
fn dequeue_records_missing_checksum_only_with_its_feature() {
    /// `flags`, `gso_type`, whether the packet passes, and whether it lacks a checksum.
    const HEADERS: [(u8, u8, bool, bool); 5] = [
        (0, 0, true, false),
        (1, 0, true, true),
        (1, 1, false, false),
        (0, 4, false, false),
        (2, 0, false, false),
    ];
    for layout in LAYOUTS {
        for (flags, segmentation, passes, lacks) in HEADERS {
            for features in [ALL, ALL & !features::CHECKSUMS] {
                for parts in [&[(0, 72, 0)][..], &[(0, 7, 0), (7, 65, 0)]] {
                    let mut guest = Guest::new(features | layout);
                    let header = [flags, segmentation, 0, 0, 0, 0, 34, 1, 16, 2, 0, 0];
                    guest.put(0, &header);
                    guest.offer(parts);
                    let mut room = Room(Vec::new(), 1, Vec::new());
                    let progress = guest.dequeue(&mut room, 60);
                    let has_feature = features & features::CHECKSUMS != 0;
                    let passes = passes && (has_feature || !lacks);
                    assert_eq!((progress.packets, progress.is_stopped), (passes.into(), !passes));
                    let checksum = Checksum { start: 256 + 34, offset: 512 + 16 };
                    let expected = (passes && lacks).then_some((0, checksum));
                    assert_eq!(room.2.first().copied(), expected, "{flags} {segmentation}");
                }
            }
        }
    }
}
