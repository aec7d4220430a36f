//! The blocks of pcapng.

use self::kind::{ENHANCED_PACKET, INTERFACE, PACKET, SECTION, SIMPLE_PACKET};
use super::ticks::Ticks;
use super::{Header, Headers, Interface, PacketHeader, Refused};

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

/// The word by which a section says its byte order.
pub const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// More bytes of a block without packets than writers write.
const BLOCK_MAX: u64 = 128 << 20;
/// More interfaces than a capture has; keeps a hostile one from growing a list.
const INTERFACES_MAX: usize = 4096;
/// The longest description of an interface that is looked at for its times.
const DESCRIPTION_MAX: usize = 4096;
/// The options of an interface that say its unit of time and where its times count from.
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;
/// The header of a block with a packet.
const PACKET_HEADER: usize = 28;

impl Headers {
    /// A block, of which the first bytes are there: at least its type and length.
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
                // The block does not say how much of the packet it has: as much as the interface's
                // limit leaves of it.
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
        // No more than 128 MiB, as was just seen.
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
        let (link, kept_max) = (u32::from(self.short(head, 8)), self.number(head, 12));
        let (ticks, offset_seconds) = self.time(&head[16..]);
        self.interfaces.push(Interface { link, ticks, offset_seconds, kept_max });
        Ok(())
    }

    /// The unit of time that an interface's options name, `if_tsresol`, else microseconds; and the
    /// seconds that are to be added to its times, `if_tsoffset`, else none.
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

    /// A number of eight bytes with a sign.
    fn signed(&self, value: &[u8]) -> i64 {
        let bytes = value.first_chunk().copied().unwrap_or_default();
        if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_says_its_unit_of_time_and_where_it_counts_from() {
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
