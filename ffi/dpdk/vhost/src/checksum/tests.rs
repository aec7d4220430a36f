//! Packets of known headers, whole, shortened, and with any values of the guest.

use super::*;

/// The lengths of the headers before the transport's, a packet with them, and its transport.
fn packet(is_tagged: bool, is_ipv6: bool, transport: u8) -> (usize, usize, Vec<u8>) {
    let mut bytes = vec![2; 12];
    if is_tagged {
        bytes.extend([0x81, 0, 0, 5]);
    }
    bytes.extend(if is_ipv6 { [0x86, 0xDD] } else { [8, 0] });
    let link = bytes.len();
    let mut header = if is_ipv6 { vec![0x60; 40] } else { vec![0x46; 24] };
    header[if is_ipv6 { 6 } else { 9 }] = transport;
    bytes.extend(&header);
    bytes.extend((0..40).map(|byte: u8| byte.wrapping_mul(37)));
    (link, header.len(), bytes)
}

/// The place of a checksum in its transport's header, the flag that asks for it, and the length of
/// the shortest header.
const KNOWN: [(u8, u16, u64, usize); 3] =
    [(TCP, 16, SEND_TCP, 20), (UDP, 6, SEND_UDP, 8), (SCTP, 8, SEND_SCTP, 12)];

#[test]
fn flags_to_send_are_set_for_values_of_the_packet_alone() {
    for (is_tagged, is_ipv6) in [(false, false), (true, false), (false, true), (true, true)] {
        for (transport, own, flag, shortest) in KNOWN {
            let (link, network, bytes) = packet(is_tagged, is_ipv6, transport);
            let version = if is_ipv6 { SEND_IPV6 } else { SEND_IPV4 };
            let expected = Some((version | flag, (link | network << 7) as u64));
            let begin = (link + network) as u16;
            for start in 0..=bytes.len() as u16 + 1 {
                for offset in (0..20).chain([u16::MAX]) {
                    let found = to_send(&bytes, Checksum { start, offset });
                    let is_own = (start, offset) == (begin, own);
                    assert_eq!(found, expected.filter(|_| is_own), "{transport} {start} {offset}");
                }
            }
            for length in 0..bytes.len() {
                let found = to_send(&bytes[..length], Checksum { start: begin, offset: own });
                assert_eq!(found.is_some(), length >= link + network + shortest, "{length}");
            }
        }
        let (link, network, bytes) = packet(is_tagged, is_ipv6, 1);
        let start = (link + network) as u16;
        assert_eq!(to_send(&bytes, Checksum { start, offset: 16 }), None);
    }
    let mut bytes = packet(false, false, TCP).2;
    bytes[12] = 0x88;
    assert_eq!(to_send(&bytes, Checksum { start: 38, offset: 16 }), None);
}

#[test]
fn received_packet_of_known_type_is_flagged_and_unchanged() {
    for kind in TRANSPORTS {
        let (link, network, bytes) = packet(false, false, TCP);
        let header_bytes = (link + network + 20) as u32;
        let mut copy = bytes.clone();
        let start = (link + network) as u16;
        let flags = received(&mut copy, 0x11 | kind, header_bytes, Checksum { start, offset: 16 });
        assert_eq!((flags, copy), (LACKS_CHECKSUM, bytes));
    }
}

#[test]
fn checksum_of_unknown_packet_is_computed_inside_it() {
    for length in [60, 61] {
        let bytes: Vec<u8> = (0..length).map(|byte: u8| byte.wrapping_mul(41)).collect();
        for start in 0..70_u16 {
            for offset in (0..70).chain([u16::MAX - start, u16::MAX]) {
                let mut copy = bytes.clone();
                // A type without a transport, and a start behind the headers of a known one.
                let kind = if start % 2 == 0 { 0x11 } else { 0x111 };
                let header_bytes = if start % 2 == 0 { 60 } else { 0 };
                assert_eq!(received(&mut copy, kind, header_bytes, Checksum { start, offset }), 0);
                let place = usize::from(start.wrapping_add(offset));
                let mut expected = bytes.clone();
                if usize::from(start) < bytes.len() && place < bytes.len() {
                    let sum = big_endian_sum(&bytes[start.into()..]);
                    let sum = if sum == 0xFFFF { sum } else { !sum };
                    let end = bytes.len().min(place + 2);
                    expected[place..end].copy_from_slice(&sum.to_be_bytes()[..end - place]);
                }
                assert_eq!(copy, expected, "{length} {start} {offset}");
            }
        }
    }
}

/// The sum of RFC 1071, as its text defines it.
fn big_endian_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for (index, byte) in bytes.iter().enumerate() {
        sum += u32::from(*byte) << (8 * (1 - index % 2));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn completed_checksum_makes_the_sum_of_all_ones() {
    let mut bytes: Vec<u8> = (0..200).map(|byte: u8| byte.wrapping_mul(7)).collect();
    // The guest leaves the sum of the pseudo header; 0 is one as well.
    bytes[50..52].fill(0);
    received(&mut bytes, 0, 0, Checksum { start: 34, offset: 16 });
    assert_eq!(ones_complement_sum(&bytes[34..]), u16::MAX);
}
