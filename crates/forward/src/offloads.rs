//! Work that a sender of a packet leaves to a device, and that goes with the packet: a checksum,
//! and the division of a long packet (section 5.1.6 of virtio 1.2).

/// VIRTIO_NET_HDR_F_NEEDS_CSUM, section 5.1.6: the packet lacks a checksum.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;

/// VIRTIO_NET_HDR_GSO_TCPV4 and VIRTIO_NET_HDR_GSO_TCPV6, section 5.1.6: the packet is to be
/// divided into packets of TCP.
pub(crate) const TCP_V4: u8 = 1;
pub(crate) const TCP_V6: u8 = 4;
/// VIRTIO_NET_HDR_GSO_ECN, section 5.1.6: the packet has the flag CWR of TCP.
pub(crate) const ECN: u8 = 0x80;

/// The size in bytes of an Ethernet header. No checksum begins in it.
const ETHERNET_BYTES: usize = 14;

/// A checksum of a packet that its sender has left out: `csum_start` and `csum_offset` of section
/// 5.1.6 of virtio 1.2, as the sender wrote them. They may lie outside the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// The offset in bytes at which the checksummed part of the packet begins.
    pub start: u16,
    /// The offset in bytes of the checksum behind `start`.
    pub offset: u16,
}

impl Checksum {
    /// Whether a packet of `length` bytes has the checksum's place, behind its Ethernet header.
    #[inline]
    pub(crate) fn is_inside(self, length: usize) -> bool {
        let end = usize::from(self.start) + usize::from(self.offset) + 2;
        usize::from(self.start) >= ETHERNET_BYTES && end <= length
    }
}

/// What a packet asks of its receiver: the header of section 5.1.6 of virtio 1.2, except for its
/// number of buffers. Zero in every field for a packet that asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `flags`.
    pub flags: u8,
    /// `gso_type`: how the packet is to be divided into shorter ones.
    pub segmentation: u8,
    /// `hdr_len`: the size in bytes of the headers that each shorter packet repeats.
    pub header_bytes: u16,
    /// `gso_size`: the most bytes of each shorter packet behind its headers.
    pub segment_bytes: u16,
    /// `csum_start` and `csum_offset`.
    pub checksum: Checksum,
}

impl Header {
    /// The size in bytes of these fields.
    pub(crate) const BYTES: usize = 10;

    /// The header of a packet that lacks a checksum, and asks for nothing else.
    pub(crate) fn lacking(checksum: Checksum) -> Self {
        Self { flags: NEEDS_CHECKSUM, checksum, ..Self::default() }
    }

    /// The fields of a header, in the byte order of virtio.
    pub(crate) fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let [flags, segmentation, h0, h1, s0, s1, c0, c1, o0, o1] = bytes;
        let word = |bytes| u16::from_le_bytes(bytes);
        let checksum = Checksum { start: word([c0, c1]), offset: word([o0, o1]) };
        let (header_bytes, segment_bytes) = (word([h0, h1]), word([s0, s1]));
        Self { flags, segmentation, header_bytes, segment_bytes, checksum }
    }

    /// The fields in the order of the header: the first eight bytes as a word of this machine, and
    /// the next two.
    #[inline(always)]
    pub(crate) fn words(self) -> (u64, u16) {
        let Self { flags, segmentation, header_bytes, segment_bytes, checksum } = self;
        let first = u64::from(flags)
            | u64::from(segmentation) << 8
            | u64::from(header_bytes) << 16
            | u64::from(segment_bytes) << 32
            | u64::from(checksum.start) << 48;
        (first.to_le(), checksum.offset.to_le())
    }

    /// What a packet of `length` bytes asks for, if its sender may leave work of these kinds, and
    /// wrote this header. Flags that are not known are left out, as section 5.1.6 requires.
    /// `None` if the header asks for anything else, or lies outside the packet.
    pub(crate) fn checked(self, length: usize, may_leave: Offloads) -> Option<Self> {
        let flags = self.flags & NEEDS_CHECKSUM;
        if flags == 0 && self.segmentation == 0 {
            return Some(Self::default());
        }
        if flags == 0 || !self.checksum.is_inside(length) {
            return None;
        }
        if self.segmentation == 0 {
            return may_leave.checksums.then_some(Self::lacking(self.checksum));
        }
        let is_whole = self.segment_bytes > 0 && usize::from(self.header_bytes) <= length;
        (is_whole && may_leave.contain(self)).then_some(Self { flags, ..self })
    }
}

/// Kinds of work that packets leave to a device. A port that sends a packet takes work of these
/// kinds with it; a forwarder's worker does all other work before.
///
/// ```
/// # mod haul { pub mod forward { pub use haul_forward::*; } }
/// use haul::forward::{Checksum, Header, Offloads};
/// let checksum = Checksum { start: 34, offset: 16 };
/// let lacks_checksum = Header { flags: 1, checksum, ..Header::default() };
/// assert!(Offloads::ALL.contain(lacks_checksum));
/// assert!(!Offloads::NONE.contain(lacks_checksum));
/// assert!(Offloads::NONE.contain(Header::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// A checksum (VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM).
    pub checksums: bool,
    /// The division of TCP over IPv4 (VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_GUEST_TSO4).
    pub tcp_v4: bool,
    /// The division of TCP over IPv6 (VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_GUEST_TSO6).
    pub tcp_v6: bool,
    /// The division of TCP with the flag CWR (VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_GUEST_ECN).
    pub ecn: bool,
}

impl Offloads {
    /// No kind.
    pub const NONE: Self = Self { checksums: false, tcp_v4: false, tcp_v6: false, ecn: false };
    /// All kinds.
    pub const ALL: Self = Self { checksums: true, tcp_v4: true, tcp_v6: true, ecn: true };

    /// Whether all work that a header asks for is of these kinds.
    #[must_use]
    pub fn contain(self, header: Header) -> bool {
        let is_kind = match header.segmentation & !ECN {
            0 => header.segmentation == 0,
            TCP_V4 => self.tcp_v4,
            TCP_V6 => self.tcp_v6,
            _ => false,
        };
        let has_ecn = header.segmentation & ECN != 0;
        is_kind && (self.checksums || header.flags & NEEDS_CHECKSUM == 0) && (self.ecn || !has_ecn)
    }

    /// The kinds that are among both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            checksums: self.checksums && other.checksums,
            tcp_v4: self.tcp_v4 && other.tcp_v4,
            tcp_v6: self.tcp_v6 && other.tcp_v6,
            ecn: self.ecn && other.ecn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged() -> Header {
        let checksum = Checksum { start: 34, offset: 16 };
        let (flags, segmentation) = (NEEDS_CHECKSUM, TCP_V4);
        Header { flags, segmentation, header_bytes: 54, segment_bytes: 1448, checksum }
    }

    #[test]
    fn header_that_lies_is_refused() {
        let (length, all) = (3000, Offloads::ALL);
        assert_eq!(merged().checked(length, all), Some(merged()));
        let unknown = Header { flags: 0xFF, ..merged() };
        assert_eq!(unknown.checked(length, all), Some(merged()));
        let ecn = Header { segmentation: TCP_V6 | ECN, ..merged() };
        assert_eq!(ecn.checked(length, all), Some(ecn));
        let at = |start, offset| Header { checksum: Checksum { start, offset }, ..merged() };
        for lie in [
            Header { flags: 0, ..merged() },
            Header { segment_bytes: 0, ..merged() },
            Header { header_bytes: 3001, ..merged() },
            Header { segmentation: 3, ..merged() },
            Header { segmentation: 5, ..merged() },
            Header { segmentation: ECN, ..merged() },
            Header { segmentation: 0x7F, ..merged() },
            at(13, 16),
            at(2999, 0),
            at(34, 2965),
            at(u16::MAX, u16::MAX),
        ] {
            assert_eq!(lie.checked(length, all), None, "{lie:?}");
        }
        assert!(at(2998, 0).checked(length, all).is_some());
        for lacks in [
            Offloads { checksums: false, ..all },
            Offloads { tcp_v4: false, ..all },
            Offloads::NONE,
        ] {
            assert_eq!(merged().checked(length, lacks), None, "{lacks:?}");
        }
        for lacks in [Offloads { tcp_v6: false, ..all }, Offloads { ecn: false, ..all }] {
            assert_eq!(ecn.checked(length, lacks), None, "{lacks:?}");
        }
    }

    #[test]
    fn checksum_alone_keeps_no_other_field() {
        let header = Header { segmentation: 0, ..merged() };
        let checksums = Offloads { checksums: true, ..Offloads::NONE };
        let expected = Some(Header::lacking(header.checksum));
        assert_eq!(header.checked(100, checksums), expected);
        assert_eq!(header.checked(100, Offloads::NONE), None);
        // Without the flag, the other fields mean nothing.
        let plain = Header { flags: 2, segmentation: 0, ..merged() };
        assert_eq!(plain.checked(20, Offloads::NONE), Some(Header::default()));
    }

    #[test]
    fn words_are_those_of_the_parsed_header() {
        let bytes = [1, 0x81, 54, 0, 0xA8, 5, 34, 0, 16, 0];
        let header = Header::parse(bytes);
        assert_eq!(header, Header { segmentation: TCP_V4 | ECN, ..merged() });
        let (first, second) = header.words();
        assert_eq!([&first.to_ne_bytes()[..], &second.to_ne_bytes()].concat(), bytes);
    }
}
