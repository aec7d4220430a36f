//! The operations of the contract as descriptors, and completions as their values.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use haul_copy::Hint;

use crate::dsa::completion::Completion;
use crate::dsa::descriptor::{Descriptor, Opcode, Placement};
use crate::dsa::memory;
use crate::dsa::sysfs::Queue;
use crate::operation::{Operation, Pair, Region, Request, Verb, list};
use crate::outcome::{Access, Refusal, Value};

/// How much of an operation is done, as the slot's word keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) bytes: usize,
    pub(super) resumes: u64,
    /// The CRC of these bytes, which is not in the word.
    pub(super) crc: u32,
}

impl Done {
    pub(super) fn of(word: u64) -> Self {
        Self { bytes: (word >> 16) as usize, resumes: word >> 8 & 0xff, crc: 0 }
    }

    pub(super) fn word(self, state: u64) -> u64 {
        (self.bytes as u64) << 16 | self.resumes << 8 | state
    }
}

/// The operations, and what the device calls them.
pub(super) const VERBS: [(Verb, Opcode); 7] = [
    (Verb::Copy, Opcode::Copy),
    (Verb::Fill, Opcode::Fill),
    (Verb::Compare, Opcode::Compare),
    (Verb::Crc32c, Opcode::Crc),
    (Verb::CopyCrc32c, Opcode::CopyCrc),
    (Verb::Lists, Opcode::Batch),
    (Verb::Batch, Opcode::Batch),
];

/// The descriptor of an operation from byte `done` on; `None` for lists, and for ranges that the
/// 32 bits of a size cannot express.
fn describe(operation: &Operation, done: Done) -> Option<Descriptor> {
    let at = |address: usize| address.wrapping_add(done.bytes) as u64;
    let size = |length: usize| u32::try_from(length - done.bytes).ok();
    Some(match *operation {
        Operation::Copy { target, source, length } => {
            Descriptor::copy(at(source.addr()), at(target.addr()), size(length)?)
        }
        Operation::Fill { target, byte, length } => {
            Descriptor::fill(u64::from_ne_bytes([byte; 8]), at(target.addr()), size(length)?)
        }
        Operation::Compare { left, right, length } => {
            Descriptor::compare(at(left.addr()), at(right.addr()), size(length)?)
        }
        Operation::Crc32c { source, length, .. } => {
            Descriptor::crc(at(source.addr()), size(length)?, done.crc)
        }
        Operation::CopyCrc32c { target, source, length, .. } => {
            Descriptor::copy_crc(at(source.addr()), at(target.addr()), size(length)?, done.crc)
        }
        Operation::Lists { .. } | Operation::Batch { .. } => return None,
    })
}

/// Where the device puts the target, by what the caller knows about its next reader. The device
/// refuses the hint for an operation without a target.
fn placement(request: &Request) -> Placement {
    match (request.operation.verb(), request.hint) {
        (Verb::Compare | Verb::Crc32c, _) | (_, Hint::Streamed) => Placement::Memory,
        _ => Placement::Cache,
    }
}

pub(super) fn has_crc(operation: &Operation) -> bool {
    matches!(operation, Operation::Crc32c { .. } | Operation::CopyCrc32c { .. })
}

/// Whether the rest of an operation can be submitted from a byte on. A list has no such byte, and
/// the CRC of the first bytes is not in the slot's word.
pub(super) fn can_resume(operation: &Operation) -> bool {
    !has_crc(operation) && !matches!(operation, Operation::Lists { .. } | Operation::Batch { .. })
}

/// What an operation computed.
pub(super) fn value(operation: &Operation, before: Done, completion: &Completion) -> Value {
    match operation {
        _ if has_crc(operation) => Value::Crc32c(completion.crc),
        Operation::Compare { .. } if completion.result == 0 => Value::Difference(None),
        Operation::Compare { .. } => {
            Value::Difference(Some(before.bytes + completion.completed as usize))
        }
        _ => Value::Written,
    }
}

/// Makes the page at an address resident, as an access of the CPU would. Returns false if it is
/// not mapped, or may not be accessed so.
///
/// # Safety
/// The operation is pending, and `bytes_done` of its bytes are done.
pub(super) unsafe fn touch(
    operation: &Operation,
    bytes_done: usize,
    address: u64,
    access: Access,
) -> bool {
    let mut byte = [0];
    if access == Access::Read {
        return memory::read(address, &mut byte).is_ok();
    }
    let Some(address) = within_target(operation, bytes_done, address) else { return false };
    // SAFETY: the address is within the target of a pending operation, which nothing else accesses.
    memory::read(address, &mut byte).is_ok() && unsafe { memory::write(address, &byte) }.is_ok()
}

/// The address that is closest to `address` among those of the target that are not done. A device
/// may report the beginning of the page, where other data of the program lies. `None` without a
/// target.
fn within_target(operation: &Operation, bytes_done: usize, address: u64) -> Option<u64> {
    let (target, length) = match *operation {
        Operation::Copy { target, length, .. }
        | Operation::Fill { target, length, .. }
        | Operation::CopyCrc32c { target, length, .. } => (target.addr() as u64, length as u64),
        Operation::Compare { .. }
        | Operation::Crc32c { .. }
        | Operation::Lists { .. }
        | Operation::Batch { .. } => return None,
    };
    let (first, end) = (target.checked_add(bytes_done as u64)?, target.checked_add(length)?);
    (first < end).then(|| address.clamp(first, end - 1))
}

/// The device's batches of pending operations with lists, one place for each slot. A batch must
/// stay where it is until the device has read it.
#[derive(Debug)]
pub(super) struct Batches {
    places: Box<[AtomicPtr<Batch>]>,
    /// The descriptors of a batch at most.
    count_max: usize,
    /// The bytes of a descriptor at most.
    bytes_max: usize,
}

type Batch = Vec<Descriptor>;

impl Batches {
    pub(super) fn new(slots: usize, queue: &Queue) -> Self {
        Self {
            places: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            count_max: queue.batch_max as usize,
            bytes_max: usize::try_from(queue.transfer_bytes_max).unwrap_or(usize::MAX),
        }
    }

    /// The descriptor of a request from byte `done` on, without its record.
    ///
    /// # Errors
    /// The device cannot express it: it has too many pieces, or is too long.
    ///
    /// # Safety
    /// The lists of the operation must be readable, and no other thread may use the slot.
    pub(super) unsafe fn describe(
        &self,
        slot: usize,
        request: &Request,
        done: Done,
        block_on_fault: bool,
    ) -> Result<Descriptor, Refusal> {
        let placement = placement(request);
        let whole =
            |descriptor: Descriptor| descriptor.placement(placement).block_on_fault(block_on_fault);
        let mut batch = match request.operation {
            Operation::Lists { targets, target_count, sources, source_count } => {
                // SAFETY: the caller promises that the list is readable.
                let sources = unsafe { list(sources, source_count) };
                // SAFETY: as above.
                self.pieces(sources, unsafe { list(targets, target_count) })?
            }
            // SAFETY: as above.
            Operation::Batch { pairs, count } => self.copies(unsafe { list(pairs, count) })?,
            _ => return describe(&request.operation, done).map(whole).ok_or(Refusal::TooLong),
        };
        batch.iter_mut().for_each(|piece| *piece = whole(*piece));
        if let [single] = batch[..] {
            return Ok(single);
        }
        let batch = Box::new(batch);
        let descriptor = Descriptor::batch(batch.as_ptr().addr() as u64, batch.len() as u32);
        self.forget(slot);
        self.places[slot].store(Box::into_raw(batch), Ordering::Release);
        Ok(descriptor)
    }

    /// Frees the batch of a slot, which the device does not read any more.
    pub(super) fn forget(&self, slot: usize) {
        let batch = self.places[slot].swap(ptr::null_mut(), Ordering::AcqRel);
        if !batch.is_null() {
            // SAFETY: the pointer comes from Box::into_raw in `describe`, and the exchange gave it
            // to this thread alone.
            drop(unsafe { Box::from_raw(batch) });
        }
    }

    /// A copy for each pair, or several for a long one.
    fn copies(&self, pairs: &[Pair]) -> Result<Batch, Refusal> {
        let mut batch = Vec::new();
        for pair in pairs {
            let mut done = 0;
            while done < pair.length {
                if batch.len() == self.count_max {
                    return Err(Refusal::TooLong);
                }
                let length = (pair.length - done).min(self.bytes_max);
                let size = u32::try_from(length).map_err(|_| Refusal::TooLong)?;
                let at = |start: usize| start.wrapping_add(done) as u64;
                batch.push(Descriptor::copy(at(pair.source.addr()), at(pair.target.addr()), size));
                done += length;
            }
        }
        Ok(batch)
    }

    /// A copy for each piece that is contiguous on both sides.
    fn pieces(&self, sources: &[Region], targets: &[Region]) -> Result<Batch, Refusal> {
        let mut batch = Vec::new();
        let (mut from, mut to) = (Ranges::new(sources), Ranges::new(targets));
        while let (Some((source, left)), Some((target, right))) = (from.next(), to.next()) {
            if batch.len() == self.count_max {
                return Err(Refusal::TooLong);
            }
            let length = left.min(right).min(self.bytes_max);
            let size = u32::try_from(length).map_err(|_| Refusal::TooLong)?;
            batch.push(Descriptor::copy(source as u64, target as u64, size));
            from.take(length);
            to.take(length);
        }
        match (from.next(), to.next()) {
            (None, None) if !batch.is_empty() => Ok(batch),
            _ => Err(Refusal::BadRange),
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        (0..self.places.len()).for_each(|slot| self.forget(slot));
    }
}

/// The bytes of a list that are not taken yet.
struct Ranges<'a> {
    regions: std::slice::Iter<'a, Region>,
    start: usize,
    length: usize,
}

impl<'a> Ranges<'a> {
    fn new(regions: &'a [Region]) -> Self {
        Self { regions: regions.iter(), start: 0, length: 0 }
    }

    /// The address of the next byte, and how many follow it in its region; `None` at the end.
    fn next(&mut self) -> Option<(usize, usize)> {
        while self.length == 0 {
            let region = self.regions.next()?;
            (self.start, self.length) = (region.start.addr(), region.length);
        }
        Some((self.start, self.length))
    }

    fn take(&mut self, length: usize) {
        self.start = self.start.wrapping_add(length);
        self.length -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_that_is_touched_lies_in_the_rest_of_the_target() {
        let target = std::ptr::without_provenance_mut(0x1_0100);
        let fill = Operation::Fill { target, byte: 0, length: 0x2000 };
        let touched = |done, address| within_target(&fill, done, address);
        assert_eq!(touched(0, 0x1_0000), Some(0x1_0100));
        assert_eq!(touched(0x1000, 0x1_1000), Some(0x1_1100));
        assert_eq!(touched(0x1000, 0x1_2000), Some(0x1_2000));
        assert_eq!(touched(0x1000, u64::MAX), Some(0x1_20ff));
        assert_eq!(touched(0x2000, 0x1_2000), None);
        let sum = Operation::Crc32c { source: target, length: 1, seed: 0 };
        assert_eq!(within_target(&sum, 0, 0x1_0100), None);
    }
}
