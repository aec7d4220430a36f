//! Executes one descriptor as the device does, on the memory of this process.

use rustix::io::Errno;

use super::settings::QueueSettings;
use crate::crc::crc32c;
use crate::dsa::completion::{Completion, RECORD_BYTES};
use crate::dsa::descriptor::{Descriptor, Opcode, flag};
use crate::dsa::memory::{self, CopyFailure, Direction, Failure};
use crate::dsa::status::Status;
use crate::dsa::sysfs::Operations;
use crate::outcome::Access;

/// The bytes that a fill, a compare or a CRC handles at once: a multiple of a pattern.
const PIECE_BYTES: u64 = 4096;

/// The page of which residence is known.
const PAGE_BYTES: u64 = 4096;

/// The limits of a queue, and whether pages that are not resident fault.
pub(super) struct Limits<'a> {
    pub(super) queue: &'a QueueSettings,
    pub(super) operations: Operations,
    pub(super) is_strict: bool,
}

/// A page fault that is injected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) byte: u32,
    pub(super) access: Access,
}

/// Executes a descriptor other than a batch, and returns its completion.
pub(super) fn execute(
    descriptor: &Descriptor,
    limits: &Limits<'_>,
    planned: Option<Planned>,
) -> Completion {
    if let Err(status) = check(descriptor, limits) {
        return Completion::of(status, 0);
    }
    let run = Run { descriptor, limits, planned };
    match descriptor.opcode() {
        Some(Opcode::Copy) => run.copy(descriptor.target()),
        Some(Opcode::Dualcast) => run.dualcast(),
        Some(Opcode::Fill) => run.fill(),
        Some(Opcode::Compare | Opcode::ComparePattern) => run.compare(),
        Some(Opcode::Crc | Opcode::CopyCrc) => run.crc(),
        _ => Completion::of(Status::Success, 0),
    }
}

/// Checks the fields of a descriptor in the order of the specification.
pub(super) fn check(descriptor: &Descriptor, limits: &Limits<'_>) -> Result<(), Status> {
    let opcode = descriptor.opcode().filter(|opcode| limits.operations.has(*opcode));
    let Some(opcode) = opcode else { return Err(Status::Opcode) };
    let flags = descriptor.flags();
    let blocks = flags & flag::BLOCK_ON_FAULT != 0 && !limits.queue.blocks_on_fault;
    let requests = flags & flag::RECORD_REQUESTED != 0 && flags & flag::RECORD_VALID == 0;
    if flags & !allowed(opcode) != 0 || blocks || requests {
        return Err(Status::Flags);
    }
    if descriptor.has_reserved_bits() {
        return Err(Status::Reserved);
    }
    if descriptor.is_privileged() {
        return Err(Status::Privilege);
    }
    let size = descriptor.size();
    match opcode {
        Opcode::Noop | Opcode::Drain => return Ok(()),
        Opcode::Batch if !(2..=limits.queue.batch_max).contains(&size) => {
            return Err(Status::Count);
        }
        Opcode::Batch if !descriptor.source().is_multiple_of(64) => {
            return Err(Status::ListAlignment);
        }
        Opcode::Batch => return Ok(()),
        _ => {}
    }
    if size == 0 || size > limits.queue.transfer_bytes_max {
        return Err(Status::Size);
    }
    let (source, target) = (descriptor.source(), descriptor.target());
    let overlap = |a: u64, b: u64| a.abs_diff(b) < u64::from(size);
    match opcode {
        Opcode::CopyCrc if overlap(source, target) => Err(Status::Overlap),
        Opcode::Dualcast if !(target ^ descriptor.second_target()).is_multiple_of(4096) => {
            Err(Status::Dualcast)
        }
        Opcode::Dualcast
            if overlap(source, target)
                || overlap(source, descriptor.second_target())
                || overlap(target, descriptor.second_target()) =>
        {
            Err(Status::Overlap)
        }
        _ => Ok(()),
    }
}

/// The flags of an operation. The device refuses a hint for what writes no target, an expected
/// result of what has none, and the address of a seed for what is no CRC.
fn allowed(opcode: Opcode) -> u32 {
    const EVERY: u32 = flag::FENCE
        | flag::BLOCK_ON_FAULT
        | flag::RECORD_VALID
        | flag::RECORD_REQUESTED
        | flag::INTERRUPT;
    match opcode {
        Opcode::Noop | Opcode::Drain | Opcode::Batch => EVERY,
        Opcode::Compare | Opcode::ComparePattern => EVERY | flag::CHECK_RESULT,
        Opcode::Crc => EVERY | flag::CRC_SEED_ADDRESS,
        Opcode::CopyCrc => EVERY | flag::CACHE_CONTROL | flag::CRC_SEED_ADDRESS,
        Opcode::Copy | Opcode::Fill | Opcode::Dualcast | Opcode::Flush => {
            EVERY | flag::CACHE_CONTROL
        }
    }
}

/// Writes a completion record: its status byte last, as the kernel does.
///
/// # Errors
/// The record's page cannot be written.
pub(super) fn write_record(address: u64, completion: &Completion) -> Result<(), Failure> {
    let bytes: [u8; RECORD_BYTES] = completion.to_bytes();
    // SAFETY: the client submitted the address of a completion record, which it reads by atomics.
    unsafe { memory::write(address.wrapping_add(1), &bytes[1..])? };
    // SAFETY: as above.
    unsafe { memory::write(address, &bytes[..1]) }
}

/// The status of an access that memory refused.
fn failed(status: Status, access: Access, completed: u64, fault_address: u64) -> Completion {
    let completed = completed as u32;
    Completion { access, fault_address, ..Completion::of(status, completed) }
}

/// One operation.
struct Run<'a> {
    descriptor: &'a Descriptor,
    limits: &'a Limits<'a>,
    planned: Option<Planned>,
}

/// What ends an operation before its last byte.
struct Stop {
    access: Access,
    /// The bytes before it.
    done: u64,
    /// Whether the kernel refused the system call.
    is_refused: bool,
}

impl Run<'_> {
    fn size(&self) -> u64 {
        u64::from(self.descriptor.size())
    }

    /// The bytes that may be transferred before an injected fault.
    fn allowed(&self) -> u64 {
        self.planned.map_or(self.size(), |planned| self.size().min(u64::from(planned.byte)))
    }

    fn fault(&self, stop: &Stop, source: u64, target: u64) -> Completion {
        let base = if stop.access == Access::Read { source } else { target };
        // Block on fault waits for the kernel, which answers that the address is invalid.
        let blocks = self.descriptor.flags() & flag::BLOCK_ON_FAULT != 0;
        let status = match (stop.is_refused, blocks && self.planned.is_none()) {
            (true, _) => Status::Hardware,
            (false, true) => Status::PageFaultInvalid,
            (false, false) => Status::PageFault,
        };
        failed(status, stop.access, stop.done, base.wrapping_add(stop.done))
    }

    /// The bytes from `address` that are resident, if the device is strict and the descriptor does
    /// not block.
    fn resident(&self, address: u64, length: u64) -> u64 {
        if !self.limits.is_strict || self.descriptor.flags() & flag::BLOCK_ON_FAULT != 0 {
            return length;
        }
        let mut done = 0;
        while done < length {
            let at = address.wrapping_add(done);
            if !is_resident(at) {
                return done;
            }
            done += PAGE_BYTES - at % PAGE_BYTES;
        }
        length
    }

    /// Copies up to an injected fault.
    fn copy(&self, target: u64) -> Completion {
        let (source, size) = (self.descriptor.source(), self.size());
        let direction = Direction::of(source, target, size);
        let mut limit = self.allowed();
        let mut access = self.planned.map_or(Access::Read, |planned| planned.access);
        if direction == Direction::Forward {
            for (address, side) in [(source, Access::Read), (target, Access::Write)] {
                let resident = self.resident(address, limit);
                if resident < limit {
                    (limit, access) = (resident, side);
                }
            }
        }
        // From the end, the range that may be copied is the last `limit` bytes.
        let skipped = if direction == Direction::Backward { size - limit } else { 0 };
        let mut stop = Stop { access, done: 0, is_refused: false };
        while stop.done < limit {
            let (from, to) = (source.wrapping_add(skipped), target.wrapping_add(skipped));
            // SAFETY: the client submitted the target, to which it holds no reference meanwhile.
            match unsafe { memory::copy_piece(from, to, limit, stop.done, direction) } {
                Ok(more) => stop.done += more,
                Err(failure) => {
                    stop.access = match failure {
                        CopyFailure::Target => Access::Write,
                        _ => Access::Read,
                    };
                    stop.is_refused = matches!(failure, CopyFailure::Refused(_));
                    break;
                }
            }
        }
        if stop.done == size {
            return Completion::of(Status::Success, 0);
        }
        match direction {
            Direction::Forward => self.fault(&stop, source, target),
            Direction::Backward => {
                let back = |base: u64| base.wrapping_add(size - 1).wrapping_sub(2 * stop.done);
                let completion = self.fault(&stop, back(source), back(target));
                Completion { result: 1, ..completion }
            }
        }
    }

    fn dualcast(&self) -> Completion {
        let first = self.copy(self.descriptor.target());
        if first.status.is_success() { self.copy(self.descriptor.second_target()) } else { first }
    }

    fn fill(&self) -> Completion {
        let (pattern, target) = (self.descriptor.source().to_le_bytes(), self.descriptor.target());
        let bytes: Vec<u8> = pattern.into_iter().cycle().take(PIECE_BYTES as usize).collect();
        let limit = self.resident(target, self.allowed());
        let mut stop = Stop { access: Access::Write, done: 0, is_refused: false };
        while stop.done < limit {
            let piece = &bytes[..(limit - stop.done).min(PIECE_BYTES) as usize];
            // SAFETY: the client submitted the target, to which it holds no reference meanwhile.
            match unsafe { memory::write(target.wrapping_add(stop.done), piece) } {
                Ok(()) => stop.done += piece.len() as u64,
                Err(Failure::Fault { done }) => {
                    stop.done += done as u64;
                    break;
                }
                Err(Failure::Refused(_)) => {
                    stop.is_refused = true;
                    break;
                }
            }
        }
        if stop.done == self.size() {
            return Completion::of(Status::Success, 0);
        }
        self.fault(&stop, target, target)
    }

    /// Reads pieces up to an injected fault, and passes each to `use_piece` until it returns false.
    fn read_pieces(
        &self,
        address: u64,
        mut use_piece: impl FnMut(u64, &[u8]) -> bool,
    ) -> Option<Stop> {
        let limit = self.resident(address, self.allowed());
        let mut stop = Stop { access: Access::Read, done: 0, is_refused: false };
        let mut piece = [0u8; PIECE_BYTES as usize];
        while stop.done < limit {
            let piece = &mut piece[..(limit - stop.done).min(PIECE_BYTES) as usize];
            let (readable, failure) = match memory::read(address.wrapping_add(stop.done), piece) {
                Ok(()) => (piece.len(), None),
                Err(Failure::Fault { done }) => (done, Some(false)),
                Err(Failure::Refused(_)) => (0, Some(true)),
            };
            if !use_piece(stop.done, &piece[..readable]) {
                return None;
            }
            stop.done += readable as u64;
            if let Some(is_refused) = failure {
                return Some(Stop { is_refused, ..stop });
            }
        }
        (stop.done < self.size()).then_some(stop)
    }

    fn compare(&self) -> Completion {
        let (first, second) = (self.descriptor.source(), self.descriptor.target());
        let is_pattern = self.descriptor.opcode() == Some(Opcode::ComparePattern);
        let pattern = second.to_le_bytes();
        let (mut difference, mut unread) = (None, None);
        // A pattern is in place of the second source; the first is in the usual place.
        let stop = self.read_pieces(first, |offset, bytes| {
            let mut other = vec![0; bytes.len()];
            let mut length = bytes.len();
            if is_pattern {
                other.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, by)| *byte = *by);
            } else if let Err(failure) = memory::read(second.wrapping_add(offset), &mut other) {
                length = match failure {
                    Failure::Fault { done } => done,
                    Failure::Refused(_) => 0,
                };
                unread = Some(offset + length as u64);
            }
            let differs = bytes[..length].iter().zip(&other).position(|(a, b)| a != b);
            difference = differs.map(|at| offset + at as u64);
            difference.is_none() && unread.is_none()
        });
        match (difference, unread, stop) {
            (Some(at), ..) => self.result(1, at as u32),
            (None, Some(done), _) => {
                let stop = Stop { access: Access::Read, done, is_refused: false };
                self.fault(&stop, second, second)
            }
            (None, None, Some(stop)) => self.fault(&stop, first, first),
            (None, None, None) => self.result(0, 0),
        }
    }

    /// A result, compared with the expected one if the descriptor asks for it.
    fn result(&self, result: u8, completed: u32) -> Completion {
        let is_checked = self.descriptor.flags() & flag::CHECK_RESULT != 0;
        let status = match is_checked && result != self.descriptor.expected_result() {
            true => Status::SuccessPredicate,
            false => Status::Success,
        };
        Completion { result, ..Completion::of(status, completed) }
    }

    fn crc(&self) -> Completion {
        let mut seed = self.descriptor.seed();
        if self.descriptor.flags() & flag::CRC_SEED_ADDRESS != 0 {
            let (address, mut bytes) = (self.descriptor.seed_address(), [0; 4]);
            if memory::read(address, &mut bytes).is_err() {
                return failed(Status::PageFault, Access::Read, 0, address);
            }
            seed = u32::from_le_bytes(bytes);
        }
        let (source, target) = (self.descriptor.source(), self.descriptor.target());
        let copies = self.descriptor.opcode() == Some(Opcode::CopyCrc);
        let (mut crc, mut unwritten) = (seed, None);
        let stop = self.read_pieces(source, |offset, bytes| {
            let mut length = bytes.len();
            if copies {
                // SAFETY: the client submitted the target, to which it holds no reference.
                let written = unsafe { memory::write(target.wrapping_add(offset), bytes) };
                if let Err(failure) = written {
                    length = match failure {
                        Failure::Fault { done } => done,
                        Failure::Refused(_) => 0,
                    };
                    unwritten = Some(offset + length as u64);
                }
            }
            crc = crc32c(crc, &bytes[..length]);
            unwritten.is_none()
        });
        let completion = match (unwritten, stop) {
            (Some(done), _) => {
                self.fault(&Stop { access: Access::Write, done, is_refused: false }, source, target)
            }
            (None, Some(stop)) => {
                let access = self.planned.filter(|_| copies).map_or(stop.access, |p| p.access);
                self.fault(&Stop { access, ..stop }, source, target)
            }
            (None, None) => Completion::of(Status::Success, 0),
        };
        Completion { crc, ..completion }
    }
}

/// Whether a page is in memory, as `/proc/self/pagemap` reports it; true if it reports nothing.
fn is_resident(address: u64) -> bool {
    let page = address - address % PAGE_BYTES;
    let mut entry = [0; 8];
    // Each page has 8 bytes in the file; bit 63 is "present" (Linux
    // Documentation/admin-guide/mm/pagemap.rst).
    let file = std::fs::File::open("/proc/self/pagemap");
    let read = file.and_then(|file| {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut entry, page / PAGE_BYTES * 8)
    });
    read.is_err() || u64::from_le_bytes(entry) >> 63 == 1
}

/// The list of a batch.
///
/// # Errors
/// The list cannot be read.
pub(super) fn read_list(address: u64, count: u32) -> Result<Vec<Descriptor>, Errno> {
    let mut bytes = vec![0; count as usize * 64];
    memory::read(address, &mut bytes).map_err(|_| Errno::FAULT)?;
    let descriptor = |chunk: &[u8]| {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(chunk);
        Descriptor::from_bytes(bytes)
    };
    Ok(bytes.chunks_exact(64).map(descriptor).collect())
}
