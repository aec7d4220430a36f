//! The 32 bytes of a completion record, which a device writes and a program polls.
//!
//! | byte | field |
//! |---|---|
//! | 0 | status: 7 bits, and 1 bit for a faulting write |
//! | 1 | result: of a compare; 1 if a copy with overlap ran from its end |
//! | 2 | fault information, reserved |
//! | 4 | bytes completed; descriptors completed of a batch |
//! | 8 | faulting address |
//! | 16 | CRC-32C; first invalid flags |
//!
//! Source: Intel DSA Architecture Specification, "Completion Record"; Linux
//! `include/uapi/linux/idxd.h`.

use core::sync::atomic::{AtomicU64, Ordering};

use super::status::Status;
use crate::outcome::Access;

/// The size and the alignment of a completion record, in bytes.
pub const RECORD_BYTES: usize = 32;

/// A completion record in the layout of the device, in memory that the device writes.
///
/// The device writes the record once. The status is in the first byte, and the kernel, where it
/// writes a record instead of the device, writes this byte last. Hence a status that is not zero
/// makes the whole record valid.
///
/// ```
/// use haul_engine::dsa::Record;
///
/// let record = Record::new();
/// assert_eq!(record.poll(), None);
/// assert_eq!(record.address() % 32, 0);
/// ```
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Record {
    words: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES && align_of::<Record>() == 32);

/// What a completion record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The status.
    pub status: Status,
    /// The access that failed, if one did.
    pub access: Access,
    /// The result of a compare (1: different), or the direction of a copy (1: from its end).
    pub result: u8,
    /// The bytes, or the descriptors of a batch, that completed.
    pub completed: u32,
    /// The address that faulted.
    pub fault_address: u64,
    /// The CRC-32C.
    pub crc: u32,
}

impl Record {
    /// A record that no device has written.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; 4] }
    }

    /// The address for a descriptor.
    #[must_use]
    pub fn address(&self) -> u64 {
        core::ptr::from_ref(self).addr() as u64
    }

    /// Clears the record, before its descriptor is submitted.
    pub fn reset(&self) {
        // SYNC: record written. The instruction that submits is preceded by a store fence.
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// What the device has written; `None` while it has not.
    #[must_use]
    pub fn poll(&self) -> Option<Completion> {
        // SYNC: record written. The acquire orders the bytes that the device copied.
        let first = self.words[0].load(Ordering::Acquire);
        if first.to_le_bytes()[0] == 0 {
            return None;
        }
        let word = |index: usize| self.words[index].load(Ordering::Relaxed).to_le_bytes();
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        for index in 1..4 {
            bytes[8 * index..8 * index + 8].copy_from_slice(&word(index));
        }
        Some(Completion::from_bytes(&bytes))
    }
}

impl Completion {
    /// A completion without a fault.
    #[must_use]
    pub fn of(status: Status, completed: u32) -> Self {
        Self { status, access: Access::Read, result: 0, completed, fault_address: 0, crc: 0 }
    }

    /// Decodes a record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let (status, access) = Status::of(bytes[0]);
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
        };
        Self {
            status,
            access,
            result: bytes[1],
            completed: number(4, 4) as u32,
            fault_address: number(8, 8),
            crc: number(16, 4) as u32,
        }
    }

    /// Encodes a record as a device writes it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = self.status.byte(self.access);
        bytes[1] = self.result;
        // Fault information, bit 0: the faulting address is valid.
        bytes[2] = u8::from(self.fault_address != 0);
        bytes[4..8].copy_from_slice(&self.completed.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fault_address.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(record: &Record, bytes: &[u8; RECORD_BYTES]) {
        for (word, chunk) in record.words.iter().zip(bytes.chunks_exact(8)) {
            let value = chunk.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            word.store(value, Ordering::Release);
        }
    }

    #[test]
    fn record_is_pending_until_its_status_is_written() {
        let record = Record::new();
        let mut bytes = [0xff; RECORD_BYTES];
        bytes[0] = 0;
        write(&record, &bytes);
        assert_eq!(record.poll(), None);
        bytes[0] = 1;
        write(&record, &bytes);
        assert_eq!(record.poll().map(|completion| completion.status), Some(Status::Success));
        record.reset();
        assert_eq!(record.poll(), None);
    }

    #[test]
    fn fault_has_the_layout_of_the_specification() {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = 0x83;
        bytes[1] = 1;
        bytes[2] = 1;
        bytes[4..8].copy_from_slice(&[0x00, 0x10, 0x00, 0x00]);
        bytes[8..16].copy_from_slice(&[0x00, 0xf0, 0xff, 0x12, 0, 0, 0, 0]);
        bytes[16..20].copy_from_slice(&[4, 3, 2, 1]);
        let fault = Completion {
            status: Status::PageFault,
            access: Access::Write,
            result: 1,
            completed: 0x1000,
            fault_address: 0x12ff_f000,
            crc: 0x0102_0304,
        };
        assert_eq!(Completion::from_bytes(&bytes), fault);
        assert_eq!(fault.to_bytes(), bytes);
    }
}
