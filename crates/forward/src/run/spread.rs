//! The queue pair of each packet: receive-side scaling, as NICs and hypervisors do it, which keeps
//! the packets of a flow in order.
//!
//! The Toeplitz hash covers the addresses of IPv4 and IPv6, with or without VLAN tags. It also
//! covers the ports of TCP and UDP, unless the packet is a fragment. The lower seven bits of the
//! hash choose an entry of a table that lists the queues in turn. All other packets go to the first
//! queue.
//!
//! For each set bit of the input, the hash adds a window of the key. The sums for all values of
//! four input bits are computed once, so that a packet needs two lookups per input byte.

use crate::pool::{Packet, Pool};

/// Microsoft's key for verifying an implementation ("Verifying the RSS hash calculation").
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The longest input: two addresses of IPv6, and two ports.
const INPUT_BYTES_MAX: usize = 36;

/// The largest number of a packet's first bytes that are inspected: Ethernet, two tags, an IPv4
/// header with options or an IPv6 header, and ports.
const HEADER_BYTES_MAX: usize = 14 + 8 + 60 + 4;

/// The number of entries in the table of queues.
const ENTRIES: u32 = 128;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
/// Tags of IEEE 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88A8];

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Chooses queues.
#[derive(Debug)]
pub(super) struct Spread {
    /// For each half of an input byte, the higher half first: the sum for each value of this
    /// half.
    sums: Box<[[u32; 16]; 2 * INPUT_BYTES_MAX]>,
}

impl Spread {
    pub(super) fn new() -> Self {
        let mut sums = Box::new([[0; 16]; 2 * INPUT_BYTES_MAX]);
        for (half, sums) in sums.iter_mut().enumerate() {
            for (value, sum) in sums.iter_mut().enumerate() {
                let bits = (0..4).filter(|bit| value & (8 >> bit) != 0);
                *sum = bits.fold(0, |sum, bit| sum ^ window(4 * half + bit));
            }
        }
        Self { sums }
    }

    /// The queue, below `queues`, of a packet.
    pub(super) fn queue(&self, pool: &Pool, packet: &Packet, queues: usize) -> usize {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = pool.length(packet).min(HEADER_BYTES_MAX);
        let is_read = pool.read(packet, 0, &mut bytes[..length]);
        debug_assert!(is_read, "the length is at most the packet's");
        let mut input = [0; INPUT_BYTES_MAX];
        let count = input_of(&bytes[..length], &mut input).unwrap_or(0);
        (self.hash(&input[..count]) % ENTRIES) as usize % queues
    }

    fn hash(&self, input: &[u8]) -> u32 {
        let pairs = input.iter().zip(self.sums.as_chunks::<2>().0);
        pairs.fold(0, |hash, (byte, [high, low])| {
            hash ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)]
        })
    }
}

/// The 32 bits of the key that start at this bit.
fn window(bit: usize) -> u32 {
    let byte = |index: usize| u64::from(KEY[(bit / 8 + index) % KEY.len()]);
    let five = (0..5).fold(0, |sum, index| sum << 8 | byte(index));
    (five >> (8 - bit % 8)) as u32
}

/// Copies the hashed fields of a frame to `input` and returns their length; `None` if the frame
/// has no such fields.
fn input_of(frame: &[u8], input: &mut [u8; INPUT_BYTES_MAX]) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = 12;
    // At most two tags.
    for _ in 0..2 {
        if TAGS.contains(&word(at)?) {
            at += 4;
        }
    }
    let (kind, start) = (word(at)?, at + 2);
    let (addresses, protocol, after, is_part) = match kind {
        IPV4 => {
            let header = frame.get(start..start + 20)?;
            // The flag MF and the fragment offset.
            let is_part = word(start + 6)? & 0x3FFF != 0;
            let after = start + 4 * usize::from(header[0] & 15);
            (&header[12..20], header[9], after, is_part)
        }
        IPV6 => {
            let header = frame.get(start..start + 40)?;
            (&header[8..40], header[6], start + 40, false)
        }
        _ => return None,
    };
    input[..addresses.len()].copy_from_slice(addresses);
    let ports = frame.get(after..after + 4).filter(|_| !is_part && [TCP, UDP].contains(&protocol));
    let Some(ports) = ports else { return Some(addresses.len()) };
    input[addresses.len()..addresses.len() + 4].copy_from_slice(ports);
    Some(addresses.len() + 4)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// A UDP frame between these addresses and ports, with `tags` VLAN tags.
    fn frame(addresses: &[u8], ports: [u16; 2], tags: usize, protocol: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        if addresses.len() == 8 {
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
        } else {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, protocol, 64]);
        }
        frame.extend(addresses);
        ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
        frame.extend([0; 20]);
        frame
    }

    fn hash(frame: &[u8]) -> u32 {
        let mut input = [0; INPUT_BYTES_MAX];
        let count = input_of(frame, &mut input).unwrap_or(0);
        Spread::new().hash(&input[..count])
    }

    /// The vectors that Microsoft publishes with the key.
    #[test]
    fn hash_matches_published_vectors() {
        let v4 = |source: [u8; 4], target: [u8; 4]| {
            [Ipv4Addr::from(source).octets(), Ipv4Addr::from(target).octets()].concat()
        };
        for (source, source_port, target, target_port, alone, with_ports) in [
            ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e_8fc2, 0x51cc_c178),
            ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
            ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
        ] {
            let addresses = v4(source, target);
            let ports = [source_port, target_port];
            for tags in 0..3 {
                for protocol in [TCP, UDP] {
                    assert_eq!(hash(&frame(&addresses, ports, tags, protocol)), with_ports);
                }
                assert_eq!(hash(&frame(&addresses, ports, tags, 1)), alone);
            }
            // The ports of a fragment must not be hashed.
            let mut part = frame(&addresses, ports, 0, UDP);
            part[20] = 0x20;
            assert_eq!(hash(&part), alone);
        }
        let parse = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let source = "3ffe:2501:200:1fff::7";
        let addresses = [parse(source), parse("3ffe:2501:200:3::1")].concat();
        assert_eq!(hash(&frame(&addresses, [2794, 1766], 0, TCP)), 0x4020_7d3d);
        assert_eq!(hash(&frame(&addresses, [2794, 1766], 1, 58)), 0x2cc1_8cd5);
    }

    #[test]
    fn every_frame_has_a_queue() {
        let mut pool = Pool::new(4).unwrap();
        let spread = Spread::new();
        let whole = frame(&[10, 0, 0, 1, 10, 0, 0, 2], [7, 9], 2, UDP);
        for length in 0..whole.len() {
            let packet = pool.take(length).unwrap();
            assert!(pool.write(&packet, 0, &whole[..length]));
            for queues in 1..5 {
                assert!(spread.queue(&pool, &packet, queues) < queues, "{length} B");
            }
            pool.free(packet);
        }
        // A header whose length reaches beyond the packet has no ports.
        let mut wrong = whole;
        wrong[22] = 0x4F;
        wrong.truncate(60);
        assert_eq!(hash(&wrong), hash(&frame(&[10, 0, 0, 1, 10, 0, 0, 2], [7, 9], 2, 1)));
    }
}
