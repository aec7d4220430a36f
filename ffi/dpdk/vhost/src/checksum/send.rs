//! Packets of a program that ask their sender for checksums or a segmentation: what librte_vhost
//! writes into the packet and into its header (lib/vhost/virtio_net.c: `virtio_enqueue_offload`;
//! lib/net/rte_net.h: `rte_net_intel_cksum_prepare`).
//!
//! The lengths of headers are the program's, and may be wrong. librte_vhost reads and writes
//! beyond the packet then. Such a packet is left to it, and so are packets of tunnels and UDP
//! segmentation, which the releases from 22.11 to 26.07 handle differently.

use haul_forward::{Checksum, Header};

use super::{LINK_BITS, SEND_IPV4, SEND_SCTP, SEND_TCP, SEND_UDP, ones_complement_sum};
use crate::layout::Mbuf;

/// Flags of a packet that asks its sender for more than a copy: a checksum of IPv4
/// (RTE_MBUF_F_TX_IP_CKSUM), one of the transport (_L4_MASK), and segmentation (_TCP_SEG,
/// _UDP_SEG).
const SUM_IPV4: u64 = 1 << 54;
const TRANSPORT: u64 = 3 << 52;
const SEGMENT_TCP: u64 = 1 << 50;
const SEGMENT_UDP: u64 = 1 << 42;
pub(crate) const ASKED: u64 = SUM_IPV4 | TRANSPORT | SEGMENT_TCP | SEGMENT_UDP;

/// Flags of a packet in a tunnel (RTE_MBUF_F_TX_OUTER_UDP_CKSUM, _OUTER_IP_CKSUM, _OUTER_IPV4,
/// _OUTER_IPV6).
const OUTER: u64 = 1 << 41 | 1 << 58 | 1 << 59 | 1 << 60;

/// The number of bits of the lengths behind the first in `Mbuf::transmit`
/// (RTE_MBUF_L3_LEN_BITS, _L4_LEN_BITS).
const NETWORK_BITS: u32 = 9;
const TRANSPORT_BITS: u32 = 8;

/// The size of an IPv4 header without options, the offset of its checksum, and the size of an
/// IPv6 header.
const IPV4_BYTES: usize = 20;
const IPV4_SUM_AT: usize = 10;
const IPV6_BYTES: usize = 40;

/// VIRTIO_NET_HDR_F_NEEDS_CSUM, and VIRTIO_NET_HDR_GSO_TCPV4 and _TCPV6, of section 5.1.6 of
/// virtio 1.2.
const LACKS: u8 = 1;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;

/// Whether this library sends a packet that asks for something.
///
/// # Safety
/// The packet is valid, and no other thread changes it.
#[inline(never)]
pub(crate) unsafe fn is_served(packet: &Mbuf) -> bool {
    // SAFETY: the caller's promise.
    let bytes = unsafe { &*first_bytes(packet) };
    Asked::of(packet.flags, packet.transmit, bytes).is_some()
}

/// The header of such a packet. Writes the sum of the pseudo header into the packet, and the
/// checksum of IPv4, as asked.
///
/// # Safety
/// The caller's packet, which [`is_served`].
#[inline(never)]
pub(crate) unsafe fn header(packet: &Mbuf) -> Header {
    // SAFETY: the caller's promise.
    let bytes = unsafe { &mut *first_bytes(packet) };
    match Asked::of(packet.flags, packet.transmit, bytes) {
        Some(asked) => {
            asked.prepare(bytes);
            asked.header()
        }
        None => Header::default(),
    }
}

/// The bytes of a packet's first segment, which holds all headers.
fn first_bytes(packet: &Mbuf) -> *mut [u8] {
    let at = packet.buffer.wrapping_add(packet.data_offset.into());
    std::ptr::slice_from_raw_parts_mut(at, packet.data_bytes.into())
}

/// What a packet asks for, with all headers inside of its first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// The sizes of the headers in bytes, as the program gives them.
    link: usize,
    network: usize,
    transport: usize,
    is_ipv4: bool,
    sums_ipv4: bool,
    /// The flag of the transport whose checksum is asked for, and the checksum's offset.
    sum: Option<(u64, usize)>,
    /// The most bytes of a segment, if the packet is to be divided.
    segment_bytes: Option<u16>,
}

impl Asked {
    /// `None` if DPDK must send the packet.
    fn of(flags: u64, lengths: u64, packet: &[u8]) -> Option<Self> {
        let mut left = lengths;
        let mut next = |bits: u32| {
            let value = left & ((1 << bits) - 1);
            left >>= bits;
            value as usize
        };
        let (link, network, transport) =
            (next(LINK_BITS), next(NETWORK_BITS), next(TRANSPORT_BITS));
        let segment_bytes = (flags & SEGMENT_TCP != 0).then_some(next(u16::BITS) as u16);
        let kind = flags & TRANSPORT;
        let sum = match kind {
            0 if segment_bytes.is_some() => Some((SEND_TCP, 16)),
            SEND_TCP => Some((kind, 16)),
            SEND_UDP => Some((kind, 6)),
            SEND_SCTP => Some((kind, 8)),
            _ => None,
        };
        let is_other = flags & (SEGMENT_UDP | OUTER) != 0
            || segment_bytes.is_some() && ![0, SEND_TCP].contains(&kind);
        let is_ipv4 = flags & SEND_IPV4 != 0;
        let sums_ipv4 = flags & SUM_IPV4 != 0;
        let asked = Self { link, network, transport, is_ipv4, sums_ipv4, sum, segment_bytes };
        (!is_other && asked.is_inside(packet)).then_some(asked)
    }

    /// Whether the packet holds all that is read and written.
    fn is_inside(self, packet: &[u8]) -> bool {
        let Self { link, network, transport, is_ipv4, sums_ipv4, sum, .. } = self;
        let mut end = 0;
        if let Some((_, offset)) = sum {
            let shortest = if is_ipv4 { IPV4_BYTES } else { IPV6_BYTES };
            let start = link + network;
            end = (link + shortest).max(start + transport.max(offset + 2));
        }
        if sums_ipv4 {
            let Some(first) = packet.get(link) else { return false };
            end = end.max(link + IPV4_BYTES).max(link + ipv4_bytes(*first));
        }
        end <= packet.len()
    }

    fn prepare(self, packet: &mut [u8]) {
        let Self { link, network, is_ipv4, sums_ipv4, sum, segment_bytes, .. } = self;
        if let Some((kind, offset)) = sum
            && kind != SEND_SCTP
        {
            let is_segmented = segment_bytes.is_some();
            let header = &packet[link..];
            let sum = if is_ipv4 {
                pseudo_ipv4(header, is_segmented)
            } else {
                pseudo_ipv6(header, is_segmented)
            };
            let at = link + network + offset;
            packet[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
        }
        if sums_ipv4 {
            let header = &mut packet[link..];
            let bytes = ipv4_bytes(header[0]);
            header[IPV4_SUM_AT..][..2].fill(0);
            let sum = !ones_complement_sum(&header[..bytes]);
            header[IPV4_SUM_AT..][..2].copy_from_slice(&sum.to_ne_bytes());
        }
    }

    fn header(self) -> Header {
        let Self { link, network, transport, is_ipv4, sum, segment_bytes, .. } = self;
        let start = link + network;
        let mut header = Header::default();
        if let Some((_, offset)) = sum {
            header.flags = LACKS;
            header.checksum = Checksum { start: start as u16, offset: offset as u16 };
        }
        if let Some(bytes) = segment_bytes {
            header.segmentation = if is_ipv4 { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 };
            (header.header_bytes, header.segment_bytes) = ((start + transport) as u16, bytes);
        }
        header
    }
}

/// The size of an IPv4 header, from its first byte.
fn ipv4_bytes(first: u8) -> usize {
    4 * usize::from(first & 0xF)
}

/// The sum of IPv4's pseudo header: addresses, transport, and the size behind the header, which is
/// 0 for a packet that is to be divided.
fn pseudo_ipv4(header: &[u8], is_segmented: bool) -> u16 {
    let total = u16::from_be_bytes([header[2], header[3]]);
    let rest = total.wrapping_sub(ipv4_bytes(header[0]) as u16);
    let rest = if is_segmented { 0 } else { rest };
    let mut pseudo = [0; 12];
    pseudo[..8].copy_from_slice(&header[12..20]);
    pseudo[9] = header[9];
    pseudo[10..].copy_from_slice(&rest.to_be_bytes());
    ones_complement_sum(&pseudo)
}

/// The sum of IPv6's pseudo header.
fn pseudo_ipv6(header: &[u8], is_segmented: bool) -> u16 {
    let mut pseudo = [0; 36];
    pseudo[..32].copy_from_slice(&header[8..40]);
    if !is_segmented {
        pseudo[32..34].copy_from_slice(&header[4..6]);
    }
    pseudo[35] = header[6];
    ones_complement_sum(&pseudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a TCP packet of 100 B of data over IPv4, and its flags and lengths.
    fn packet() -> (Vec<u8>, u64, u64) {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0, 0, 140, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0; 20]);
        bytes.extend(0..100);
        (bytes, SEND_IPV4 | SEND_TCP, 14 | 20 << LINK_BITS)
    }

    fn completed(mut bytes: Vec<u8>, asked: Asked) -> Vec<u8> {
        asked.prepare(&mut bytes);
        let Checksum { start, offset } = asked.header().checksum;
        let (start, at) = (usize::from(start), usize::from(start + offset));
        let sum = !ones_complement_sum(&bytes[start..]);
        bytes[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
        bytes
    }

    #[test]
    fn receiver_that_sums_from_start_gets_a_valid_checksum() {
        let (bytes, flags, lengths) = packet();
        let asked = Asked::of(flags | SUM_IPV4, lengths, &bytes).expect("an honest packet");
        let whole = completed(bytes, asked);
        // A receiver sums the pseudo header and the segment with its checksum, RFC 9293.
        let pseudo = [&whole[26..34], &[0, 6, 0, 120]].concat();
        let segment = [&pseudo[..], &whole[34..]].concat();
        assert_eq!(ones_complement_sum(&segment), u16::MAX);
        assert_eq!(ones_complement_sum(&whole[14..34]), u16::MAX);
        assert_eq!(asked.header().segmentation, 0);
    }

    #[test]
    fn segmented_packet_has_no_size_in_its_sum() {
        let (mut bytes, flags, lengths) = packet();
        let lengths = lengths | 20 << 16 | 1000 << 24;
        let asked = Asked::of(flags | SEGMENT_TCP, lengths, &bytes).expect("an honest packet");
        asked.prepare(&mut bytes);
        let pseudo = [&bytes[26..34], &[0, 6]].concat();
        assert_eq!(bytes[50..52], ones_complement_sum(&pseudo).to_ne_bytes());
        let header = asked.header();
        assert_eq!((header.segmentation, header.header_bytes), (TCP_OVER_IPV4, 54));
        assert_eq!(header.segment_bytes, 1000);
    }

    #[test]
    fn packet_shorter_than_its_headers_is_left_to_dpdk() {
        let (bytes, flags, lengths) = packet();
        for length in 0..bytes.len() {
            let asked = Asked::of(flags, lengths, &bytes[..length]);
            assert_eq!(asked.is_some(), length >= 14 + 20 + 18, "{length}");
        }
        for other in [SEGMENT_UDP, 1 << 58, SEGMENT_TCP | SEND_UDP] {
            assert_eq!(Asked::of(flags | other, lengths, &bytes), None);
        }
    }
}
