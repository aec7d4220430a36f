//! The blocks of pcapng.

use self::kind::{ENHANCED_PACKET, INTERFACE, PACKET, SECTION, SIMPLE_PACKET};
use super::ticks::Ticks;
use super::{Header, Headers, Interface, PacketHeader, Refused};

/// The types of pcapng blocks: the first word of each block.
pub mod kind {
    /// The start of a section, which has a byte order of its own.
    pub const SECTION: u32 = 0x0a0d_0d0a;
    /// The description of an interface.
    pub const INTERFACE: u32 = 1;
    /// A packet in the obsolete form.
    pub const PACKET: u32 = 2;
    /// A packet without a time, of the first interface.
    pub const SIMPLE_PACKET: u32 = 3;
    /// A packet.
    pub const ENHANCED_PACKET: u32 = 6;
}

/// The word that shows a section's byte order.
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The largest accepted size of a block, in bytes.
const BLOCK_MAX: u64 = 128 << 20;
/// The largest accepted number of interfaces. The limit keeps a hostile file from growing the
/// list.
const INTERFACES_MAX: usize = 4096;
/// The number of bytes of an interface's description that are searched for its units of time.
const DESCRIPTION_MAX: usize = 4096;
/// The options of an interface that contain its unit of time and the epoch of its times.
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;
/// The size in bytes of the header of a block with a packet.
const PACKET_HEADER: usize = 28;

impl Headers {
    /// Reads a block's header from its first bytes, which must include the block's type and length.
    pub(super) fn block(&mut self, head: &[u8]) -> Result<Header, Refused> {
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
        // The block ends with a copy of the length.
        let rest = u64::from(length).checked_sub(head.len() as u64 + 4);
        let Some(rest) = rest.filter(|rest| length.is_multiple_of(4) && *rest <= BLOCK_MAX) else {
            return Err("a block has an invalid length");
        };
        let found = match kind {
            INTERFACE => {
                self.interface(head)?;
                Header::Other { skip: rest }
            }
            SIMPLE_PACKET => {
                let original = self.number(head, 8);
                // The block does not contain the number of kept bytes: it is the packet's length,
                // up to the interface's limit.
                let limit = self.interfaces.first().map_or(0, |interface| interface.kept_max);
                let limit = if limit == 0 { u32::MAX } else { limit };
                let kept = rest.min(u64::from(original.min(limit)));
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
        let interface = self.packet(interface, kept)?;
        let Interface { link, ticks: unit, offset_seconds, .. } = interface;
        // At most 128 MiB, as `packet` has checked.
        let kept = kept as u32;
        Ok(PacketHeader {
            kept,
            original: original.max(kept),
            is_understated: original < kept,
            link,
            time_ns: ticks.map(|ticks| unit.time_ns(ticks, offset_seconds)),
            skip,
        })
    }

    /// Starts a section: reads its byte order and forgets all interfaces.
    fn section(&mut self, head: &[u8]) -> Result<(), Refused> {
        self.interfaces.clear();
        self.is_big_endian = match u32::from_be_bytes([head[8], head[9], head[10], head[11]]) {
            BYTE_ORDER => true,
            order if order.swap_bytes() == BYTE_ORDER => false,
            _ => return Err("a section has an invalid byte order"),
        };
        Ok(())
    }

    fn interface(&mut self, head: &[u8]) -> Result<(), Refused> {
        if self.interfaces.len() == INTERFACES_MAX {
            return Err("it has more than 4,096 interfaces");
        }
        let (link, kept_max) = (u32::from(self.short(head, 8)), self.number(head, 12));
        let (ticks, offset_seconds) = self.time(&head[16..]);
        self.interfaces.push(Interface { link, ticks, offset_seconds, kept_max });
        Ok(())
    }

    /// The unit of time in an interface's options, `if_tsresol`, else microseconds; and the seconds
    /// to add to its times, `if_tsoffset`, else 0.
    fn time(&self, mut options: &[u8]) -> (Ticks, i64) {
        let (mut ticks, mut offset) = (Ticks::Decimal(6), 0);
        while let [_, _, _, _, value @ ..] = options {
            let (code, length) = (self.short(options, 0), usize::from(self.short(options, 2)));
            match (code, value) {
                (0, _) => break,
                (RESOLUTION, [resolution, ..]) if length == 1 => {
                    let digits = resolution & 0x7f;
                    let is_binary = resolution & 0x80 != 0;
                    ticks = if is_binary { Ticks::Binary(digits) } else { Ticks::Decimal(digits) };
                }
                (OFFSET, [_, _, _, _, _, _, _, _, ..]) if length == 8 => {
                    offset = self.signed(value);
                }
                _ => {}
            }
            options = value.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        (ticks, offset)
    }

    /// A signed number of eight bytes.
    fn signed(&self, value: &[u8]) -> i64 {
        let bytes = value.first_chunk().copied().unwrap_or_default();
        if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_options_give_unit_and_offset_of_times() {
        let mut headers = Headers::new();
        let offset = [14, 0, 8, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for (options, expected) in [
            (&[][..], (Ticks::Decimal(6), 0)),
            (&[9, 0, 1, 0, 9, 0, 0, 0], (Ticks::Decimal(9), 0)),
            (&[2, 0, 3, 0, b'e', b'n', b'0', 0, 9, 0, 1, 0, 0x8a, 0, 0, 0], (Ticks::Binary(10), 0)),
            (&[0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0], (Ticks::Decimal(6), 0)),
            (&[2, 0, 0xff, 0xff, 9, 0, 1, 0, 9, 0, 0, 0], (Ticks::Decimal(6), 0)),
            (&[9, 0, 1, 0], (Ticks::Decimal(6), 0)),
            (&[9, 0, 2, 0, 9, 9, 0, 0], (Ticks::Decimal(6), 0)),
            (&offset, (Ticks::Decimal(6), -1)),
            (&[&offset[..], &[9, 0, 1, 0, 3, 0, 0, 0]].concat(), (Ticks::Decimal(3), -1)),
            (&[&[9, 0, 1, 0, 3, 0, 0, 0], &offset[..]].concat(), (Ticks::Decimal(3), -1)),
            (&offset[..11], (Ticks::Decimal(6), 0)),
            (&[14, 0, 4, 0, 1, 0, 0, 0], (Ticks::Decimal(6), 0)),
        ] {
            assert_eq!(headers.time(options), expected, "{options:?}");
        }
        headers.is_big_endian = true;
        let big = [0, 14, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(headers.time(&big), (Ticks::Decimal(6), i64::MIN));
    }
}
