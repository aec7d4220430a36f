//! The headers of a capture of packets: pcap and pcapng, one after the other.
//!
//! [`Headers`] reads no file: it says how many bytes the next header has, takes them, and says how
//! many bytes lie between it and the one after it. Who drives it decides whether those are read,
//! kept or skipped. Nothing in a file is believed: lengths are bounded before they are used, and
//! memory does not grow with the file. Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
//!
//! From the bottom up:
//!
//! - `ticks`: the units of time that captures have;
//! - `pcapng`: the blocks of that format.

mod pcapng;
mod ticks;

use pcapng::kind::SECTION;
pub use pcapng::{BYTE_ORDER, kind};
use ticks::Ticks;

/// More bytes of one packet than any capture keeps: `MAXIMUM_SNAPLEN` of libpcap for the largest
/// link type that it knows.
const KEPT_MAX: u64 = 128 << 20;
/// A link type of frames that begin with an Ethernet header.
pub const ETHERNET: u16 = 1;

/// What a kind of link is called, by its LINKTYPE number: those that captures of packets have.
#[must_use]
pub fn link_name(link: u32) -> &'static str {
    match link {
        0 | 108 => "a BSD loopback",
        1 => "Ethernet",
        9 | 50 => "PPP",
        12 | 101 | 228 | 229 => "raw IP",
        104 => "Cisco HDLC",
        105 | 127 | 163 | 192 => "IEEE 802.11",
        113 | 276 => "a Linux \"any\" capture",
        147..=162 => "a private kind",
        187 | 201 => "Bluetooth",
        189 | 220 => "USB",
        227 => "CAN",
        247 => "InfiniBand",
        253 => "netlink",
        _ => "a kind that haul does not know",
    }
}

/// pcap's first word where times are in microseconds.
pub const PCAP_US: u32 = 0xa1b2_c3d4;
/// The same where they are in nanoseconds.
pub const PCAP_NS: u32 = 0xa1b2_3c4d;
/// The same in microseconds, with 8 B more a packet, of a modified libpcap.
const PCAP_LONG: u32 = 0xa1b2_cd34;
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
    /// How many it had: at least as many as were kept, whatever the file says.
    pub original: u32,
    /// Whether the file says that it had fewer bytes than were kept.
    pub is_understated: bool,
    /// The kind of link that it was captured on, a LINKTYPE of tcpdump's list; [`ETHERNET`] where
    /// it begins with an Ethernet header.
    pub link: u32,
    /// When it was captured, in nanoseconds since an epoch of the file's; `None` where the file
    /// does not say. Times that do not fit, 292 years from the epoch on, are the nearest that do.
    pub time_ns: Option<i64>,
    /// Bytes before the next header, those that were kept among them.
    pub skip: u64,
}

impl PacketHeader {
    /// Whether it begins with an Ethernet header.
    #[inline]
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link == u32::from(ETHERNET)
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    ticks: Ticks,
    /// Seconds between the epoch that its times count from and that of the file: `if_tsoffset`.
    offset_seconds: i64,
    /// The most bytes of a packet that are kept; 0 where there is no limit.
    kept_max: u32,
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
    Pcap(usize, Order),
    Pcapng,
}

/// Which of a pcap header's two lengths stands first. Writers up to version 2.2 of the format wrote
/// the original one first, those of 2.3 either: as libpcap reads them, by its `sf-pcap.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    KeptFirst,
    OriginalFirst,
    SmallerIsKept,
}

impl Order {
    fn of(version: [u16; 2]) -> Self {
        match version {
            [2, 0..=2] => Self::OriginalFirst,
            [2, 3] => Self::SmallerIsKept,
            _ => Self::KeptFirst,
        }
    }

    /// Kept and original length.
    #[inline]
    fn apply(self, first: u32, second: u32) -> (u32, u32) {
        match self {
            Self::KeptFirst => (first, second),
            Self::OriginalFirst => (second, first),
            Self::SmallerIsKept => (first.min(second), first.max(second)),
        }
    }
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
            Format::Pcap(bytes, order) => self.pcap_packet(head, bytes, order),
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
        let (Format::Pcap(bytes, Order::KeptFirst), [interface]) =
            (self.format, &self.interfaces[..])
        else {
            return None;
        };
        let (kept, original) = (self.number(head, 8), self.number(head, 12));
        let is_plain = head.len() == bytes && u64::from(kept) <= KEPT_MAX && kept <= original;
        is_plain.then(|| self.plain(head, kept, original, *interface))
    }

    #[inline]
    fn plain(&self, head: &[u8], kept: u32, original: u32, interface: Interface) -> PacketHeader {
        let (seconds, fraction) = (self.number(head, 0), self.number(head, 4));
        // Both fit: the largest sum is 4.3e18.
        let whole_ns = i64::from(seconds) * 1_000_000_000;
        PacketHeader {
            kept,
            original: original.max(kept),
            is_understated: original < kept,
            link: interface.link,
            time_ns: Some(whole_ns + interface.ticks.short_nanoseconds(fraction)),
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
        self.format = Format::Pcap(bytes, Order::of([self.short(head, 4), self.short(head, 6)]));
        // The upper bits say how long the check sequence is, and whether they do.
        let link = self.number(head, 20) & 0xffff;
        self.interfaces = vec![Interface { link, ticks, offset_seconds: 0, kept_max: 0 }];
        self.wanted = bytes;
        Ok(Header::Other { skip: 0 })
    }

    #[inline]
    fn pcap_packet(&mut self, head: &[u8], bytes: usize, order: Order) -> Result<Header, Refused> {
        let (kept, original) = order.apply(self.number(head, 8), self.number(head, 12));
        let interface = self.packet(0, u64::from(kept))?;
        self.wanted = bytes;
        Ok(Header::Packet(self.plain(head, kept, original, interface)))
    }

    /// The interface of a packet that can be.
    #[inline]
    fn packet(&self, interface: u32, kept: u64) -> Result<Interface, Refused> {
        if kept > KEPT_MAX {
            return Err("a packet says that more than 128 MiB of it were kept");
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
