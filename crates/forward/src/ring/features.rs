//! Feature bits, and the header in front of each packet, of virtio 1.2.

use crate::offloads::{Header, Offloads};

/// VIRTIO_NET_F_CSUM, section 5.1.3: the driver may leave checksums to the device.
pub(crate) const CHECKSUMS: u64 = 1;
/// VIRTIO_NET_F_GUEST_CSUM, section 5.1.3: the device may leave checksums to the driver.
const GUEST_CHECKSUMS: u64 = 1 << 1;
/// VIRTIO_NET_F_GUEST_TSO4, GUEST_TSO6 and GUEST_ECN: the driver divides packets of TCP.
const GUEST_TCP: [u64; 3] = [1 << 7, 1 << 8, 1 << 9];
/// VIRTIO_NET_F_HOST_TSO4, HOST_TSO6 and HOST_ECN: the device divides packets of TCP.
const HOST_TCP: [u64; 3] = [1 << 11, 1 << 12, 1 << 13];

/// All features that let a driver leave work to the device.
pub(crate) const FROM_DRIVER: u64 = CHECKSUMS | HOST_TCP[0] | HOST_TCP[1] | HOST_TCP[2];
/// The feature that lets a device leave checksums to the driver, and those that let it leave the
/// division of long packets to the driver as well.
pub(crate) const TO_DRIVER: u64 = GUEST_CHECKSUMS;
pub(crate) const LONG_TO_DRIVER: u64 = GUEST_TCP[0] | GUEST_TCP[1] | GUEST_TCP[2];

/// The work that these features let a driver leave to the device.
pub(crate) fn from_driver(features: u64) -> Offloads {
    kinds(features, CHECKSUMS, HOST_TCP)
}

/// The work that these features let a device leave to the driver.
pub(crate) fn to_driver(features: u64) -> Offloads {
    kinds(features, GUEST_CHECKSUMS, GUEST_TCP)
}

fn kinds(features: u64, checksums: u64, tcp: [u64; 3]) -> Offloads {
    let has = |feature| features & feature != 0;
    let [tcp_v4, tcp_v6, ecn] = tcp.map(has);
    Offloads { checksums: has(checksums), tcp_v4, tcp_v6, ecn }
}

/// VIRTIO_NET_F_MRG_RXBUF, section 5.1.3: a packet may use several of the driver's buffers.
pub(crate) const MERGEABLE: u64 = 1 << 15;
/// VIRTIO_NET_F_MQ, section 5.1.3: several queue pairs.
pub(crate) const MULTIQUEUE: u64 = 1 << 22;
/// VIRTIO_F_ANY_LAYOUT, section 6.3: header and packet may share a descriptor.
pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
/// VIRTIO_F_INDIRECT_DESC, section 2.7.5.3.
pub(crate) const INDIRECT: u64 = 1 << 28;
/// VIRTIO_F_EVENT_IDX, section 2.7.7.
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
/// VHOST_USER_F_PROTOCOL_FEATURES of the vhost-user protocol.
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
/// VIRTIO_F_VERSION_1, section 6.
pub(crate) const VERSION_1: u64 = 1 << 32;
/// VIRTIO_F_RING_PACKED, section 6: the ring has the layout of section 2.8.
pub(crate) const PACKED: u64 = 1 << 34;
/// VIRTIO_F_IN_ORDER, section 6: buffers are used in the order in which they were made available.
pub(crate) const IN_ORDER: u64 = 1 << 35;

/// Bytes of struct virtio_net_hdr in front of a packet, section 5.1.6.
pub(crate) fn header_bytes(features: u64) -> usize {
    if features & (MERGEABLE | VERSION_1) != 0 { HEADER_BYTES_MAX } else { HEADER_BYTES_MIN }
}

/// Shortest such header.
pub(crate) const HEADER_BYTES_MIN: usize = Header::BYTES;
/// Longest such header.
pub(crate) const HEADER_BYTES_MAX: usize = 12;

/// The header of a packet that uses `buffers` buffers. Legacy devices without mergeable buffers do
/// not have the last field, `num_buffers`.
#[inline(always)]
pub(crate) fn header(asked: Header, buffers: u16) -> [u8; HEADER_BYTES_MAX] {
    let (first, offset) = asked.words();
    let mut header = [0; HEADER_BYTES_MAX];
    header[..8].copy_from_slice(&first.to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    header[10..].copy_from_slice(&buffers.to_le_bytes());
    header
}
