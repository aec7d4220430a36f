//! Work that a kernel leaves to a device, done here: checksums, and splitting of merged packets.
//!
//! A kernel that sends to a virtual interface leaves checksums and segmentation to a device. It
//! also merges received packets of a flow before any program sees them (GRO). A header with each
//! such packet, `struct virtio_net_hdr`, describes the remaining work. A merged packet is split as
//! the kernel itself would do it: the headers are repeated, and lengths, sequence numbers and
//! checksums are set anew.

use crate::offloads::Header;

/// The work left for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offload {
    needs_checksum: bool,
    /// The kind of the merged packets, 0 if none were merged; and the bytes of each packet behind
    /// its headers.
    merged: u8,
    part_bytes: usize,
    /// Where the bytes of the checksum begin, and the offset of the checksum from there.
    start: usize,
    at: usize,
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4`, `_TCPV6` and `_UDP_L4`; `_ECN` is an additional bit.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Tags of IEEE 802.1Q and 802.1ad.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const TAG_BYTES: usize = 4;
/// Protocols of IP.
const IS_TCP: u8 = 6;
const IS_UDP: u8 = 17;

/// TCP flags that only the last packet has, and flags that only the first one has.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

impl Offload {
    /// The size of `struct virtio_net_hdr` in bytes.
    pub(crate) const BYTES: usize = 10;

    /// Parses the header, in this machine's byte order.
    #[inline]
    pub(crate) fn parse(header: &[u8; Self::BYTES]) -> Self {
        let [flags, kind, _, _, part @ .., s0, s1, a0, a1] = *header;
        let word = |bytes| usize::from(u16::from_ne_bytes(bytes));
        Self {
            needs_checksum: flags & NEEDS_CHECKSUM != 0,
            merged: kind & !ECN,
            part_bytes: word(part),
            start: word([s0, s1]),
            at: word([a0, a1]),
        }
    }

    /// The work that a packet of a pool asks for.
    pub(crate) fn of(header: Header) -> Self {
        let Header { flags, segmentation, segment_bytes, checksum, .. } = header;
        Self {
            needs_checksum: flags & NEEDS_CHECKSUM != 0,
            merged: segmentation & !ECN,
            part_bytes: segment_bytes.into(),
            start: checksum.start.into(),
            at: checksum.offset.into(),
        }
    }

    /// Whether no work is left.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.needs_checksum && self.merged == 0
    }

    /// Whether the packet consists of several merged packets.
    pub(crate) fn is_merged(&self) -> bool {
        self.merged != 0
    }

    /// The work for the same packet after a VLAN tag was inserted.
    pub(crate) fn behind_tag(self) -> Self {
        Self { start: self.start + TAG_BYTES, ..self }
    }

    /// Completes the checksum of a frame, if that work is left; false if the frame has no room
    /// for the checksum.
    pub(crate) fn complete(&self, frame: &mut [u8]) -> bool {
        if !self.needs_checksum {
            return true;
        }
        let Some(summed) = frame.get_mut(self.start..) else { return false };
        if self.at == SCTP_CHECKSUM {
            return complete_sctp(summed);
        }
        // The field holds the sum of the pseudo-header, which is not part of the frame.
        let sum = finish(add(0, summed));
        let is_udp = self.at == UDP_CHECKSUM;
        put(summed, self.at, if is_udp { never_zero(sum) } else { sum })
    }
}

/// Offsets of TCP's, UDP's and SCTP's checksums in their headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const SCTP_CHECKSUM: usize = 8;

/// SCTP uses CRC-32C, RFC 9260, appendix A; false if the packet has no room for it.
fn complete_sctp(packet: &mut [u8]) -> bool {
    let Some(field) = packet.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) else { return false };
    field.fill(0);
    let bits = |crc: u32, _| (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), bits);
    let crc = !packet.iter().fold(u32::MAX, byte);
    packet[SCTP_CHECKSUM..SCTP_CHECKSUM + 4].copy_from_slice(&crc.to_le_bytes());
    true
}

/// How a merged packet is split, and the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    network: usize,
    transport: usize,
    /// The size of all headers in bytes.
    headers: usize,
    is_v6: bool,
    is_tcp: bool,
    has_checksum: bool,
    part_bytes: usize,
    /// The number of bytes behind the headers, and the number of these bytes that were written.
    payload: usize,
    given: usize,
    index: u16,
}

impl Cut {
    /// How to split a frame of `length` bytes; `frame` holds its first bytes with all headers.
    /// `None` if the frame has an unsupported form.
    pub(crate) fn of(frame: &[u8], length: usize, offload: &Offload) -> Option<Self> {
        let mut at = 12;
        for _ in 0..2 {
            if TAGS.contains(&word(frame, at)?) {
                at += TAG_BYTES;
            }
        }
        let (kind, network) = (word(frame, at)?, at + 2);
        let (transport, protocol) = match kind {
            IPV4 => {
                let header = frame.get(network..network + 20)?;
                // A fragment cannot be split.
                let is_whole = word(header, 6)? & 0x3fff == 0;
                let bytes = 4 * usize::from(header[0] & 15);
                (is_whole && bytes >= 20).then_some((network + bytes, header[9]))?
            }
            IPV6 => (network + 40, *frame.get(network + 6)?),
            _ => return None,
        };
        let (is_tcp, headers) = match (offload.merged, protocol) {
            (TCP_V4 | TCP_V6, IS_TCP) => {
                (true, transport + 4 * usize::from(frame.get(transport + 12)? >> 4))
            }
            (UDP, IS_UDP) => (false, transport + 8),
            _ => return None,
        };
        let checksum = if is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        // In a tunnel, the merged headers begin later in the frame.
        let is_here = !offload.needs_checksum || offload.start == transport;
        let has_all = headers <= frame.len() && headers >= transport + checksum + 2;
        if !is_here || !has_all || headers > length || offload.part_bytes == 0 {
            return None;
        }
        let has_checksum =
            is_tcp || offload.needs_checksum || word(frame, transport + checksum)? != 0;
        Some(Self {
            network,
            transport,
            headers,
            is_v6: kind == IPV6,
            is_tcp,
            has_checksum,
            part_bytes: offload.part_bytes,
            payload: length - headers,
            given: 0,
            index: 0,
        })
    }

    /// How many packets the merged one consists of.
    pub(crate) fn parts(&self) -> u64 {
        self.payload.div_ceil(self.part_bytes).max(1) as u64
    }

    fn here(&self) -> usize {
        self.part_bytes.min(self.payload - self.given)
    }

    /// Bytes of the next packet; `None` after the last one.
    pub(crate) fn length(&self) -> Option<usize> {
        let is_left = self.given < self.payload || self.index == 0;
        is_left.then(|| self.headers + self.here())
    }

    /// Writes the next packet of `frame` to `target`, which has [`Cut::length`] bytes.
    pub(crate) fn write(&mut self, frame: &[u8], target: &mut [u8]) {
        let (headers, here, given) = (self.headers, self.here(), self.given);
        let is_last = given + here >= self.payload;
        target[..headers].copy_from_slice(&frame[..headers]);
        let from = headers + given;
        target[headers..].copy_from_slice(&frame[from..from + here]);
        let network = &mut target[self.network..];
        if self.is_v6 {
            put(network, 4, (headers - self.network - 40 + here) as u16);
        } else {
            put(network, 2, (headers - self.network + here) as u16);
            let number = word(network, 4).unwrap_or(0).wrapping_add(self.index);
            put(network, 4, number);
            put(network, 10, 0);
            let sum = finish(add(0, &network[..self.transport - self.network]));
            put(network, 10, sum);
        }
        let transport = &mut target[self.transport..];
        if self.is_tcp {
            let [a, b, c, d] = [transport[4], transport[5], transport[6], transport[7]];
            let sequence = u32::from_be_bytes([a, b, c, d]).wrapping_add(given as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            let mut flags = transport[13];
            flags &= if is_last { 0xff } else { !FIN_PSH };
            flags &= if self.index == 0 { 0xff } else { !CWR };
            transport[13] = flags;
        } else {
            put(transport, 4, (8 + here) as u16);
        }
        self.sum(target);
        self.given += here;
        self.index = self.index.wrapping_add(1);
    }

    /// Sets the checksum of a split packet.
    fn sum(&self, packet: &mut [u8]) {
        let at = if self.is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        if !self.has_checksum {
            return;
        }
        // The addresses are the last fields of either IP header.
        let ends = if self.is_v6 { (8, 40) } else { (12, 20) };
        let protocol = if self.is_tcp { IS_TCP } else { IS_UDP };
        let length = packet.len() - self.transport;
        let pseudo =
            add(u64::from(protocol) + length as u64, &packet[self.network..][ends.0..ends.1]);
        let transport = &mut packet[self.transport..];
        put(transport, at, 0);
        let sum = finish(add(pseudo, transport));
        put(transport, at, if self.is_tcp { sum } else { never_zero(sum) });
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Sets two bytes; false if they are out of range.
fn put(bytes: &mut [u8], at: usize, word: u16) -> bool {
    let field = bytes.get_mut(at..at + 2);
    field.map(|field| field.copy_from_slice(&word.to_be_bytes())).is_some()
}

/// In UDP, 0 means no checksum; its complement represents the same sum.
fn never_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Adds bytes, which begin at an even offset, to the sum of RFC 1071. Words of 32 bits fold to
/// the same sum as words of 16 bits.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let whole = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_be_bytes(last))
}

fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP or UDP frame with this payload, and the kernel's description of the work left. The
    /// frame's checksum is that of the pseudo-header, as a kernel leaves it to a device.
    fn frame(
        is_v6: bool,
        is_tcp: bool,
        tags: usize,
        payload: usize,
        part: u16,
    ) -> (Vec<u8>, Offload) {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0x20, 5]));
        let header = if is_tcp { 20 } else { 8 };
        let (protocol, bytes) = (if is_tcp { IS_TCP } else { IS_UDP }, header + payload);
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((bytes as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|it| it * 3));
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes as u16).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let start = frame.len();
        frame.extend([0x10, 0, 0, 80]);
        match is_tcp {
            // Sequence number, acknowledgement, CWR ACK PSH FIN, window, checksum, urgent.
            true => frame.extend([0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0x50, 0x99, 1, 0, 0, 0, 0, 0]),
            false => {
                frame.extend((bytes as u16).to_be_bytes());
                frame.extend([0, 0]);
            }
        }
        frame.extend((0..payload).map(|it| (it * 7) as u8));
        let merged = if !is_tcp {
            UDP
        } else if is_v6 {
            TCP_V6
        } else {
            TCP_V4
        };
        let at = if is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        let offload = Offload { needs_checksum: true, merged, part_bytes: part.into(), start, at };
        (frame, offload)
    }

    /// Whether a frame's checksums are valid. Computes them as a receiver does, in words of 16
    /// bits.
    fn is_right(frame: &[u8], network: usize, is_v6: bool, transport: usize) -> bool {
        let pairs = |bytes: &[u8]| {
            let pair = |it: &[u8]| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0));
            bytes.chunks(2).map(pair).sum::<u32>()
        };
        let is_whole = |mut sum: u32| {
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            sum == 0xffff
        };
        let (protocol, addresses) = match is_v6 {
            true => (frame[network + 6], network + 8..network + 40),
            false => (frame[network + 9], network + 12..network + 20),
        };
        let length = (frame.len() - transport) as u32;
        let sum =
            pairs(&frame[addresses]) + u32::from(protocol) + length + pairs(&frame[transport..]);
        is_whole(sum) && (is_v6 || is_whole(pairs(&frame[network..transport])))
    }

    #[test]
    fn merged_packet_splits_into_its_packets() {
        for (is_v6, is_tcp, tags, payload) in [
            (false, true, 0, 4000),
            (true, true, 0, 4000),
            (false, true, 1, 2897),
            (true, false, 2, 3001),
            (false, false, 0, 2896),
            (false, true, 0, 1),
            (false, true, 0, 0),
        ] {
            let name = format!("{is_v6} {is_tcp} {tags} {payload}");
            let (merged, offload) = frame(is_v6, is_tcp, tags, payload, 1448);
            let mut cut = Cut::of(&merged, merged.len(), &offload).expect(&name);
            let (network, transport) = (14 + 4 * tags, cut.transport);
            let (headers, parts) = (cut.headers, cut.parts());
            let (mut given, mut count) = (Vec::<u8>::new(), 0);
            while let Some(length) = cut.length() {
                let mut part = vec![0; length];
                cut.write(&merged, &mut part);
                assert!(is_right(&part, network, is_v6, transport), "{name}: part {count}");
                let bytes = word(&part, if is_v6 { network + 4 } else { network + 2 });
                let counted = length - network - if is_v6 { 40 } else { 0 };
                assert_eq!(bytes, Some(counted as u16), "{name}");
                if is_tcp {
                    let sequence =
                        u32::from_be_bytes(*part[transport + 4..].first_chunk().unwrap());
                    assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(given.len() as u32));
                    let is_last = count + 1 == parts;
                    let flags =
                        0x10 | if is_last { FIN_PSH } else { 0 } | if count == 0 { CWR } else { 0 };
                    assert_eq!(part[transport + 13], flags, "{name}: part {count} of {parts}");
                }
                if !is_v6 {
                    let number = 0xffff_u16.wrapping_add(count as u16);
                    assert_eq!(word(&part, network + 4), Some(number), "{name}");
                }
                given.extend(&part[headers..]);
                count += 1;
            }
            assert_eq!((count, given.len()), (parts, payload), "{name}");
            assert_eq!(given, merged[headers..], "{name}");
        }
    }

    #[test]
    fn offloaded_checksum_is_completed() {
        for (is_v6, is_tcp, tags) in [(false, true, 0), (true, false, 1), (false, false, 2)] {
            let (mut bytes, offload) = frame(is_v6, is_tcp, tags, 101, 0);
            let (network, transport) = (14 + 4 * tags, offload.start);
            // The checksum that a kernel leaves to a device: the sum of the pseudo-header.
            let range = if is_v6 { 8..40 } else { 12..20 };
            let protocol = if is_tcp { IS_TCP } else { IS_UDP };
            let length = bytes.len() - transport;
            let sum = add(u64::from(protocol) + length as u64, &bytes[network..][range]);
            put(&mut bytes, transport + offload.at, !finish(sum));
            if !is_v6 {
                let own = finish(add(0, &bytes[network..transport]));
                put(&mut bytes, network + 10, own);
            }
            assert!(!is_right(&bytes, network, is_v6, transport));
            assert!(offload.complete(&mut bytes));
            assert!(is_right(&bytes, network, is_v6, transport), "{is_v6} {is_tcp} {tags}");
        }
        // SCTP's checksum over 32 zeros: a vector of RFC 3720, B.4.
        let mut zeros = [0; 34];
        zeros[10..14].fill(7);
        let sctp = Offload { needs_checksum: true, start: 2, at: 8, ..Offload::default() };
        assert!(sctp.complete(&mut zeros) && !sctp.complete(&mut [0; 13]));
        assert_eq!(zeros[10..14], [0xaa, 0x36, 0x91, 0x8a]);
        let far = Offload { needs_checksum: true, start: 59, at: 2, ..Offload::default() };
        assert!(!far.complete(&mut [0; 60]));
        assert!(!Offload { start: 61, ..far }.complete(&mut [0; 60]));
    }

    #[test]
    fn unsupported_frame_is_not_split() {
        let (whole, offload) = frame(false, true, 0, 3000, 1448);
        let refuses = |frame: &[u8], offload: &Offload| Cut::of(frame, 3054, offload).is_none();
        assert!(!refuses(&whole, &offload));
        assert!(refuses(&whole, &Offload { part_bytes: 0, ..offload }));
        assert!(refuses(&whole, &Offload { merged: UDP, ..offload }));
        assert!(refuses(&whole, &Offload { merged: 9, ..offload }));
        // A tunnel.
        assert!(refuses(&whole, &Offload { start: offload.start + 50, ..offload }));
        (0..54).for_each(|length| assert!(refuses(&whole[..length], &offload), "{length} B"));
        for (at, byte) in [(13, 6), (14, 0x44), (20, 0x20), (23, IS_UDP), (46, 0x10), (46, 0xf0)] {
            let mut other = whole[..70].to_vec();
            other[at] = byte;
            assert!(refuses(&other, &offload), "{byte:#x} at {at}");
        }
        let header = [1, 1 | ECN, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        if cfg!(target_endian = "little") {
            let parsed = Offload::parse(&header);
            assert_eq!(
                parsed,
                Offload { needs_checksum: true, merged: 1, part_bytes: 1448, start: 34, at: 16 }
            );
            assert!(parsed.is_merged() && !parsed.is_plain());
            assert_eq!(parsed.behind_tag().start, 38);
        }
        assert!(Offload::parse(&[0; 10]).is_plain());
    }
}
