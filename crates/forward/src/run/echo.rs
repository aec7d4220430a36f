//! Answers to ARP requests (RFC 826) and ICMP echo requests (RFC 792) for an address.

use std::net::Ipv4Addr;

use crate::offloads::Header;
use crate::pool::{Packet, Pool};

/// The EtherType follows both addresses, or a VLAN tag behind them.
const KIND_AT: usize = 12;
const TAG_BYTES: usize = 4;
/// The size of an Ethernet header in bytes.
const ETHERNET_BYTES: usize = 14;
/// The sizes in bytes of an ARP packet for IPv4 on Ethernet, of an IPv4 header without options,
/// and of an ICMP header.
const ARP_BYTES: usize = 28;
const IP_BYTES: usize = 20;
const ICMP_BYTES: usize = 8;
/// The number of a frame's first bytes that are inspected.
const HEAD_BYTES: usize = ETHERNET_BYTES + TAG_BYTES + ARP_BYTES;

const _: () = assert!(ARP_BYTES == IP_BYTES + ICMP_BYTES);

/// Time to live of an answer: RFC 1700's default.
const TIME_TO_LIVE: u8 = 64;

/// The host that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The address that requests name.
    pub ip: Ipv4Addr,
    /// The Ethernet address of this host.
    pub ethernet: [u8; 6],
}

impl Host {
    /// Turns a packet into the answer to itself. Returns false and leaves the packet unchanged if
    /// it is not a request to this host.
    pub(super) fn answer(&self, pool: &mut Pool, packet: &Packet) -> bool {
        let mut head = [0; HEAD_BYTES];
        // The shortest request that is answered, without a tag.
        let shortest = HEAD_BYTES - TAG_BYTES;
        let length = pool.length(packet);
        let head = &mut head[..length.min(HEAD_BYTES)];
        if length < shortest || !pool.read(packet, 0, head) {
            return false;
        }
        let is_tagged = head[KIND_AT..KIND_AT + 2] == [0x81, 0x00];
        let front = ETHERNET_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        let (ethernet, rest) = head.split_at_mut(front);
        if rest.len() < ARP_BYTES || ethernet[6] & 1 != 0 {
            return false;
        }
        let rest = &mut rest[..ARP_BYTES];
        let is_answered = match ethernet[front - 2..] {
            [0x08, 0x06] => self.answer_arp(rest),
            // A packet for another Ethernet address, as on a mirrored port, is not for this host.
            [0x08, 0x00] if ethernet[..6] == self.ethernet => {
                self.answer_echo(rest, length - front)
            }
            _ => false,
        };
        if is_answered {
            ethernet.copy_within(6..12, 0);
            ethernet[6..12].copy_from_slice(&self.ethernet);
        }
        if !is_answered {
            return false;
        }
        // The answer has its checksum.
        pool.set_header(packet, Header::default());
        pool.write(packet, 0, &head[..front + ARP_BYTES])
    }

    fn answer_arp(&self, arp: &mut [u8]) -> bool {
        // Ethernet, IPv4, addresses of 6 and 4 B, a request.
        let is_request = arp[..8] == [0, 1, 8, 0, 6, 4, 0, 1];
        let (sender, target) = (&arp[14..18], &arp[24..28]);
        if !is_request || target != self.ip.octets() || sender == self.ip.octets() {
            return false;
        }
        arp[7] = 2;
        arp.copy_within(8..18, 18);
        arp[8..14].copy_from_slice(&self.ethernet);
        arp[14..18].copy_from_slice(&self.ip.octets());
        true
    }

    /// `bytes`: the length of everything behind the Ethernet header.
    fn answer_echo(&self, packet: &mut [u8], bytes: usize) -> bool {
        let (ip, icmp) = packet.split_at_mut(IP_BYTES);
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        // Version 4 without options, complete, not a fragment, and ICMP.
        let is_icmp = ip[0] == 0x45
            && (IP_BYTES + ICMP_BYTES..=bytes).contains(&total)
            && ip[6] & 0x3f == 0
            && ip[7] == 0
            && ip[9] == 1
            && sum(ip) == u16::MAX;
        let source = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
        let is_asked = ip[16..20] == self.ip.octets()
            && source != self.ip
            && !(source.is_unspecified() || source.is_broadcast() || source.is_multicast());
        if !is_icmp || !is_asked || icmp[..2] != [8, 0] {
            return false;
        }
        ip.copy_within(12..16, 16);
        ip[12..16].copy_from_slice(&self.ip.octets());
        ip[8] = TIME_TO_LIVE;
        ip[10..12].fill(0);
        let checksum = !sum(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        // RFC 1624, equation 3: the type was 8 and becomes 0. A wrong checksum stays wrong.
        let before = u16::from_be_bytes([icmp[2], icmp[3]]);
        let checksum = !fold(u32::from(!before) + u32::from(!0x0800_u16));
        icmp[0] = 0;
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        true
    }
}

/// The sum of 16-bit words, RFC 1071: all ones over a header with a valid checksum.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks::<2>().0.iter();
    fold(words.map(|word| u32::from(u16::from_be_bytes(*word))).sum())
}

fn fold(mut sum: u32) -> u16 {
    while sum > u32::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{
        ArpHardwareId, ArpOperation, ArpPacket, EtherType, Icmpv4Type, NetSlice, PacketBuilder,
        SlicedPacket, TransportSlice,
    };

    use super::*;

    const HOST: Host = Host { ip: Ipv4Addr::new(198, 18, 0, 1), ethernet: [2, 0, 0, 0, 0, 9] };
    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 5];
    const ASKER_IP: [u8; 4] = [198, 18, 0, 77];

    fn arp(target: [u8; 4], is_tagged: bool) -> Vec<u8> {
        let request = ArpPacket::new(
            ArpHardwareId::ETHERNET,
            EtherType::IPV4,
            ArpOperation::REQUEST,
            &ASKER,
            &ASKER_IP,
            &[0; 6],
            &target,
        )
        .unwrap();
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(ASKER, [0xff; 6]);
        if is_tagged {
            builder.single_vlan(7.try_into().unwrap()).arp(request).write(&mut frame).unwrap();
        } else {
            builder.arp(request).write(&mut frame).unwrap();
        }
        frame.resize(60, 0);
        frame
    }

    fn echo(target: [u8; 4], payload: &[u8], is_tagged: bool) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(ASKER, HOST.ethernet);
        if is_tagged {
            let builder = builder.single_vlan(7.try_into().unwrap()).ipv4(ASKER_IP, target, 3);
            builder.icmpv4_echo_request(77, 3).write(&mut frame, payload).unwrap();
        } else {
            let builder = builder.ipv4(ASKER_IP, target, 3);
            builder.icmpv4_echo_request(77, 3).write(&mut frame, payload).unwrap();
        }
        frame
    }

    /// The answer, if there is one. Asserts that an unanswered packet is unchanged.
    fn answer(frame: &[u8]) -> Option<Vec<u8>> {
        let mut pool = Pool::new(8).unwrap();
        let packet = pool.take(frame.len()).unwrap();
        assert!(pool.write(&packet, 0, frame));
        let is_answered = HOST.answer(&mut pool, &packet);
        let mut bytes = vec![0; frame.len()];
        assert!(pool.read(&packet, 0, &mut bytes));
        assert!(is_answered || bytes == frame);
        pool.free(packet);
        is_answered.then_some(bytes)
    }

    #[test]
    fn host_answers_arp_request() {
        for is_tagged in [false, true] {
            let bytes = answer(&arp(HOST.ip.octets(), is_tagged)).unwrap();
            let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
            let ethernet = sliced.link.unwrap().to_header().unwrap().ethernet2().unwrap();
            assert_eq!((ethernet.source, ethernet.destination), (HOST.ethernet, ASKER));
            let Some(NetSlice::Arp(reply)) = sliced.net else { panic!("no ARP") };
            assert_eq!(reply.operation(), ArpOperation::REPLY);
            assert_eq!(reply.sender_hw_addr(), HOST.ethernet);
            assert_eq!(reply.sender_protocol_addr(), HOST.ip.octets());
            assert_eq!(
                (reply.target_hw_addr(), reply.target_protocol_addr()),
                (&ASKER[..], &ASKER_IP[..])
            );
        }
    }

    #[test]
    fn host_answers_echo_with_valid_checksums() {
        for length in [0, 1, 18, 56, 1400, 8000] {
            for is_tagged in [false, true] {
                let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let bytes = answer(&echo(HOST.ip.octets(), &payload, is_tagged)).unwrap();
                let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
                let Some(NetSlice::Ipv4(ip)) = &sliced.net else { panic!("no IPv4") };
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                assert_eq!((header.source, header.destination), (HOST.ip.octets(), ASKER_IP));
                assert_eq!(header.time_to_live, 64);
                let Some(TransportSlice::Icmpv4(icmp)) = &sliced.transport else {
                    panic!("no ICMP")
                };
                let Icmpv4Type::EchoReply(reply) = icmp.icmp_type() else { panic!("no reply") };
                assert_eq!((reply.id, reply.seq), (77, 3));
                assert_eq!(icmp.payload(), payload);
                let kind = icmp.icmp_type();
                assert_eq!(icmp.checksum(), kind.calc_checksum(&payload), "{length} {is_tagged}");
            }
        }
    }

    #[test]
    fn host_leaves_other_packets_unchanged() {
        let other = [198, 18, 0, 2];
        let right = echo(HOST.ip.octets(), &[1; 40], false);
        let question = arp(HOST.ip.octets(), false);
        let changed = |frame: &[u8], at: usize, to: u8| {
            let mut frame = frame.to_vec();
            assert_ne!(frame[at], to);
            frame[at] = to;
            frame
        };
        for frame in [
            arp(other, false),
            echo(other, &[], false),
            // A reply, another link type, a multicast sender, a request from the host's own
            // address.
            changed(&question, 21, 2),
            changed(&question, 15, 6),
            changed(&question, 6, 1),
            [&question[..31], &[1], &question[32..]].concat(),
            // Options, a fragment of either kind, UDP, a wrong checksum, a length beyond the
            // packet.
            changed(&right, 14, 0x46),
            changed(&right, 20, 0x20),
            changed(&right, 21, 1),
            changed(&right, 23, 17),
            changed(&right, 24, 0xee),
            changed(&right, 16, 0xff),
            // An echo reply, another code, another Ethernet address, another EtherType.
            changed(&right, 34, 0),
            changed(&right, 35, 1),
            changed(&right, 5, 8),
            changed(&right, 12, 0x86),
            right[..41].to_vec(),
            vec![],
            vec![0xff; 64],
        ] {
            assert_eq!(answer(&frame), None, "{frame:x?}");
        }
    }
}
