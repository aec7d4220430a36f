//! The header of a file and the header of each of its blocks. All numbers are little-endian.

use super::TraceError;

/// The version of the format that this version of haul writes and reads.
pub const VERSION: u16 = 1;

/// The size of a file's header in bytes. The first block begins at [`Header::header_bytes`].
pub const HEADER_BYTES: usize = 96;

/// The size of a block's header in bytes. Its events begin right after it.
pub const BLOCK_HEADER_BYTES: usize = 24;

/// The smallest size of a block in bytes, including its header. A few events fit.
pub const BLOCK_BYTES_MIN: u32 = 256;

/// The largest size of a block in bytes, including its header. A reader must be able to hold it.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// The size in bytes of the program's name in a header; a longer name is cut off.
pub const PROGRAM_BYTES: usize = 48;

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"haultrc\n";

/// The first bytes of a block.
const BLOCK_MAGIC: [u8; 4] = *b"HTB1";

/// The largest page of a supported machine, in bytes (64 KiB pages of aarch64). Recorders map
/// blocks, so the first block begins at a page boundary.
const HEADER_ROOM_MAX: u32 = 1 << 16;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The offset of the first block in the file, in bytes.
    pub header_bytes: u32,
    /// The distance between the starts of blocks, in bytes.
    pub block_bytes: u32,
    /// The process that was recorded.
    pub process: u32,
    /// The process that it was forked from; 0 if it was not forked during the recording.
    pub parent: u32,
    /// The start of the recording, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The value of the clock that gives times (`CLOCK_MONOTONIC`) at the start of the recording,
    /// in nanoseconds. It aligns traces of one machine.
    pub clock_ns: u64,
    /// The program's name, padded with zeros.
    pub program: [u8; PROGRAM_BYTES],
}

impl Header {
    /// The header's bytes. It does not allocate.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.header_bytes.to_le_bytes());
        put(16, &self.block_bytes.to_le_bytes());
        put(20, &self.process.to_le_bytes());
        put(24, &self.parent.to_le_bytes());
        put(32, &self.started_unix_ns.to_le_bytes());
        put(40, &self.clock_ns.to_le_bytes());
        put(48, &self.program);
        bytes
    }

    /// Reads the first [`HEADER_BYTES`] of a file.
    ///
    /// # Errors
    /// It is an error if there are fewer bytes, if they belong to another format or version, or if
    /// a size is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let magic: [u8; 8] = field(bytes, 0).ok_or(TraceError::Short { found: bytes.len() })?;
        if magic != MAGIC {
            return Err(TraceError::Magic { found: magic });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(TraceError::Short { found: bytes.len() });
        }
        let number = |at| field(bytes, at).map_or(0, u32::from_le_bytes);
        let long = |at| field(bytes, at).map_or(0, u64::from_le_bytes);
        let version = field(bytes, 8).map_or(0, u16::from_le_bytes);
        if version != VERSION {
            return Err(TraceError::Version { found: version });
        }
        let header = Self {
            header_bytes: number(12),
            block_bytes: number(16),
            process: number(20),
            parent: number(24),
            started_unix_ns: long(32),
            clock_ns: long(40),
            program: field(bytes, 48).unwrap_or([0; PROGRAM_BYTES]),
        };
        let lowest = HEADER_BYTES as u32;
        within("header_bytes", header.header_bytes, lowest, HEADER_ROOM_MAX)?;
        within("block_bytes", header.block_bytes, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)?;
        Ok(header)
    }

    /// The program's name as text. Invalid UTF-8 and control characters are replaced.
    #[must_use]
    pub fn program_name(&self) -> String {
        printable(self.program.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The number of bytes of events that follow. A recorder raises it after each event, so that a
    /// process that dies at any instant leaves complete events.
    pub used_bytes: u32,
    /// The thread of the block's first event.
    pub thread: u32,
    /// The base of the first event's time, in nanoseconds since the recording began.
    pub time_ns: u64,
}

impl BlockHeader {
    /// The offset of `used_bytes` in a block, for a recorder that raises it in place.
    pub const USED_AT: usize = 4;

    /// The header's bytes. It does not allocate.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[Self::USED_AT..8].copy_from_slice(&self.used_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.thread.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes
    }

    /// Reads the header of a block from the block's available bytes. `None` if the block is unused:
    /// its header is all zeros, or was cut off.
    ///
    /// # Errors
    /// It is an error if the block begins with other bytes, or if its header says that more bytes
    /// follow than fit into a block of `block_bytes`.
    pub fn parse(block: &[u8], block_bytes: u32) -> Result<Option<Self>, TraceError> {
        if block.len() < BLOCK_HEADER_BYTES || block[..BLOCK_HEADER_BYTES].iter().all(|b| *b == 0) {
            return Ok(None);
        }
        if field(block, 0) != Some(BLOCK_MAGIC) {
            return Err(TraceError::Event {
                at: 0,
                why: "it does not begin with the bytes of a block",
            });
        }
        let header = Self {
            used_bytes: field(block, Self::USED_AT).map_or(0, u32::from_le_bytes),
            thread: field(block, 8).map_or(0, u32::from_le_bytes),
            time_ns: field(block, 16).map_or(0, u64::from_le_bytes),
        };
        let room = block_bytes.saturating_sub(BLOCK_HEADER_BYTES as u32);
        within("used_bytes", header.used_bytes, 0, room)?;
        Ok(Some(header))
    }
}

/// Bytes as text. Invalid UTF-8 and control characters are replaced.
pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn within(field: &'static str, found: u32, lowest: u32, highest: u32) -> Result<(), TraceError> {
    if (lowest..=highest).contains(&found) {
        return Ok(());
    }
    let [found, lowest, highest] = [found, lowest, highest].map(u64::from);
    Err(TraceError::Header { field, found, lowest, highest })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let mut program = [0; PROGRAM_BYTES];
        program[..4].copy_from_slice(b"sort");
        Header {
            header_bytes: 4096,
            block_bytes: 65_536,
            process: 41,
            parent: 7,
            started_unix_ns: 1 << 60,
            clock_ns: 123_456_789,
            program,
        }
    }

    #[test]
    fn headers_round_trip() {
        let bytes = header().to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header()));
        assert_eq!(header().program_name(), "sort");
        let block = BlockHeader { used_bytes: 17, thread: 9, time_ns: u64::MAX };
        assert_eq!(BlockHeader::parse(&block.to_bytes(), 4096), Ok(Some(block)));
    }

    #[test]
    fn parse_rejects_invalid_header_fields() {
        let with = |at: usize, value: &[u8]| {
            let mut bytes = header().to_bytes();
            bytes[at..at + value.len()].copy_from_slice(value);
            Header::parse(&bytes).unwrap_err().to_string()
        };
        assert!(with(0, b"HAULTRC\n").contains("not a haul trace"));
        assert!(with(8, &9_u16.to_le_bytes()).contains("version 9"));
        assert!(with(12, &95_u32.to_le_bytes()).contains("header_bytes is 95"));
        assert!(with(12, &u32::MAX.to_le_bytes()).contains("header_bytes"));
        assert!(with(16, &0_u32.to_le_bytes()).contains("block_bytes is 0"));
        assert!(with(16, &u32::MAX.to_le_bytes()).contains("block_bytes"));
        for length in 0..HEADER_BYTES {
            let cut = Header::parse(&header().to_bytes()[..length]);
            assert_eq!(cut, Err(TraceError::Short { found: length }));
        }
    }

    #[test]
    fn unused_block_is_none_and_invalid_block_is_error() {
        assert_eq!(BlockHeader::parse(&[0; 4096], 4096), Ok(None));
        assert_eq!(BlockHeader::parse(b"HTB1", 4096), Ok(None));
        assert!(BlockHeader::parse(&[7; 4096], 4096).is_err());
        let invalid = BlockHeader { used_bytes: 4096, thread: 1, time_ns: 0 };
        let message = BlockHeader::parse(&invalid.to_bytes(), 4096).unwrap_err().to_string();
        assert!(message.contains("used_bytes is 4096"), "{message}");
    }

    #[test]
    fn program_name_replaces_control_characters() {
        let mut evil = header();
        evil.program[..6].copy_from_slice(b"\x1b[2J\xff\n");
        assert_eq!(evil.program_name(), "\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
