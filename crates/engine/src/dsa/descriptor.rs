//! The 64 bytes of a descriptor, which a program writes and a device reads.
//!
//! | byte | field |
//! |---|---|
//! | 0 | PASID (20 bits), reserved (11), privilege (1); the kernel or ENQCMD sets them |
//! | 4 | flags (24 bits), operation (8) |
//! | 8 | address of the completion record |
//! | 16 | source; pattern of a fill; list of a batch |
//! | 24 | target; second source of a compare |
//! | 32 | size in bytes; number of descriptors of a batch |
//! | 36 | interrupt handle, reserved |
//! | 40 | by operation: seed of a CRC (4 bytes), address of a seed (at 48), expected result (1 byte) |
//!
//! Source: Intel DSA Architecture Specification, "Descriptor"; Linux `include/uapi/linux/idxd.h`.

use core::fmt;

/// The size of a descriptor, in bytes.
pub const DESCRIPTOR_BYTES: usize = 64;

/// The operations that haul or its fake knows, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Nothing; only the record is written.
    Noop = 0x00,
    /// A list of descriptors.
    Batch = 0x01,
    /// Completes after earlier descriptors of this client.
    Drain = 0x02,
    /// Copies; source and target may overlap.
    Copy = 0x03,
    /// Fills with a pattern of 8 bytes.
    Fill = 0x04,
    /// Compares two buffers.
    Compare = 0x05,
    /// Compares a buffer with a pattern of 8 bytes.
    ComparePattern = 0x06,
    /// Copies to two targets.
    Dualcast = 0x09,
    /// Computes a CRC-32C.
    Crc = 0x10,
    /// Copies and computes a CRC-32C.
    CopyCrc = 0x11,
    /// Writes the caches of a range back to memory.
    Flush = 0x20,
}

impl Opcode {
    /// The operations in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Noop,
        Self::Batch,
        Self::Drain,
        Self::Copy,
        Self::Fill,
        Self::Compare,
        Self::ComparePattern,
        Self::Dualcast,
        Self::Crc,
        Self::CopyCrc,
        Self::Flush,
    ];

    /// The operation with a number; `None` if haul does not know it.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|opcode| *opcode as u8 == number)
    }
}

/// The flags of a descriptor.
pub mod flag {
    /// A batch waits here for its earlier descriptors.
    pub const FENCE: u32 = 0x0001;
    /// The device waits for the kernel to resolve a page fault.
    pub const BLOCK_ON_FAULT: u32 = 0x0002;
    /// The address of the completion record is valid.
    pub const RECORD_VALID: u32 = 0x0004;
    /// The device writes a completion record on success too.
    pub const RECORD_REQUESTED: u32 = 0x0008;
    /// The device raises an interrupt.
    pub const INTERRUPT: u32 = 0x0010;
    /// The expected result of the operation is checked.
    pub const CHECK_RESULT: u32 = 0x0080;
    /// Writes go to the last-level cache; without it, to memory. Only for operations with a target.
    pub const CACHE_CONTROL: u32 = 0x0100;
    /// The seed of a CRC is read from memory.
    pub const CRC_SEED_ADDRESS: u32 = 0x0001_0000;
}

/// Where the device puts the bytes that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In memory; the caches lose the line.
    #[default]
    Memory,
    /// In the last-level cache, for a reader that follows at once.
    Cache,
}

/// A descriptor in the layout of the device.
///
/// ```
/// use haul_engine::dsa::{Descriptor, Opcode, Placement};
///
/// let descriptor = Descriptor::copy(0x1000, 0x2000, 4096)
///     .record(0x3000)
///     .placement(Placement::Cache)
///     .block_on_fault(true);
/// assert_eq!(descriptor.opcode(), Some(Opcode::Copy));
/// assert_eq!(descriptor.bytes()[7], 3);
/// assert_eq!(descriptor.source(), 0x1000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Descriptor {
    bytes: [u8; DESCRIPTOR_BYTES],
}

const _: () = assert!(size_of::<Descriptor>() == 64 && align_of::<Descriptor>() == 64);

/// The first byte of each field.
mod at {
    pub(super) const FIRST: usize = 0;
    pub(super) const FLAGS: usize = 4;
    pub(super) const RECORD: usize = 8;
    pub(super) const SOURCE: usize = 16;
    pub(super) const TARGET: usize = 24;
    pub(super) const SIZE: usize = 32;
    pub(super) const RESERVED: usize = 38;
    pub(super) const SPECIFIC: usize = 40;
    pub(super) const SEED_ADDRESS: usize = 48;
}

impl Descriptor {
    /// Copies `size` bytes; the ranges may overlap.
    #[must_use]
    pub fn copy(source: u64, target: u64, size: u32) -> Self {
        Self::new(Opcode::Copy, source, target, size)
    }

    /// Fills `size` bytes with repetitions of `pattern`, in the byte order of the processor.
    #[must_use]
    pub fn fill(pattern: u64, target: u64, size: u32) -> Self {
        Self::new(Opcode::Fill, pattern, target, size)
    }

    /// Compares two ranges of `size` bytes. The record's result is 1 if they differ, and its byte
    /// count the place of the first difference.
    #[must_use]
    pub fn compare(first: u64, second: u64, size: u32) -> Self {
        Self::new(Opcode::Compare, first, second, size)
    }

    /// Computes the CRC-32C of `size` bytes, continued from `seed`.
    #[must_use]
    pub fn crc(source: u64, size: u32, seed: u32) -> Self {
        Self::new(Opcode::Crc, source, 0, size).u32_at(at::SPECIFIC, seed)
    }

    /// Copies `size` bytes and computes their CRC-32C, continued from `seed`. The ranges must not
    /// overlap.
    #[must_use]
    pub fn copy_crc(source: u64, target: u64, size: u32, seed: u32) -> Self {
        Self::new(Opcode::CopyCrc, source, target, size).u32_at(at::SPECIFIC, seed)
    }

    /// Executes `count` descriptors at `list`, which is aligned to 64 bytes.
    #[must_use]
    pub fn batch(list: u64, count: u32) -> Self {
        Self::new(Opcode::Batch, list, 0, count)
    }

    /// Does nothing but complete.
    #[must_use]
    pub fn noop() -> Self {
        Self::new(Opcode::Noop, 0, 0, 0)
    }

    /// A descriptor with any operation, for tests of a device.
    #[must_use]
    pub fn from_bytes(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        Self { bytes }
    }

    /// The same with a completion record at `address`, which is aligned to 32 bytes.
    #[must_use]
    pub fn record(self, address: u64) -> Self {
        self.u64_at(at::RECORD, address).flags_set(flag::RECORD_VALID | flag::RECORD_REQUESTED)
    }

    /// The same with a hint about the bytes that it writes.
    #[must_use]
    pub fn placement(self, placement: Placement) -> Self {
        match placement {
            Placement::Memory => self.flags_cleared(flag::CACHE_CONTROL),
            Placement::Cache => self.flags_set(flag::CACHE_CONTROL),
        }
    }

    /// The same with or without a wait of the device for page faults.
    #[must_use]
    pub fn block_on_fault(self, blocks: bool) -> Self {
        match blocks {
            true => self.flags_set(flag::BLOCK_ON_FAULT),
            false => self.flags_cleared(flag::BLOCK_ON_FAULT),
        }
    }

    /// The same with a fence, which orders the descriptors of a batch.
    #[must_use]
    pub fn fence(self) -> Self {
        self.flags_set(flag::FENCE)
    }

    /// The bytes as the device reads them.
    #[must_use]
    pub fn bytes(&self) -> &[u8; DESCRIPTOR_BYTES] {
        &self.bytes
    }

    /// The operation; `None` if haul does not know its number.
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::of(self.opcode_number())
    }

    /// The number of the operation.
    #[must_use]
    pub fn opcode_number(&self) -> u8 {
        self.bytes[at::FLAGS + 3]
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.read_u32(at::FLAGS) & 0x00ff_ffff
    }

    /// The address of the completion record.
    #[must_use]
    pub fn record_address(&self) -> u64 {
        self.read_u64(at::RECORD)
    }

    /// The source, the pattern of a fill, or the list of a batch.
    #[must_use]
    pub fn source(&self) -> u64 {
        self.read_u64(at::SOURCE)
    }

    /// The target, or the second source of a compare.
    #[must_use]
    pub fn target(&self) -> u64 {
        self.read_u64(at::TARGET)
    }

    /// The size in bytes, or the number of descriptors of a batch.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.read_u32(at::SIZE)
    }

    /// The seed of a CRC.
    #[must_use]
    pub fn seed(&self) -> u32 {
        self.read_u32(at::SPECIFIC)
    }

    /// The address of a CRC's seed, used with [`flag::CRC_SEED_ADDRESS`].
    #[must_use]
    pub fn seed_address(&self) -> u64 {
        self.read_u64(at::SEED_ADDRESS)
    }

    /// The expected result, used with [`flag::CHECK_RESULT`].
    #[must_use]
    pub fn expected_result(&self) -> u8 {
        self.bytes[at::SPECIFIC]
    }

    /// The second target of a dualcast.
    #[must_use]
    pub fn second_target(&self) -> u64 {
        self.read_u64(at::SPECIFIC)
    }

    /// Whether the descriptor asks for the privileges of the kernel.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.read_u32(at::FIRST) >> 31 == 1
    }

    /// Whether a reserved field before the fields of the operation is not zero.
    #[must_use]
    pub fn has_reserved_bits(&self) -> bool {
        self.read_u32(at::FIRST) >> 20 & 0x7ff != 0
            || self.bytes[at::RESERVED..at::SPECIFIC] != [0; 2]
    }

    fn new(opcode: Opcode, source: u64, target: u64, size: u32) -> Self {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[at::FLAGS + 3] = opcode as u8;
        Self { bytes }.u64_at(at::SOURCE, source).u64_at(at::TARGET, target).u32_at(at::SIZE, size)
    }

    fn flags_set(self, flags: u32) -> Self {
        let word = self.read_u32(at::FLAGS);
        self.u32_at(at::FLAGS, word | flags)
    }

    fn flags_cleared(self, flags: u32) -> Self {
        let word = self.read_u32(at::FLAGS);
        self.u32_at(at::FLAGS, word & !flags)
    }

    fn u32_at(mut self, at: usize, value: u32) -> Self {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn u64_at(mut self, at: usize, value: u64) -> Self {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn read_u32(&self, at: usize) -> u32 {
        let mut field = [0; 4];
        field.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(field)
    }

    fn read_u64(&self, at: usize) -> u64 {
        let mut field = [0; 8];
        field.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_le_bytes(field)
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("opcode", &format_args!("{:#04x}", self.opcode_number()))
            .field("flags", &format_args!("{:#x}", self.flags()))
            .field("record", &format_args!("{:#x}", self.record_address()))
            .field("source", &format_args!("{:#x}", self.source()))
            .field("target", &format_args!("{:#x}", self.target()))
            .field("size", &self.size())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the specification's layout, written out once by hand.
    #[test]
    fn copy_has_the_layout_of_the_specification() {
        let descriptor =
            Descriptor::copy(0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00, 0x0102_0304)
                .record(0xa0)
                .placement(Placement::Cache)
                .block_on_fault(true);
        let mut expected = [0u8; 64];
        // Fence 1, block on fault 2, record valid 4, record requested 8, cache control 0x100.
        expected[4..8].copy_from_slice(&[0x0e, 0x01, 0x00, 0x03]);
        expected[8] = 0xa0;
        expected[16..24].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        expected[24..32].copy_from_slice(&[0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99]);
        expected[32..36].copy_from_slice(&[0x04, 0x03, 0x02, 0x01]);
        assert_eq!(descriptor.bytes(), &expected);
    }

    #[test]
    fn fields_are_read_as_they_were_written() {
        let crc = Descriptor::copy_crc(1, 2, 3, 0xdead_beef).fence();
        assert_eq!((crc.source(), crc.target(), crc.size()), (1, 2, 3));
        assert_eq!((crc.seed(), crc.flags()), (0xdead_beef, flag::FENCE));
        assert_eq!(crc.opcode(), Some(Opcode::CopyCrc));
        let batch = Descriptor::batch(0x40, 7).record(0x20);
        assert_eq!((batch.source(), batch.size(), batch.record_address()), (0x40, 7, 0x20));
        let cleared = batch.block_on_fault(true).block_on_fault(false).placement(Placement::Memory);
        assert_eq!(cleared, batch);
    }

    #[test]
    fn unknown_operations_have_no_name() {
        for number in 0..=u8::MAX {
            let mut bytes = [0; DESCRIPTOR_BYTES];
            bytes[7] = number;
            let descriptor = Descriptor::from_bytes(bytes);
            assert_eq!(descriptor.opcode_number(), number);
            assert_eq!(
                descriptor.opcode().map(|opcode| opcode as u8),
                Opcode::of(number).map(|_| number)
            );
        }
        assert_eq!(Opcode::of(0x7f), None);
    }
}
