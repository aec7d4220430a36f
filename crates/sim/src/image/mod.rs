//! A program loaded into the machine: its memory, page by page, and its decoded instructions.
//!
//! Memory is one flat range from the program's lowest segment to the top of its stack. Each page
//! has permissions; a page outside of all segments is inaccessible. An executable page is never
//! writable, so that instructions are decoded only once.

mod elf;

use crate::error::{Access, Error};
use crate::isa::{self, Instruction, Operation, SINK, WORD};

/// The size in bytes of a page, the unit of permissions.
pub const PAGE: u64 = 4096;
/// The largest number of bytes that a program may span, stack included. Chosen: an acceptable
/// share of the host's memory for one run.
pub const SPAN_BYTES_MAX: u64 = 128 << 20;
/// The largest number of bytes of instructions. A decoded instruction uses four times the memory
/// of its word.
pub const CODE_BYTES_MAX: u64 = 8 << 20;
/// The size in bytes of the stack above the last segment. One inaccessible page separates the
/// stack and the segment.
pub const STACK_BYTES: u64 = 1 << 20;

const READ: u8 = 4;
const WRITE: u8 = 2;
const EXECUTE: u8 = 1;

/// A program that can be run any number of times.
#[derive(Clone, Debug)]
pub struct Image {
    memory: Memory,
    code: Vec<Instruction>,
    code_start: u64,
    entry: u32,
}

/// A part of a program before layout.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The address of the segment's first byte.
    pub address: u64,
    /// The segment's initial bytes.
    pub bytes: Vec<u8>,
    /// The segment's size. Bytes beyond `bytes` are zero.
    pub size_bytes: u64,
    /// Whether the segment may be read.
    pub is_readable: bool,
    /// Whether the segment may be written.
    pub is_writable: bool,
    /// Whether the segment may be executed.
    pub is_executable: bool,
}

/// The bytes of a machine's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    start: u64,
    bytes: Vec<u8>,
    /// The permissions of each page.
    pages: Vec<u8>,
}

impl Image {
    /// Reads a statically linked RV64IM program.
    ///
    /// # Errors
    /// [`Error::Elf`] if the file is truncated, for another machine, of another kind or compressed;
    /// if its segments overlap, are too large, or are both writable and executable; or if its entry
    /// is not in an executable segment.
    pub fn from_elf(file: &[u8]) -> Result<Self, Error> {
        let (segments, entry) = elf::segments(file)?;
        Self::from_segments(&segments, entry)
    }

    /// A program of instructions at `start`, with `data_bytes` of zeroed memory in the page after
    /// them; see [`isa::encode`]. Register sp begins with [`Image::stack_top`].
    ///
    /// # Errors
    /// [`Error::Elf`], as [`Image::from_elf`].
    pub fn from_words(start: u64, words: &[u32], data_bytes: u64) -> Result<Self, Error> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size_bytes = bytes.len() as u64;
        let code = Segment {
            address: start,
            bytes,
            size_bytes,
            is_readable: true,
            is_writable: false,
            is_executable: true,
        };
        let data = Segment {
            // A sum that overflows gives address 0, which the layout rejects.
            address: start.wrapping_add(size_bytes).checked_next_multiple_of(PAGE).unwrap_or(0),
            bytes: Vec::new(),
            size_bytes: data_bytes,
            is_writable: true,
            is_executable: false,
            is_readable: true,
        };
        Self::from_segments(&[code, data], start)
    }

    /// Lays segments out and decodes the executable ones.
    ///
    /// # Errors
    /// [`Error::Elf`], as [`Image::from_elf`].
    pub fn from_segments(segments: &[Segment], entry: u64) -> Result<Self, Error> {
        let mut segments: Vec<&Segment> = segments.iter().filter(|s| s.size_bytes > 0).collect();
        segments.sort_by_key(|segment| segment.address);
        let (start, end) = span(&segments)?;
        let code = code_span(&segments)?;
        let size = (end - start) as usize;
        let mut memory =
            Memory { start, bytes: vec![0; size], pages: vec![0; size / PAGE as usize] };
        for segment in segments {
            memory.place(segment);
        }
        memory.permit(end - STACK_BYTES, STACK_BYTES, READ | WRITE);
        if memory.pages.iter().any(|page| page & (WRITE | EXECUTE) == WRITE | EXECUTE) {
            return Err(Error::elf(
                "a page is both writable and executable",
                "link code and data into separate pages (ld's -z separate-code)",
            ));
        }
        let code = memory.decode(code.0, code.1);
        let index = entry.wrapping_sub(code.start) / WORD;
        let is_code = entry.is_multiple_of(WORD)
            && entry >= code.start
            && code
                .instructions
                .get(index as usize)
                .is_some_and(|i| i.operation != Operation::Unmapped);
        if !is_code {
            return Err(Error::elf(
                format!("its entry {entry:#x} is not an executable instruction"),
                "link it with an entry in its code",
            ));
        }
        Ok(Self { memory, code: code.instructions, code_start: code.start, entry: index as u32 })
    }

    /// The memory at the beginning of a run.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The instructions, by index.
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// The index of the first instruction that runs.
    pub fn entry(&self) -> u32 {
        self.entry
    }

    /// The address of the instruction at `index`.
    #[inline(always)]
    pub fn address_of(&self, index: u32) -> u64 {
        self.code_start.wrapping_add(u64::from(index) * WORD)
    }

    /// The address to which a jump to `index` would go, whether or not there is an instruction at
    /// this address.
    #[cold]
    pub fn target_of(&self, index: u32) -> u64 {
        self.code_start.wrapping_add(isa::distance_of(index))
    }

    /// The index of the instruction at `address`; an index beyond any program if there is none.
    #[inline(always)]
    pub fn index_of(&self, address: u64) -> u32 {
        let distance = address.wrapping_sub(self.code_start);
        if !distance.is_multiple_of(WORD) {
            return u32::MAX;
        }
        u32::try_from(distance / WORD).unwrap_or(u32::MAX)
    }

    /// The address just above the stack, with which register sp begins.
    pub fn stack_top(&self) -> u64 {
        self.memory.start + self.memory.bytes.len() as u64
    }
}

/// The start of the first page and the end of the stack.
fn span(segments: &[&Segment]) -> Result<(u64, u64), Error> {
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return Err(Error::elf("it has nothing to load", "link it as an executable"));
    };
    for segment in segments {
        if segment.size_bytes > SPAN_BYTES_MAX
            || segment.address.checked_add(segment.size_bytes).is_none()
        {
            return Err(Error::elf(
                format!("a segment of {} bytes at {:#x}", segment.size_bytes, segment.address),
                format!("a program may span {SPAN_BYTES_MAX} bytes: make its arrays smaller"),
            ));
        }
    }
    for pair in segments.windows(2) {
        if pair[0].address + pair[0].size_bytes > pair[1].address {
            return Err(Error::elf(
                format!("segments overlap at {:#x}", pair[1].address),
                "link it anew: each address belongs to one segment",
            ));
        }
    }
    let start = first.address / PAGE * PAGE;
    let top = (last.address + last.size_bytes).checked_next_multiple_of(PAGE);
    let end = top.and_then(|top| top.checked_add(PAGE + STACK_BYTES));
    match end {
        Some(end) if end - start <= SPAN_BYTES_MAX => Ok((start, end)),
        _ => Err(Error::elf(
            format!("it spans from {start:#x} to {:#x}", last.address + last.size_bytes),
            format!("a program may span {SPAN_BYTES_MAX} bytes, {STACK_BYTES} of stack included"),
        )),
    }
}

/// The first address of the executable segments and the end of the last.
fn code_span(segments: &[&Segment]) -> Result<(u64, u64), Error> {
    let mut code = segments.iter().filter(|segment| segment.is_executable);
    let Some(first) = code.next() else {
        return Err(Error::elf("it has no executable segment", "link it as an executable"));
    };
    let last = code.next_back().unwrap_or(first);
    let (start, end) = (first.address / WORD * WORD, last.address + last.size_bytes);
    if end - start > CODE_BYTES_MAX {
        return Err(Error::elf(
            format!("its code spans {} bytes", end - start),
            format!("code may span {CODE_BYTES_MAX} bytes"),
        ));
    }
    Ok((start, end))
}

/// The result of decoding.
struct Code {
    start: u64,
    instructions: Vec<Instruction>,
}

impl Memory {
    /// `N` bytes at `address`; `None` if one of their pages is not readable.
    #[inline(always)]
    pub fn load<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let place = self.place_of(address, N, READ)?;
        self.bytes.get(place..place + N).and_then(|bytes| bytes.try_into().ok())
    }

    /// Writes `value` to `address`; `None` if one of its pages is not writable.
    #[inline(always)]
    pub fn store<const N: usize>(&mut self, address: u64, value: [u8; N]) -> Option<()> {
        let place = self.place_of(address, N, WRITE)?;
        self.bytes.get_mut(place..place + N)?.copy_from_slice(&value);
        Some(())
    }

    /// The `bytes` bytes at `address`; `None` if one of their pages is not readable.
    pub fn read(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let place = self.range(address, bytes, READ)?;
        self.bytes.get(place)
    }

    /// Writes `bytes` to `address`; `None` if one of their pages is not writable.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Option<()> {
        let place = self.range(address, bytes.len() as u64, WRITE)?;
        self.bytes[place].copy_from_slice(bytes);
        Some(())
    }

    /// The effect of `ecpy` on memory.
    ///
    /// # Errors
    /// [`Error::Unmapped`] names the side that is inaccessible, [`Error::CopyOverlaps`] two ranges
    /// that overlap; `at` is the instruction's address.
    pub fn copy(&mut self, at: u64, source: u64, target: u64, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let unmapped = |address, access| Error::Unmapped { at, address, bytes, access };
        let from = self.range(source, bytes, READ).ok_or(unmapped(source, Access::CopySource))?;
        let to = self.range(target, bytes, WRITE).ok_or(unmapped(target, Access::CopyTarget))?;
        if source.abs_diff(target) < bytes {
            return Err(Error::CopyOverlaps { at, source_address: source, target, bytes });
        }
        self.bytes.copy_within(from, to.start);
        Ok(())
    }

    /// The offset of `bytes` at `address` if all their pages have `permission`. An access inside
    /// one page needs only one check.
    #[inline(always)]
    fn place_of(&self, address: u64, bytes: usize, permission: u8) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        let page = *self.pages.get((offset / PAGE) as usize)?;
        if page & permission == 0 {
            return None;
        }
        if offset % PAGE > PAGE - bytes as u64 {
            return self.range(address, bytes as u64, permission).map(|range| range.start);
        }
        Some(offset as usize)
    }

    #[cold]
    fn range(&self, address: u64, bytes: u64, permission: u8) -> Option<std::ops::Range<usize>> {
        let offset = address.wrapping_sub(self.start);
        let end = offset.checked_add(bytes)?;
        let pages = self.pages.get((offset / PAGE) as usize..end.div_ceil(PAGE) as usize)?;
        pages.iter().all(|page| page & permission != 0).then_some(offset as usize..end as usize)
    }

    fn place(&mut self, segment: &Segment) {
        let offset = (segment.address - self.start) as usize;
        self.bytes[offset..offset + segment.bytes.len()].copy_from_slice(&segment.bytes);
        let permissions = if segment.is_readable { READ } else { 0 }
            | if segment.is_writable { WRITE } else { 0 }
            | if segment.is_executable { EXECUTE } else { 0 };
        self.permit(segment.address, segment.size_bytes, permissions);
    }

    fn permit(&mut self, address: u64, bytes: u64, permissions: u8) {
        let first = (address - self.start) / PAGE;
        let end = (address + bytes - self.start).div_ceil(PAGE);
        for page in &mut self.pages[first as usize..end as usize] {
            *page |= permissions;
        }
    }

    fn decode(&self, start: u64, end: u64) -> Code {
        let words = (end - start) / WORD;
        let instructions = (0..words)
            .map(|index| {
                let address = start + index * WORD;
                let offset = (address - self.start) as usize;
                if self.pages[offset / PAGE as usize] & EXECUTE == 0 {
                    return UNMAPPED;
                }
                let bytes = self.bytes[offset..offset + WORD as usize].try_into();
                isa::decode(u32::from_le_bytes(bytes.unwrap_or_default()), address, start)
            })
            .collect();
        Code { start, instructions }
    }
}

/// The instruction on a page that is not executable.
pub const UNMAPPED: Instruction = Instruction {
    operation: Operation::Unmapped,
    rd: SINK,
    rs1: 0,
    rs2: 0,
    target: 0,
    immediate: 0,
};

#[cfg(test)]
mod tests;
