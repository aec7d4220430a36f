//! The first bytes of a file, and the first bytes of each of its blocks. All numbers are
//! little-endian.

use super::TraceError;

/// The version that this haul writes and reads.
pub const VERSION: u16 = 1;

/// Bytes that a file's header takes. The first block begins at [`Header::header_bytes`].
pub const HEADER_BYTES: usize = 96;

/// Bytes that a block's header takes. Its events begin right after it.
pub const BLOCK_HEADER_BYTES: usize = 24;

/// The least that a block may take, header and all, in bytes: a few events fit.
pub const BLOCK_BYTES_MIN: u32 = 256;

/// The most that a block may take, header and all, in bytes: what a reader must be ready to hold.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// The most that the program's name takes in a header, in bytes; a longer one is cut off.
pub const PROGRAM_BYTES: usize = 48;

/// How a file begins.
const MAGIC: [u8; 8] = *b"haultrc\n";

/// How a block begins.
const BLOCK_MAGIC: [u8; 4] = *b"HTB1";

/// The largest page of a supported machine, in bytes (64 KiB pages of aarch64): blocks are mapped,
/// so that the first of them begins on a page.
const HEADER_ROOM_MAX: u32 = 1 << 16;

/// What a file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the first block begins, in bytes from the start of the file.
    pub header_bytes: u32,
    /// How far apart blocks begin, in bytes.
    pub block_bytes: u32,
    /// The process that was recorded.
    pub process: u32,
    /// The process that it was forked from; 0 where it was not forked while it was recorded.
    pub parent: u32,
    /// When the recording began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The clock that times are taken from (`CLOCK_MONOTONIC`) when the recording began, in
    /// nanoseconds: traces of one machine are laid side by side by it.
    pub clock_ns: u64,
    /// The program's name, filled up with zeros.
    pub program: [u8; PROGRAM_BYTES],
}

impl Header {
    /// The header's bytes. No allocation.
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
    /// There are fewer, they are another file's or another version's, or a size is out of bounds.
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

    /// The program's name as text; what is no text, and what a terminal would obey, is replaced.
    #[must_use]
    pub fn program_name(&self) -> String {
        printable(self.program.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// How many bytes of events follow. A recorder raises it after each event, so that a process
    /// that dies at any instant leaves whole events.
    pub used_bytes: u32,
    /// The thread of the block's first event.
    pub thread: u32,
    /// What the time of the first event counts from, in nanoseconds since the recording began.
    pub time_ns: u64,
}

impl BlockHeader {
    /// Where `used_bytes` stands in a block, for a recorder that raises it in place.
    pub const USED_AT: usize = 4;

    /// The header's bytes. No allocation.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BLOCK_MAGIC);
        bytes[Self::USED_AT..8].copy_from_slice(&self.used_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.thread.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes
    }

    /// Reads the start of a block, given all that there is of it. `None` for a block that was never
    /// begun: it is all zeros, or it was cut off within its header.
    ///
    /// # Errors
    /// It begins in another way, or says that more follows than a block of `block_bytes` holds.
    pub fn parse(block: &[u8], block_bytes: u32) -> Result<Option<Self>, TraceError> {
        if block.len() < BLOCK_HEADER_BYTES || block[..BLOCK_HEADER_BYTES].iter().all(|b| *b == 0) {
            return Ok(None);
        }
        if field(block, 0) != Some(BLOCK_MAGIC) {
            return Err(TraceError::Event { at: 0, why: "it does not begin as a block does" });
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

/// Bytes as text for a person: what is no text, and what a terminal would obey, is replaced.
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
    fn a_header_comes_back() {
        let bytes = header().to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header()));
        assert_eq!(header().program_name(), "sort");
        let block = BlockHeader { used_bytes: 17, thread: 9, time_ns: u64::MAX };
        assert_eq!(BlockHeader::parse(&block.to_bytes(), 4096), Ok(Some(block)));
    }

    #[test]
    fn every_lie_of_a_header_is_told() {
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
    fn a_block_that_was_never_begun_is_none_and_one_that_lies_is_an_error() {
        assert_eq!(BlockHeader::parse(&[0; 4096], 4096), Ok(None));
        assert_eq!(BlockHeader::parse(b"HTB1", 4096), Ok(None));
        assert!(BlockHeader::parse(&[7; 4096], 4096).is_err());
        let lies = BlockHeader { used_bytes: 4096, thread: 1, time_ns: 0 };
        let message = BlockHeader::parse(&lies.to_bytes(), 4096).unwrap_err().to_string();
        assert!(message.contains("used_bytes is 4096"), "{message}");
    }

    #[test]
    fn a_name_cannot_command_a_terminal() {
        let mut evil = header();
        evil.program[..6].copy_from_slice(b"\x1b[2J\xff\n");
        assert_eq!(evil.program_name(), "\u{fffd}[2J\u{fffd}\u{fffd}");
    }
}
