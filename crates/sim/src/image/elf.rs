//! Reads an ELF file as defined by chapters 4 and 5 of the System V ABI and by the RISC-V ELF
//! psABI. The file is untrusted: each offset and size is checked before it is used.

use super::{SPAN_BYTES_MAX, Segment};
use crate::error::Error;

/// The sizes of the file's header and of a program header in bytes, ELF64.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// The largest number of segments that a file may have; a linker creates fewer than ten.
const SEGMENTS_MAX: usize = 64;
/// EM_RISCV, psABI.
const RISC_V: u16 = 243;
/// ET_EXEC.
const EXECUTABLE: u16 = 2;
/// PT_LOAD, PT_INTERP.
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
/// EF_RISCV_RVC: the file uses compressed instructions. psABI, "e_flags".
const COMPRESSED: u32 = 1;

/// The segments to load and the address of the entry.
pub(super) fn segments(file: &[u8]) -> Result<(Vec<Segment>, u64), Error> {
    let reader = Reader { file };
    reader.check_kind()?;
    let entry = reader.u64(24)?;
    let table = reader.u64(32)?;
    let (entry_bytes, count) = (reader.u16(54)?, usize::from(reader.u16(56)?));
    if usize::from(entry_bytes) != PROGRAM_HEADER || count > SEGMENTS_MAX {
        return Err(Error::elf(
            format!("{count} program headers of {entry_bytes} bytes"),
            format!("at most {SEGMENTS_MAX} of {PROGRAM_HEADER} bytes are read"),
        ));
    }
    let mut segments = Vec::new();
    let mut left = SPAN_BYTES_MAX;
    for index in 0..count {
        let at = usize::try_from(table).unwrap_or(usize::MAX);
        let header = reader.bytes(at.saturating_add(index * PROGRAM_HEADER), PROGRAM_HEADER)?;
        match (Reader { file: header }).u32(0)? {
            LOAD => segments.push(reader.segment(&Reader { file: header }, &mut left)?),
            INTERPRETER => {
                return Err(Error::elf("it is linked dynamically", "link it with -static"));
            }
            _ => {}
        }
    }
    Ok((segments, entry))
}

/// Reads numbers at offsets of a file, which may be too short for them.
struct Reader<'a> {
    file: &'a [u8],
}

impl<'a> Reader<'a> {
    fn check_kind(&self) -> Result<(), Error> {
        if self.file.get(..4) != Some(b"\x7fELF".as_slice()) {
            return Err(Error::elf("it does not begin with the ELF signature", "name an ELF file"));
        }
        self.bytes(0, HEADER)?;
        let compile = "compile it for RV64IM: -march=rv64im -mabi=lp64";
        if (self.file[4], self.file[5]) != (2, 1) {
            return Err(Error::elf("it is not a 64-bit little-endian file", compile));
        }
        let machine = self.u16(18)?;
        if machine != RISC_V {
            return Err(Error::elf(format!("it is for machine {machine}, not RISC-V"), compile));
        }
        if self.u32(48)? & COMPRESSED != 0 {
            return Err(Error::elf("it uses compressed instructions", compile));
        }
        let kind = self.u16(16)?;
        if kind != EXECUTABLE {
            return Err(Error::elf(
                format!("it is of ELF type {kind}, not an executable at a fixed address"),
                "link it with -static -no-pie",
            ));
        }
        Ok(())
    }

    /// Reads a segment. Subtracts the segment's bytes in the file from `left`, which they must
    /// not exceed.
    fn segment(&self, header: &Reader<'_>, left: &mut u64) -> Result<Segment, Error> {
        let flags = header.u32(4)?;
        let (offset, address) = (header.u64(8)?, header.u64(16)?);
        let (file_bytes, size_bytes) = (header.u64(32)?, header.u64(40)?);
        if file_bytes > size_bytes {
            return Err(Error::elf(
                format!("a segment of {size_bytes} bytes has {file_bytes} of them in the file"),
                "link it anew: the file is damaged",
            ));
        }
        // Many headers may refer to the same bytes of the file; each header makes a copy of these
        // bytes.
        *left = left.checked_sub(file_bytes).ok_or_else(|| {
            Error::elf(
                format!("its segments have more than {SPAN_BYTES_MAX} bytes in the file"),
                "make its arrays smaller",
            )
        })?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let length = usize::try_from(file_bytes).unwrap_or(usize::MAX);
        // For a segment without bytes in the file, linkers write any offset, the file's end
        // included.
        let bytes = if length == 0 { &[][..] } else { self.bytes(offset, length)? };
        Ok(Segment {
            address,
            bytes: bytes.to_vec(),
            size_bytes,
            is_readable: flags & 4 != 0,
            is_writable: flags & 2 != 0,
            is_executable: flags & 1 != 0,
        })
    }

    fn bytes(&self, offset: usize, length: usize) -> Result<&'a [u8], Error> {
        let end = offset.checked_add(length);
        end.and_then(|end| self.file.get(offset..end)).ok_or_else(|| {
            Error::elf(
                format!(
                    "it is truncated: {length} bytes at {offset} are beyond its {} bytes",
                    self.file.len()
                ),
                "link or fetch it anew",
            )
        })
    }

    fn u16(&self, offset: usize) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array(offset)?))
    }

    fn u32(&self, offset: usize) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(offset)?))
    }

    fn u64(&self, offset: usize) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(offset)?))
    }

    fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(offset, N)?);
        Ok(array)
    }
}
