//! The comparison of a subject's bytes with the expected ones, so that a wrong kernel cannot win.
//!
//! The proof follows the timed rounds and uses the first thread's memory. It calls the subject
//! with single operations of the workload, and also compares the bytes on both sides of the
//! target.

use haul_measure::placement::Operation;
use haul_model::Bytes;

use super::Function;
use super::operations::{Bases, FILL_BYTE, List};
use super::subjects::{Candidate, Routine};
use super::then_read::ThenRead;
use super::workload::Workload;
use crate::error::Error;

/// The number of operations that each subject performs for its proof.
const OPERATIONS: usize = 128;

/// The largest number of bytes per subject in one call of [`check`]. Above some size, only one
/// operation is checked.
const BYTES_MAX: usize = 64 << 20;

/// The number of bytes on each side of the target that must not change.
const GUARD_BYTES: usize = 64;

/// Makes every candidate perform some of the workload's operations, and compares every byte.
///
/// # Errors
/// [`Error::WrongBytes`] for the first wrong byte. It is also an error if there is no memory for
/// the expected bytes.
pub fn check(
    function: Function,
    candidates: &[Candidate],
    workload: &mut Workload,
) -> Result<(), Error> {
    let (memory, operations) = workload.proof_material(OPERATIONS);
    let mut seed = 0u8;
    for candidate in candidates {
        let mut bytes = 0;
        for operation in &operations {
            if bytes > BYTES_MAX {
                break;
            }
            bytes += 2 * operation.size + 1;
            seed = seed.wrapping_add(1);
            check_one(function, *candidate, memory, *operation, seed)?;
        }
    }
    Ok(())
}

fn check_one(
    function: Function,
    candidate: Candidate,
    memory: &mut [u8],
    operation: Operation,
    seed: u8,
) -> Result<(), Error> {
    let Operation { source, target, size } = operation;
    let first = target.saturating_sub(GUARD_BYTES);
    let last = (target + size + GUARD_BYTES).min(memory.len());
    pattern(&mut memory[first..last], seed);
    pattern(&mut memory[source..source + size], seed.wrapping_add(101));
    let mut expected = copy_of(&memory[first..last])?;
    let is_fill = matches!(candidate.routine, Routine::Fill(_) | Routine::InlineFill);
    if is_fill {
        expected[target - first..target - first + size].fill(FILL_BYTE);
    } else {
        expected[target - first..target - first + size]
            .copy_from_slice(&memory[source..source + size]);
    }
    let list = List::pack(&[operation]);
    let bases = Bases::same(memory.as_mut_ptr());
    // SAFETY: slicing above has shown that source and target lie in `memory`, which is borrowed
    // mutably. The reader reads nothing after the target.
    unsafe { list.run(candidate.routine, 0..1, bases, ThenRead::Nothing) };
    let found = &memory[first..last];
    equal(candidate, function, size, (found, &expected), first as isize - target as isize)
}

/// Compares the bytes that a candidate made with the expected ones. `first` is the index of the
/// first byte from the target's start.
///
/// # Errors
/// [`Error::WrongBytes`] for the first wrong byte.
pub(super) fn equal(
    candidate: Candidate,
    function: Function,
    size: usize,
    (found, expected): (&[u8], &[u8]),
    first: isize,
) -> Result<(), Error> {
    // Byte by byte, a tuning run in a debug build took 95 s instead of 15.
    if found == expected {
        return Ok(());
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(index) => Err(Error::WrongBytes {
            subject: candidate.name.into(),
            function: function.name(),
            size_bytes: size,
            index: first + index as isize,
            found: found[index],
            expected: expected[index],
        }),
    }
}

/// A copy of the bytes. The copy is as large as a buffer, so the allocation may exceed a memory
/// limit.
fn copy_of(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| haul_measure::Error::Map {
        asked: Bytes(bytes.len() as u64),
        reason: std::io::ErrorKind::OutOfMemory.into(),
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// A sequence that repeats after 251 bytes. 251 is a prime, so that no shifted copy is equal.
pub(super) fn pattern(bytes: &mut [u8], seed: u8) {
    let period: [u8; 251] = std::array::from_fn(|index| index as u8 ^ seed);
    for chunk in bytes.chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use haul_measure::distribution::{Alignment, Overlap};
    use haul_measure::{Caches, Distribution, Level};

    use super::*;
    use crate::copy::subjects::{Plain, available};
    use crate::copy::workload::{Branches, Mix};

    fn workload() -> Workload {
        let sizes = Distribution::uniform("test", 0..=300);
        let mix = Mix {
            sizes: &sizes,
            level: Level::L1,
            alignment: Alignment::default(),
            overlap: Overlap { share: 0.3 },
            branches: Branches::Random,
            seed: 5,
        };
        Workload::drawn(&mix, &Caches::default(), 1).unwrap()
    }

    #[test]
    fn check_accepts_every_candidate() {
        for function in [Function::Memmove, Function::Memset] {
            check(function, &available(function, Plain::C), &mut workload()).unwrap();
        }
    }

    /// Copies all bytes except the last one.
    unsafe extern "C" fn forgets_one(target: *mut u8, source: *const u8, length: usize) -> *mut u8 {
        // SAFETY: these are fewer bytes than the caller allows.
        unsafe { std::ptr::copy(source, target, length.saturating_sub(1)) };
        target
    }

    /// Fills one byte too many, like a store that is too wide for the remaining bytes.
    unsafe extern "C" fn fills_more(target: *mut u8, byte: i32, length: usize) -> *mut u8 {
        // SAFETY: in this test, the target always has bytes after it.
        unsafe { std::ptr::write_bytes(target, byte as u8, length + 1) };
        target
    }

    /// Copies forward byte by byte, which is wrong if the target lies above an overlapping source.
    unsafe extern "C" fn is_no_memmove(
        target: *mut u8,
        source: *const u8,
        length: usize,
    ) -> *mut u8 {
        for index in 0..length {
            // SAFETY: the byte is within the source, which the caller says is readable.
            let byte = unsafe { source.wrapping_add(index).read_volatile() };
            // SAFETY: the byte is within the target, which the caller says is writable.
            unsafe { target.wrapping_add(index).write_volatile(byte) };
        }
        target
    }

    #[test]
    fn check_rejects_wrong_subjects() {
        for routine in
            [Routine::Copy(forgets_one), Routine::Fill(fills_more), Routine::Copy(is_no_memmove)]
        {
            let candidate = Candidate { name: "broken", routine };
            let error = check(Function::Memmove, &[candidate], &mut workload()).unwrap_err();
            assert!(matches!(error, Error::WrongBytes { .. }), "{error}");
            assert!(error.to_string().contains("figures are withheld"), "{error}");
        }
    }
}
