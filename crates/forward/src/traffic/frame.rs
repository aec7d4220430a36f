//! Ethernet, IPv4 and UDP around a stamp, with valid lengths and checksums.
//!
//! A frame is built from a template of its size and flow: the headers, and the sum of everything
//! constant. A packet thus costs one copy and the sum of its stamp.

use std::net::Ipv4Addr;

use etherparse::PacketBuilder;

use super::stamp::{HEADERS_BYTES, STAMP_BYTES};
use crate::error::Error;

/// Offset of UDP's checksum in a frame.
const CHECKSUM_AT: usize = 40;

/// Addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The source address.
    pub source: [u8; 6],
    /// The destination address.
    pub target: [u8; 6],
}

impl Default for Addresses {
    /// Two locally administered addresses.
    fn default() -> Self {
        Self { source: [2, 0x68, 0x61, 0x75, 0x6C, 1], target: [2, 0x68, 0x61, 0x75, 0x6C, 2] }
    }
}

/// The headers of a flow's packets of one size.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    headers: [u8; HEADERS_BYTES],
    /// The sum of UDP's checksum over everything but the stamp, not folded.
    sum: u64,
}

/// UDP's port "discard" of IANA, which never answers.
const DISCARD: u16 = 9;
/// The first port of IANA's dynamic range.
const PORT_FIRST: u16 = 49_152;

impl Template {
    /// The template of `size` bytes in flow `flow`. Its source is an address of 198.18.0.0/16, the
    /// benchmark network of RFC 2544, and a port of this flow.
    pub(crate) fn new(addresses: &Addresses, flow: u32, size: usize) -> Result<Self, Error> {
        let [_, _, high, low] = flow.to_be_bytes();
        let source = Ipv4Addr::new(198, 18, high, low);
        let target = Ipv4Addr::new(198, 19, 0, 1);
        let port = PORT_FIRST + (flow % 16_384) as u16;
        let builder = PacketBuilder::ethernet2(addresses.source, addresses.target)
            .ipv4(source.octets(), target.octets(), 64)
            .udp(port, DISCARD);
        let payload = vec![0; size - HEADERS_BYTES];
        let mut frame = Vec::with_capacity(size);
        let impossible = |reason: String| Error::Value {
            what: "a packet of",
            value: format!("{size} B ({reason})"),
            limit: "a frame without its check sequence has 60 to 9216 B",
        };
        builder.write(&mut frame, &payload).map_err(|error| impossible(error.to_string()))?;
        let Some(headers) = frame.first_chunk::<HEADERS_BYTES>() else {
            return Err(impossible("its headers are missing".into()));
        };
        let checksum = u16::from_be_bytes([headers[CHECKSUM_AT], headers[CHECKSUM_AT + 1]]);
        Ok(Self { headers: *headers, sum: u64::from(!checksum) })
    }

    /// The headers of the packet with this stamp.
    #[inline]
    pub(crate) fn headers(&self, stamp: &[u8; STAMP_BYTES]) -> [u8; HEADERS_BYTES] {
        let words = stamp.as_chunks::<2>().0.iter();
        let sum = words.fold(self.sum, |sum, word| sum + u64::from(u16::from_be_bytes(*word)));
        let mut headers = self.headers;
        // RFC 768: a sum of 0 is sent as all ones, because 0 means that the packet has no
        // checksum.
        let checksum = match !fold(sum) {
            0 => u16::MAX,
            checksum => checksum,
        };
        headers[CHECKSUM_AT..].copy_from_slice(&checksum.to_be_bytes());
        headers
    }
}

/// The sum of 16-bit words with its carries added in, RFC 1071.
#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TransportSlice};

    use super::*;
    use crate::traffic::stamp::Stamp;

    #[test]
    fn etherparse_accepts_lengths_and_checksums() {
        for size in [60, 61, 64, 590, 1514, 9000] {
            for (flow, sequence) in [(0, 0), (1, u64::MAX), (70_000, 0x1234_5678_9ABC_DEF0)] {
                let template = Template::new(&Addresses::default(), flow, size).unwrap();
                let stamp = Stamp { stream: 1, sequence, time_ns: 77_777_777 }.bytes();
                let mut frame = template.headers(&stamp).to_vec();
                frame.extend(stamp);
                frame.resize(size, 0);
                let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
                let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else { panic!("no IPv4") };
                assert_eq!(usize::from(ip.header().total_len()), size - 14);
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("no UDP") };
                assert_eq!(usize::from(udp.length()), size - 34);
                let expected = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
                assert_eq!(udp.checksum(), expected, "{size} B, flow {flow}");
            }
        }
    }
}
