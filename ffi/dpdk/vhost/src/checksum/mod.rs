//! Packets of a guest that lack a checksum: what librte_vhost sets in such a packet, with
//! RTE_VHOST_USER_NET_COMPLIANT_OL_FLAGS and without it (lib/vhost/virtio_net.c, equal from 22.11
//! to 26.07: `vhost_dequeue_offload` and `vhost_dequeue_offload_legacy`).
//!
//! The guest's values are checked against the copied packet, which the guest cannot change.
//! - `send`: the other direction, packets that ask for checksums.

pub(crate) mod send;

use haul_forward::Checksum;

use crate::dpdk::{Functions, HeaderBytes};
use crate::layout::Mbuf;

/// Flags of a packet that asks its sender for checksums (RTE_MBUF_F_TX_IPV4, _IPV6, _TCP_CKSUM,
/// _SCTP_CKSUM, _UDP_CKSUM).
const SEND_IPV4: u64 = 1 << 55;
const SEND_IPV6: u64 = 1 << 56;
const SEND_TCP: u64 = 1 << 52;
const SEND_SCTP: u64 = 2 << 52;
const SEND_UDP: u64 = 3 << 52;

/// The flag of a packet whose data is intact, but which lacks its checksum
/// (RTE_MBUF_F_RX_L4_CKSUM_NONE).
const LACKS_CHECKSUM: u64 = 1 << 3 | 1 << 8;

/// All parts of a packet's type, and its transport (RTE_PTYPE_ALL_MASK, _L4_MASK, _L4_TCP, _L4_UDP,
/// _L4_SCTP).
const ALL: u32 = 0x0FFF_FFFF;
const TRANSPORT: u32 = 0xF00;
const TRANSPORTS: [u32; 3] = [0x100, 0x200, 0x400];

/// Numbers of transports in IP headers.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// The number of bits of a header's length in `Mbuf::transmit` (RTE_MBUF_L2_LEN_BITS).
const LINK_BITS: u32 = 7;

/// Sets what librte_vhost sets in a packet that lacks a checksum. `is_compliant` says whether
/// the program asked for RTE_VHOST_USER_NET_COMPLIANT_OL_FLAGS.
///
/// # Safety
/// The packet is valid, has one segment, and is the caller's.
#[inline(never)]
pub(crate) unsafe fn set(
    functions: &Functions,
    packet: *mut Mbuf,
    checksum: Checksum,
    is_compliant: bool,
) {
    let mut header_bytes = HeaderBytes::default();
    let kind = if is_compliant {
        // SAFETY: the caller's promise; writes the lengths.
        unsafe { (functions.rte_net_get_ptype)(packet, &raw mut header_bytes, ALL) }
    } else {
        0
    };
    // SAFETY: the caller's promise.
    let packet = unsafe { &mut *packet };
    let (at, length) = (packet.buffer.wrapping_add(packet.data_offset.into()), packet.data_bytes);
    // SAFETY: the packet's bytes lie outside of its fields, and are the caller's.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at, length.into()) };
    if is_compliant {
        packet.packet_type = kind;
        packet.flags |= received(bytes, kind, header_bytes.sum(), checksum);
    } else if let Some((flags, lengths)) = to_send(bytes, checksum) {
        packet.flags |= flags;
        packet.transmit = lengths;
    }
}

/// The flags of a packet as a NIC would receive it. If the packet's type is not known, computes the
/// checksum.
fn received(packet: &mut [u8], kind: u32, header_bytes: u32, checksum: Checksum) -> u64 {
    let Checksum { start, offset } = checksum;
    if u32::from(start) <= header_bytes && TRANSPORTS.contains(&(kind & TRANSPORT)) {
        return LACKS_CHECKSUM;
    }
    let Some(part) = packet.get(usize::from(start)..).filter(|part| !part.is_empty()) else {
        return 0;
    };
    let sum = match ones_complement_sum(part) {
        u16::MAX => u16::MAX,
        sum => !sum,
    };
    // A place that wraps is the guest's own error. Of a checksum at the packet's end, librte_vhost
    // writes one byte behind the packet.
    let place = packet.iter_mut().skip(start.wrapping_add(offset).into());
    place.zip(sum.to_ne_bytes()).for_each(|(place, byte)| *place = byte);
    0
}

/// The sum of RFC 1071, in this machine's order of bytes.
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > u16::MAX.into() {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// The flags with which a program passes a packet on, and the lengths of its headers. `None` if the
/// guest's values do not belong to the packet: it then has no flags.
fn to_send(packet: &[u8], checksum: Checksum) -> Option<(u64, u64)> {
    /// The lengths of Ethernet's header, of a VLAN tag, and of the shortest headers behind them.
    const LINK_BYTES: usize = 14;
    const TAG_BYTES: usize = 4;
    const IPV4_BYTES: usize = 20;
    const IPV6_BYTES: usize = 40;
    let kind_at = |at: usize| packet.get(at..at + 2).map(|kind| [kind[0], kind[1]]);
    let (mut link, mut kind) = (LINK_BYTES, kind_at(LINK_BYTES - 2)?);
    if kind == [0x81, 0x00] {
        link += TAG_BYTES;
        kind = kind_at(link - 2)?;
    }
    let (network, transport, version) = match kind {
        [0x08, 0x00] => {
            let header = packet.get(link..link + IPV4_BYTES)?;
            (4 * usize::from(header[0] & 0xF), header[9], SEND_IPV4)
        }
        [0x86, 0xDD] => (IPV6_BYTES, packet.get(link..link + IPV6_BYTES)?[6], SEND_IPV6),
        _ => return None,
    };
    // The shortest header, and the place of its checksum.
    let (bytes, offset, flags) = match transport {
        TCP => (20, 16, SEND_TCP),
        UDP => (8, 6, SEND_UDP),
        SCTP => (12, 8, SEND_SCTP),
        _ => return None,
    };
    let start = link + network;
    let is_own = packet.len() >= start + bytes
        && usize::from(checksum.start) == start
        && checksum.offset == offset;
    is_own.then_some((version | flags, link as u64 | (network as u64) << LINK_BITS))
}

#[cfg(test)]
mod tests;
