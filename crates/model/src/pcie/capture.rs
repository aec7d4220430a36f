//! Reads the sizes of a capture's packets as a stream.
//!
//! The packets' bytes are skipped, and memory does not grow with the file. Sizes are those of the
//! original packets, not the captured lengths. [`crate::capture`] reads the headers and does not
//! trust them.

use std::collections::BTreeMap;

use super::error::PcieError;
use super::workload::{Packets, SIZE_BYTES_MAX};
use crate::capture::{Header, Headers, PacketHeader};

/// A reader of a capture. It accepts pieces of any length:
///
/// ```
/// use haul_model::pcie::Capture;
/// let mut capture = Capture::new();
/// // A file's header, and one packet of which 2 of 60 bytes were kept.
/// let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1];
/// let packet = [0, 0, 2, 60];
/// for word in [&header[..], &packet].concat() {
///     capture.push(&word.to_le_bytes()).unwrap();
/// }
/// capture.push(&[0xaa, 0xbb]).unwrap();
/// let (packets, notes) = capture.finish().unwrap();
/// assert_eq!(packets.sizes(), [(60, 1)]);
/// assert!(notes.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Capture {
    headers: Headers,
    /// The bytes of a header that is not complete yet.
    head: Vec<u8>,
    /// The number of bytes to skip before the next header.
    skip: u64,
    /// The offset of the next byte in the file.
    at: u64,
    sizes: BTreeMap<u32, u64>,
    packets: u64,
    empty: u64,
    giant: u64,
    foreign: u64,
    understated: u64,
    /// A packet that will count when all of its bytes have been read.
    pending: Option<PacketHeader>,
}

impl Capture {
    /// A reader at the start of a file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes of the file.
    ///
    /// # Errors
    /// [`PcieError::Capture`] if the file is not a capture, or if a header is invalid.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), PcieError> {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len() as u64) as usize;
            self.skip -= skipped as u64;
            self.at += skipped as u64;
            bytes = &bytes[skipped..];
            if self.skip > 0 {
                return Ok(());
            }
            self.packet_is_whole();
            let more = (self.headers.wanted() - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..more]);
            self.at += more as u64;
            bytes = &bytes[more..];
            if self.head.len() == self.headers.wanted() {
                self.header()?;
            }
        }
        if self.skip == 0 {
            self.packet_is_whole();
        }
        Ok(())
    }

    /// The sizes, and notes about packets that were left out.
    ///
    /// # Errors
    /// [`PcieError::Capture`] if no packet counts.
    pub fn finish(self) -> Result<(Packets, Vec<String>), PcieError> {
        if !self.headers.has_begun() {
            return Err(self.refused("it ends before its header does"));
        }
        let mut notes = Vec::new();
        if self.skip > 0 || !self.head.is_empty() || self.headers.is_in_block() {
            notes.push(format!(
                "the capture ends within a packet, at byte {}: the {} whole ones before it count",
                self.at, self.packets
            ));
        }
        for (left_out, why) in [
            (self.empty, "have no bytes"),
            (self.giant, "are longer than the 65,535 B of a descriptor's length"),
        ] {
            if left_out > 0 {
                notes.push(format!("{left_out} packets of the capture {why}: they do not count"));
            }
        }
        if self.foreign > 0 {
            notes.push(format!(
                "{} packets of the capture are of no Ethernet link: their sizes are taken as they are",
                self.foreign
            ));
        }
        if self.understated > 0 {
            notes.push(format!(
                "{} packets of the capture say that more of them was kept than there was: the kept \
                 length counts as the size",
                self.understated
            ));
        }
        if self.sizes.is_empty() {
            return Err(self.refused("no packet of it counts"));
        }
        Ok((Packets::of_counts(self.sizes), notes))
    }

    fn header(&mut self) -> Result<(), PcieError> {
        match self.headers.read(&self.head).map_err(|reason| self.refused(reason))? {
            Header::Longer => return Ok(()),
            Header::Packet(packet) => {
                self.pending = Some(packet);
                self.skip = packet.skip;
            }
            Header::Other { skip } => self.skip = skip,
            Header::End => self.count(),
        }
        self.head.clear();
        Ok(())
    }

    /// Counts the packet whose bytes have all been read. In a block, it counts only at the block's
    /// end.
    fn packet_is_whole(&mut self) {
        if !self.headers.is_in_block() {
            self.count();
        }
    }

    fn count(&mut self) {
        let Some(packet) = self.pending.take() else { return };
        self.packets += 1;
        match u64::from(packet.original) {
            0 => self.empty += 1,
            size if size > SIZE_BYTES_MAX => self.giant += 1,
            _ => {
                self.foreign += u64::from(!packet.is_ethernet());
                self.understated += u64::from(packet.is_understated);
                *self.sizes.entry(packet.original).or_default() += 1;
            }
        }
    }

    fn refused(&self, reason: &'static str) -> PcieError {
        PcieError::Capture { at: self.at, reason }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capture::kind::{ENHANCED_PACKET, INTERFACE, PACKET, SECTION, SIMPLE_PACKET};

    fn pcap(magic: u32, packets: &[(u32, u32)]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [magic, 0x0004_0002, 0, 0, 262_144, 1] {
            file.extend(u32::to_le_bytes(word));
        }
        let more = if magic == 0xa1b2_cd34 { 8 } else { 0 };
        for (kept, original) in packets {
            for word in [0, 999_999_999, *kept, *original] {
                file.extend(u32::to_le_bytes(word));
            }
            file.resize(file.len() + more + *kept as usize, 0xee);
        }
        file
    }

    fn block(kind: u32, body: &[u8], is_big: bool) -> Vec<u8> {
        let word = |number: u32| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let length = word(12 + body.len() as u32);
        [&word(kind)[..], &length, body, &length].concat()
    }

    fn pcapng(is_big: bool) -> Vec<u8> {
        let word = |number: u32| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let half = |number: u16| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        let section = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let interface = [&half(1)[..], &half(0), &word(0)].concat();
        let enhanced = |kept: u32, original| {
            let head = [word(0), word(1), word(2), word(kept), word(original)].concat();
            [&head[..], &vec![7; kept.next_multiple_of(4) as usize]].concat()
        };
        let old = [&half(0)[..], &half(0), &word(1), &word(2), &word(4), &word(594), &[1; 4]];
        let mut file = block(SECTION, &section, is_big);
        file.extend(block(INTERFACE, &interface, is_big));
        file.extend(block(ENHANCED_PACKET, &enhanced(5, 60), is_big));
        file.extend(block(5, &[0; 16], is_big));
        file.extend(block(SIMPLE_PACKET, &[&word(60)[..], &[1; 60]].concat(), is_big));
        file.extend(block(PACKET, &old.concat(), is_big));
        file
    }

    fn read(file: &[u8], piece: usize) -> Result<(Packets, Vec<String>), PcieError> {
        let mut capture = Capture::new();
        file.chunks(piece).try_for_each(|bytes| capture.push(bytes))?;
        capture.finish()
    }

    #[test]
    fn every_format_is_read_in_pieces_of_any_length() {
        for piece in [1, 3, 7, 4096] {
            for magic in [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34] {
                let file = pcap(magic, &[(2, 60), (60, 60), (0, 1514)]);
                let (packets, notes) = read(&file, piece).unwrap();
                assert_eq!(packets.sizes(), [(60, 2), (1514, 1)], "{magic:x} {piece}");
                assert!(notes.is_empty(), "{notes:?}");
            }
            for is_big in [false, true] {
                let (packets, notes) = read(&pcapng(is_big), piece).unwrap();
                assert_eq!(packets.sizes(), [(60, 2), (594, 1)], "{is_big} {piece}");
                assert!(notes.is_empty(), "{notes:?}");
            }
        }
        let big: Vec<u8> = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 96, 101, 0, 0, 0, 40]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .collect();
        let (packets, notes) = read(&big, 5).unwrap();
        assert_eq!(packets.sizes(), [(40, 1)]);
        assert!(notes[0].contains("no Ethernet"), "{notes:?}");
    }

    #[test]
    fn truncated_empty_and_giant_packets_are_noted_and_skipped() {
        let whole = pcap(0xa1b2_c3d4, &[(60, 60), (0, 0), (4, 70_000), (60, 61)]);
        let (packets, notes) = read(&whole, 64).unwrap();
        assert_eq!(packets.sizes(), [(60, 1), (61, 1)]);
        assert!(notes[0].contains("1 packets of the capture have no bytes"), "{notes:?}");
        assert!(notes[1].contains("65,535"), "{notes:?}");
        for cut in 1..60 {
            let (packets, notes) = read(&whole[..whole.len() - cut], 64).unwrap();
            assert_eq!(packets.sizes(), [(60, 1)], "{cut}");
            assert!(notes[0].contains("ends within a packet"), "{notes:?}");
        }
        let file = pcapng(false);
        for cut in 1..20 {
            let (packets, notes) = read(&file[..file.len() - cut], 64).unwrap();
            assert_eq!(packets.sizes(), [(60, 2)], "{cut}");
            assert!(notes[0].contains("ends within"), "{notes:?}");
        }
    }

    /// A simple packet contains only its original size, and an interface may keep less of it.
    #[test]
    fn size_is_original_length_and_at_least_kept_length() {
        let file = pcap(0xa1b2_c3d4, &[(61, 60), (60, 0), (60, 60)]);
        let (packets, notes) = read(&file, 7).unwrap();
        assert_eq!(packets.sizes(), [(60, 2), (61, 1)]);
        assert!(notes[0].starts_with("2 packets of the capture say that more"), "{notes:?}");
        let mut file = pcapng(false)[..28].to_vec();
        file.extend(block(INTERFACE, &[1, 0, 0, 0, 61, 0, 0, 0], false));
        for original in [61, 63, 1514_u32] {
            let body = [&original.to_le_bytes()[..], &[7; 64]].concat();
            file.extend(block(SIMPLE_PACKET, &body, false));
        }
        let (packets, notes) = read(&file, 7).unwrap();
        assert_eq!(packets.sizes(), [(61, 1), (63, 1), (1514, 1)]);
        assert!(notes.is_empty(), "{notes:?}");
        // Up to version 2.2, the original length came first.
        let mut old = pcap(0xa1b2_c3d4, &[]);
        old[6] = 2;
        for word in [0, 0, 1514, 96_u32] {
            old.extend(word.to_le_bytes());
        }
        old.resize(old.len() + 96, 1);
        assert_eq!(read(&old, 7).unwrap().0.sizes(), [(1514, 1)]);
    }

    #[test]
    fn invalid_captures_are_rejected_with_offset_and_reason() {
        let huge = {
            let mut file = pcap(0xa1b2_c3d4, &[]);
            file.extend([0, 0, u32::MAX, u32::MAX].into_iter().flat_map(u32::to_le_bytes));
            file
        };
        let mut lengths = pcapng(false);
        let last = lengths.len() - 4;
        lengths[last] ^= 4;
        let mut short = pcapng(false);
        short[4] = 8;
        let bare = [block(SECTION, &pcapng(false)[8..24], false), pcapng(false)[48..].to_vec()];
        for (file, part) in [
            (Vec::new(), "ends before its header"),
            (vec![0x1f, 0x8b, 8, 0], "ends before its header"),
            ([&[0x1f, 0x8b][..], &[0; 30]].concat(), "gzip -d"),
            (vec![b'x'; 64], "as a pcap or pcapng"),
            (pcap(0xa1b2_c3d4, &[]), "no packet"),
            (huge, "128 MiB"),
            (lengths, "two lengths differ"),
            (short, "invalid length"),
            (bare.concat(), "no block describes"),
        ] {
            let message = read(&file, 9).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("byte"), "{part}: {message}");
        }
    }

    proptest! {
        #[test]
        fn capture_accepts_or_rejects_any_bytes(
            magic in prop::sample::select(vec![0xa1b2_c3d4_u32, 0xa1b2_3c4d, SECTION, 0]),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            piece in 1_usize..50,
        ) {
            let _ = read(&[&magic.to_le_bytes()[..], &bytes].concat(), piece);
        }

        #[test]
        fn changed_byte_never_hangs_or_panics(at in 0_usize..200, to in any::<u8>()) {
            let mut file = pcapng(false);
            let at = at % file.len();
            file[at] = to;
            let _ = read(&file, 16);
        }
    }
}
