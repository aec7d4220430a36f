//! The headers of a capture of packets: pcap and pcapng, one after the other.
//!
//! [`Headers`] reads no file: it says how many bytes the next header has, takes them, and says how
//! many bytes lie between it and the one after it. Who drives it decides whether those are read,
//! kept or skipped. Nothing in a file is believed: lengths are bounded before they are used, and
//! memory does not grow with the file. Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

/// More bytes of one packet than any capture keeps: `MAXIMUM_SNAPLEN` of libpcap for the largest
/// link type that it knows.
const KEPT_MAX: u64 = 128 << 20;
/// More bytes of a block without packets than writers write.
const BLOCK_MAX: u64 = 128 << 20;
/// More interfaces than a capture has; keeps a hostile one from growing a list.
const INTERFACES_MAX: usize = 4096;
/// The longest description of an interface that is looked at for its unit of time.
const DESCRIPTION_MAX: usize = 4096;
/// The header of a block with a packet.
const PACKET_HEADER: usize = 28;
/// A link type of frames that begin with an Ethernet header.
pub const ETHERNET: u16 = 1;

/// What a pcapng block is, the first word of each.
pub mod kind {
    /// A section begins, in a byte order of its own.
    pub const SECTION: u32 = 0x0a0d_0d0a;
    /// An interface is described.
    pub const INTERFACE: u32 = 1;
    /// A packet, as writers of old wrote it.
    pub const PACKET: u32 = 2;
    /// A packet without a time, of the first interface.
    pub const SIMPLE_PACKET: u32 = 3;
    /// A packet.
    pub const ENHANCED_PACKET: u32 = 6;
}

use kind::{ENHANCED_PACKET, INTERFACE, PACKET, SECTION, SIMPLE_PACKET};

/// pcap's first word where times are in microseconds.
pub const PCAP_US: u32 = 0xa1b2_c3d4;
/// The same where they are in nanoseconds.
pub const PCAP_NS: u32 = 0xa1b2_3c4d;
/// The same in microseconds, with 8 B more a packet, of a modified libpcap.
const PCAP_LONG: u32 = 0xa1b2_cd34;
/// The word by which a section says its byte order.
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// It is longer than it seemed: [`Headers::wanted`] says how long, and all of it is to be
    /// given again.
    Longer,
    /// A packet.
    Packet(PacketHeader),
    /// Anything else.
    Other {
        /// Bytes before the next header.
        skip: u64,
    },
    /// The end of a block: what came in it is whole. The next header follows at once.
    End,
}

/// The header of a packet, whose kept bytes follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// How many bytes of it the file has.
    pub kept: u32,
    /// How many it had.
    pub original: u32,
    /// Whether it begins with an Ethernet header.
    pub is_ethernet: bool,
    /// When it was captured, in nanoseconds since an epoch of the file's; `None` where the file
    /// does not say.
    pub time_ns: Option<u64>,
    /// Bytes before the next header, those that were kept among them.
    pub skip: u64,
}

/// How many ticks of an interface are a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ticks {
    /// 10 to the power of this.
    Decimal(u8),
    /// 2 to the power of this.
    Binary(u8),
}

impl Ticks {
    /// Nothing but a multiplication for the units that captures have.
    #[inline]
    fn nanoseconds(self, ticks: u64) -> u64 {
        /// Nanoseconds of a tick, by its decimals.
        const NS: [u64; 10] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        match self {
            Self::Decimal(digits) => match NS.get(usize::from(digits)) {
                Some(ns) => ticks.saturating_mul(*ns),
                None => {
                    let more = 10_u64.checked_pow(u32::from(digits - 9));
                    more.map_or(0, |more| ticks / more)
                }
            },
            Self::Binary(digits) => {
                let ns = (u128::from(ticks) * 1_000_000_000) >> digits;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    ticks: Ticks,
}

/// Where in a capture its reader is.
#[derive(Clone, Debug)]
pub struct Headers {
    format: Format,
    is_big_endian: bool,
    /// How many bytes the next header has, as far as that is known.
    wanted: usize,
    /// The interfaces of this section.
    interfaces: Vec<Interface>,
    /// The length that has to stand at the end of this block.
    trailer: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Unknown,
    /// With so many bytes of header a packet.
    Pcap(usize),
    Pcapng,
}

impl Default for Headers {
    fn default() -> Self {
        Self::new()
    }
}

type Refused = &'static str;

impl Headers {
    /// At the beginning of a file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: Format::Unknown,
            is_big_endian: false,
            wanted: 24,
            interfaces: Vec::new(),
            trailer: None,
        }
    }

    /// How many bytes the next header has, as far as that is known: 4 to 4,108.
    #[inline]
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether the file's first header was read.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.format != Format::Unknown
    }

    /// Whether the end of a block is still to come.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        self.trailer.is_some()
    }

    /// Reads the next header.
    ///
    /// # Errors
    /// What of it cannot be, as the end of a sentence that begins with the place.
    ///
    /// # Panics
    /// `head` has not [`Headers::wanted`] bytes.
    #[inline]
    pub fn read(&mut self, head: &[u8]) -> Result<Header, &'static str> {
        assert_eq!(head.len(), self.wanted, "a header is read whole");
        if let Some(length) = self.trailer.take() {
            if self.number(head, 0) != length {
                return Err("a block's two lengths differ");
            }
            self.wanted = 8;
            return Ok(Header::End);
        }
        match self.format {
            Format::Pcap(bytes) => self.pcap_packet(head, bytes),
            Format::Pcapng => self.block(head),
            Format::Unknown => self.file_header(head),
        }
    }

    /// The packet of this header where that is plain: in a file of pcap, with nothing wrong. Else
    /// [`Headers::read`] says what it is. What is built here stays in registers, which what may
    /// also be an error does not: of 64 B, 15 more of 28 ns (13 with it).
    #[inline]
    #[must_use]
    pub fn read_plain(&self, head: &[u8]) -> Option<PacketHeader> {
        let (Format::Pcap(bytes), [interface]) = (self.format, &self.interfaces[..]) else {
            return None;
        };
        let (kept, original) = (self.number(head, 8), self.number(head, 12));
        let is_plain = head.len() == bytes && u64::from(kept) <= KEPT_MAX && kept <= original;
        is_plain.then(|| self.plain(head, kept, original, *interface))
    }

    #[inline]
    fn plain(&self, head: &[u8], kept: u32, original: u32, interface: Interface) -> PacketHeader {
        let (seconds, fraction) = (self.number(head, 0), self.number(head, 4));
        let whole_ns = u64::from(seconds) * 1_000_000_000;
        PacketHeader {
            kept,
            original,
            is_ethernet: interface.link == u32::from(ETHERNET),
            time_ns: Some(whole_ns + interface.ticks.nanoseconds(u64::from(fraction))),
            skip: u64::from(kept),
        }
    }

    fn file_header(&mut self, head: &[u8]) -> Result<Header, Refused> {
        let magic = self.number(head, 0);
        if magic == SECTION {
            // Such a file begins with a block, whose header is as long.
            self.format = Format::Pcapng;
            return self.block(head);
        }
        let form = |magic| match magic {
            PCAP_US => Some((16, Ticks::Decimal(6))),
            PCAP_NS => Some((16, Ticks::Decimal(9))),
            PCAP_LONG => Some((24, Ticks::Decimal(6))),
            _ => None,
        };
        self.is_big_endian = form(magic.swap_bytes()).is_some();
        let Some((bytes, ticks)) = form(magic).or_else(|| form(magic.swap_bytes())) else {
            return Err(match head.starts_with(&[0x1f, 0x8b]) {
                true => "it is compressed: unpack it first, by gzip -d",
                false => "it begins like no pcap or pcapng file",
            });
        };
        self.format = Format::Pcap(bytes);
        // The upper bits say how long the check sequence is, and whether they do.
        self.interfaces = vec![Interface { link: self.number(head, 20) & 0xffff, ticks }];
        self.wanted = bytes;
        Ok(Header::Other { skip: 0 })
    }

    #[inline]
    fn pcap_packet(&mut self, head: &[u8], bytes: usize) -> Result<Header, Refused> {
        let (kept, original) = (self.number(head, 8), self.number(head, 12));
        let interface = self.packet(0, u64::from(kept), original)?;
        self.wanted = bytes;
        Ok(Header::Packet(self.plain(head, kept, original, interface)))
    }

    /// A block, of which the first bytes are there: at least its type and length.
    fn block(&mut self, head: &[u8]) -> Result<Header, Refused> {
        let kind = self.number(head, 0);
        if kind == SECTION && head.len() >= 12 {
            self.section(head)?;
        }
        let length = self.number(head, 4);
        let least = match kind {
            SECTION => 24,
            PACKET | ENHANCED_PACKET => PACKET_HEADER,
            INTERFACE if head.len() >= 16 => head.len(),
            INTERFACE => (length as usize).saturating_sub(4).clamp(16, DESCRIPTION_MAX),
            SIMPLE_PACKET => 12,
            _ => 8,
        };
        if head.len() < least {
            self.wanted = least;
            return Ok(Header::Longer);
        }
        // Behind the header comes the length once more.
        let rest = u64::from(length).checked_sub(head.len() as u64 + 4);
        let Some(rest) = rest.filter(|rest| length.is_multiple_of(4) && *rest <= BLOCK_MAX) else {
            return Err("a block says that it has a length that none can have");
        };
        let found = match kind {
            INTERFACE => {
                self.interface(head)?;
                Header::Other { skip: rest }
            }
            SIMPLE_PACKET => {
                let original = self.number(head, 8);
                let kept = rest.min(u64::from(original));
                Header::Packet(self.in_block(0, kept, original, None, rest)?)
            }
            PACKET | ENHANCED_PACKET => self.packet_block(head, kind, rest)?,
            _ => Header::Other { skip: rest },
        };
        self.wanted = 4;
        self.trailer = Some(length);
        Ok(found)
    }

    fn packet_block(&self, head: &[u8], kind: u32, rest: u64) -> Result<Header, Refused> {
        let interface = match kind {
            ENHANCED_PACKET => self.number(head, 8),
            _ => u32::from(self.short(head, 8)),
        };
        let (kept, original) = (u64::from(self.number(head, 20)), self.number(head, 24));
        if kept > rest {
            return Err("a packet is longer than its block");
        }
        let (high, low) = (u64::from(self.number(head, 12)), u64::from(self.number(head, 16)));
        Ok(Header::Packet(self.in_block(
            interface,
            kept,
            original,
            Some(high << 32 | low),
            rest,
        )?))
    }

    fn in_block(
        &self,
        interface: u32,
        kept: u64,
        original: u32,
        ticks: Option<u64>,
        skip: u64,
    ) -> Result<PacketHeader, Refused> {
        let interface = self.packet(interface, kept, original)?;
        Ok(PacketHeader {
            kept: kept as u32,
            original,
            is_ethernet: interface.link == u32::from(ETHERNET),
            time_ns: ticks.map(|ticks| interface.ticks.nanoseconds(ticks)),
            skip,
        })
    }

    /// The byte order of all that follows, and no interfaces yet.
    fn section(&mut self, head: &[u8]) -> Result<(), Refused> {
        self.interfaces.clear();
        self.is_big_endian = match u32::from_be_bytes([head[8], head[9], head[10], head[11]]) {
            BYTE_ORDER => true,
            order if order.swap_bytes() == BYTE_ORDER => false,
            _ => return Err("a section has no byte order"),
        };
        Ok(())
    }

    fn interface(&mut self, head: &[u8]) -> Result<(), Refused> {
        if self.interfaces.len() == INTERFACES_MAX {
            return Err("it has more than 4,096 interfaces");
        }
        let link = u32::from(self.short(head, 8));
        self.interfaces.push(Interface { link, ticks: self.ticks(&head[16..]) });
        Ok(())
    }

    /// The unit of time that an interface's options name, `if_tsresol`; else microseconds.
    fn ticks(&self, mut options: &[u8]) -> Ticks {
        while let [_, _, _, _, value @ ..] = options {
            let (code, length) = (self.short(options, 0), usize::from(self.short(options, 2)));
            match (code, value) {
                (0, _) => break,
                (9, [resolution, ..]) if length == 1 => {
                    let digits = resolution & 0x7f;
                    let is_binary = resolution & 0x80 != 0;
                    return if is_binary { Ticks::Binary(digits) } else { Ticks::Decimal(digits) };
                }
                _ => {}
            }
            options = value.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ticks::Decimal(6)
    }

    /// The interface of a packet that can be.
    #[inline]
    fn packet(&self, interface: u32, kept: u64, original: u32) -> Result<Interface, Refused> {
        if kept > KEPT_MAX {
            return Err("a packet says that more than 128 MiB of it were kept");
        }
        if kept > u64::from(original) {
            return Err("a packet says that more of it was kept than there was");
        }
        let found = self.interfaces.get(interface as usize).copied();
        found.ok_or("a packet is of an interface that it does not describe")
    }

    #[inline]
    fn number(&self, head: &[u8], at: usize) -> u32 {
        let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        match self.is_big_endian {
            true => u32::from_be_bytes(bytes.unwrap_or_default()),
            false => u32::from_le_bytes(bytes.unwrap_or_default()),
        }
    }

    fn short(&self, head: &[u8], at: usize) -> u16 {
        let bytes = head.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        match self.is_big_endian {
            true => u16::from_be_bytes(bytes.unwrap_or_default()),
            false => u16::from_le_bytes(bytes.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_nanoseconds_whatever_their_unit() {
        for (ticks, count, ns) in [
            (Ticks::Decimal(0), 3, 3_000_000_000),
            (Ticks::Decimal(6), 1_500_000, 1_500_000_000),
            (Ticks::Decimal(9), 7, 7),
            (Ticks::Decimal(12), 5_999, 5),
            (Ticks::Decimal(127), u64::MAX, 0),
            (Ticks::Decimal(0), u64::MAX, u64::MAX),
            (Ticks::Binary(10), 512, 500_000_000),
            (Ticks::Binary(127), u64::MAX, 0),
        ] {
            assert_eq!(ticks.nanoseconds(count), ns, "{ticks:?} {count}");
        }
    }

    #[test]
    fn an_interface_says_its_unit_of_time() {
        let headers = Headers::new();
        for (options, ticks) in [
            (&[][..], Ticks::Decimal(6)),
            (&[9, 0, 1, 0, 9, 0, 0, 0], Ticks::Decimal(9)),
            (&[2, 0, 3, 0, b'e', b'n', b'0', 0, 9, 0, 1, 0, 0x8a, 0, 0, 0], Ticks::Binary(10)),
            (&[0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0], Ticks::Decimal(6)),
            (&[2, 0, 0xff, 0xff, 9, 0, 1, 0, 9, 0, 0, 0], Ticks::Decimal(6)),
            (&[9, 0, 1, 0], Ticks::Decimal(6)),
            (&[9, 0, 2, 0, 9, 9, 0, 0], Ticks::Decimal(6)),
        ] {
            assert_eq!(headers.ticks(options), ticks, "{options:?}");
        }
    }
}
