//! Every operation, done by the calling thread: for the engine `inline`, for the helper thread,
//! and for the rest of what another engine could not do.

use std::ops::Range;

use haul_copy::{Hint, Policy};

use crate::crc::crc32c;
use crate::operation::{Operation, Region, Request, list, total};
use crate::outcome::{Outcome, Refusal, Value};

/// A copy with CRC-32C goes in pieces that stay in the first cache.
const CRC_PIECE: usize = 8 << 10;

/// Checks addresses and lengths, without access to the memory of the operation itself.
///
/// # Safety
/// The lists of an operation with lists must be readable.
#[inline(always)]
pub(crate) unsafe fn check(operation: &Operation) -> Result<(), Refusal> {
    let is_range = |start: *const u8, length: usize| is_range(start, length);
    let is_right = match *operation {
        Operation::Copy { target, source, length } => {
            is_range(target, length) && is_range(source, length)
        }
        Operation::Fill { target, length, .. } => is_range(target, length),
        Operation::Compare { left, right, length } => {
            is_range(left, length) && is_range(right, length)
        }
        Operation::Crc32c { source, length, .. } => is_range(source, length),
        Operation::CopyCrc32c { target, source, length, .. } => {
            is_range(target, length)
                && is_range(source, length)
                && !overlaps(target, source, length)
        }
        Operation::Lists { targets, target_count, sources, source_count } => {
            // SAFETY: the caller's promise.
            let to = unsafe { list(targets, target_count) };
            // SAFETY: the caller's promise.
            let from = unsafe { list(sources, source_count) };
            let sum = |list: &[Region]| total(list.iter().map(|region| region.length));
            let mut all = to.iter().chain(from);
            sum(to) == sum(from)
                && isize::try_from(sum(from)).is_ok()
                && all.all(|region| is_range(region.start, region.length))
        }
        Operation::Batch { pairs, count } => {
            // SAFETY: the caller's promise.
            let pairs = unsafe { list(pairs, count) };
            isize::try_from(total(pairs.iter().map(|pair| pair.length))).is_ok()
                && pairs.iter().all(|pair| {
                    is_range(pair.target, pair.length)
                        && is_range(pair.source, pair.length)
                        && !overlaps(pair.target, pair.source, pair.length)
                })
        }
    };
    if is_right { Ok(()) } else { Err(Refusal::BadRange) }
}

fn is_range(start: *const u8, length: usize) -> bool {
    let fits = isize::try_from(length).is_ok() && start.addr().checked_add(length).is_some();
    fits && (length == 0 || !start.is_null())
}

/// Whether source and target of this length have a byte in common.
pub(crate) fn overlaps(target: *const u8, source: *const u8, length: usize) -> bool {
    target.addr().abs_diff(source.addr()) < length
}

/// Does all of an operation.
///
/// # Safety
/// [`check`] accepts the operation, its sources are readable and its targets writable.
#[inline(always)]
pub(crate) unsafe fn execute(request: &Request) -> Outcome {
    let Request { operation, hint } = *request;
    // SAFETY: the caller promises that every source is readable.
    let bytes = |start: *const u8, length: usize| unsafe { slice(start, length) };
    let value = match operation {
        Operation::Copy { target, source, length } => {
            // SAFETY: the caller's promise.
            unsafe { copy(target, source, length, hint) };
            Value::Written
        }
        Operation::Fill { target, byte, length } => {
            // SAFETY: the caller's promise.
            unsafe { hint.fill_raw(target, byte, length) };
            Value::Written
        }
        Operation::Compare { left, right, length } => {
            Value::Difference(difference(bytes(left, length), bytes(right, length)))
        }
        Operation::Crc32c { source, length, seed } => {
            Value::Crc32c(crc32c(seed, bytes(source, length)))
        }
        Operation::CopyCrc32c { target, source, length, seed } => {
            // SAFETY: the caller promises both ranges.
            Value::Crc32c(unsafe { copy_crc32c(target, bytes(source, length), seed, hint) })
        }
        Operation::Lists { targets, target_count, sources, source_count } => {
            // SAFETY: the caller's promise.
            unsafe { lists((targets, target_count), (sources, source_count), hint) };
            Value::Written
        }
        Operation::Batch { pairs, count } => {
            // SAFETY: the caller's promise.
            for pair in unsafe { list(pairs, count) } {
                // SAFETY: the caller's promise.
                unsafe { hint.copy_raw(pair.target, pair.source, pair.length) };
            }
            Value::Written
        }
    };
    Outcome::Done(value)
}

/// As [`Hint::copy_raw`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn copy(target: *mut u8, source: *const u8, length: usize, hint: Hint) {
    match hint {
        // SAFETY: the caller's promise.
        Hint::Unknown => unsafe { copy_unhinted(target, source, length) },
        // SAFETY: the caller's promise.
        hint => unsafe { hint.copy_raw(target, source, length) },
    }
}

/// A copy without a hint: a call without choices, so that what calls it is small and inlined.
///
/// # Safety
/// As for [`haul_copy::memmove`].
#[inline(never)]
unsafe fn copy_unhinted(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { haul_copy::memmove(target, source, length) };
}

/// # Safety
/// `start` must be readable for `length` bytes.
unsafe fn slice<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// Copies `source` and returns the CRC-32C of its bytes.
///
/// # Safety
/// `target` must be writable for as many bytes, and overlap none of them.
unsafe fn copy_crc32c(target: *mut u8, source: &[u8], seed: u32, hint: Hint) -> u32 {
    let (mut crc, mut target) = (seed, target);
    for piece in source.chunks(CRC_PIECE) {
        // SAFETY: the piece is inside of both ranges, which the caller promises.
        unsafe { hint.copy_raw(target, piece.as_ptr(), piece.len()) };
        crc = crc32c(crc, piece);
        target = target.wrapping_add(piece.len());
    }
    crc
}

/// The index of the first byte that differs.
fn difference(left: &[u8], right: &[u8]) -> Option<usize> {
    const PIECE: usize = 256;
    let pieces = left.chunks(PIECE).zip(right.chunks(PIECE));
    let (number, (left, right)) = pieces.enumerate().find(|(_, (left, right))| left != right)?;
    let inside = left.iter().zip(right).position(|(left, right)| left != right)?;
    Some(number * PIECE + inside)
}

/// Copies the bytes of one list to the other.
///
/// # Safety
/// The lists are readable, have the same sum of lengths, and their regions are accessible.
unsafe fn lists(targets: (*const Region, usize), sources: (*const Region, usize), hint: Hint) {
    // SAFETY: the caller's promise.
    let mut to = unsafe { list(targets.0, targets.1) }.iter().copied();
    // SAFETY: the caller's promise.
    let from = unsafe { list(sources.0, sources.1) };
    let mut target = Region { start: std::ptr::null_mut(), length: 0 };
    for source in from {
        let mut done = 0;
        while done < source.length {
            if target.length == 0 {
                let Some(next) = to.next() else { return };
                target = next;
                continue;
            }
            let size = target.length.min(source.length - done);
            // SAFETY: `size` bytes are left in both regions.
            unsafe { hint.copy_raw(target.start, source.start.wrapping_add(done), size) };
            target =
                Region { start: target.start.wrapping_add(size), length: target.length - size };
            done += size;
        }
    }
}

/// An operation in pieces that two threads can claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    request: Request,
    length: usize,
    size: usize,
}

/// The size of a piece if half of the operation is less. A stated default: a copy of 3 us at
/// 10 GB/s.
const PIECE_MIN: usize = 32 << 10;
/// The largest size of a piece. A piece costs the helper thread some 0.15 us, for lines that the
/// caller polls: with 32 KiB, copies of 256 KiB had 0.7 of the rate that they have with 128 KiB
/// (Zen 5, where 32 KiB take 0.3 us).
pub(crate) const PIECE_MAX: usize = 128 << 10;

impl Pieces {
    /// Divides an operation. One that cannot be divided is one piece.
    pub(crate) fn of(mut request: Request) -> Self {
        let (length, stream_min) = match request.operation {
            Operation::Copy { target, source, length } if !overlaps(target, source, length) => {
                (length, Policy::current().thresholds.stream_copy_min)
            }
            Operation::Fill { length, .. } => {
                (length, Policy::current().thresholds.stream_fill_min)
            }
            _ => return Self { request, length: 1, size: 1 },
        };
        // A piece must be stored as the whole would be.
        if request.hint == Hint::Unknown && length >= stream_min {
            request.hint = Hint::Streamed;
        }
        // Two pieces are enough for a caller that waits to take part.
        let half = length.div_ceil(2).next_multiple_of(4096);
        Self { request, length, size: half.clamp(PIECE_MIN, PIECE_MAX) }
    }

    /// The number of pieces, at least 1.
    pub(crate) fn count(&self) -> u32 {
        self.length.div_ceil(self.size).max(1).try_into().unwrap_or(u32::MAX)
    }

    /// The number of bytes in the first pieces.
    pub(crate) fn bytes(&self, pieces: u32) -> usize {
        (pieces as usize).saturating_mul(self.size).min(self.length)
    }

    /// Does one piece.
    ///
    /// # Safety
    /// As for [`execute`]; no other thread does this piece.
    pub(crate) unsafe fn execute(&self, piece: u32) -> Outcome {
        let range = self.bytes(piece)..self.bytes(piece + 1);
        let request = part(&self.request, range);
        // SAFETY: the part is inside of the operation.
        unsafe { execute(&request) }
    }
}

/// A part of a copy or of a fill; the whole of another operation.
fn part(request: &Request, range: Range<usize>) -> Request {
    let operation = match request.operation {
        Operation::Copy { target, source, .. } => Operation::Copy {
            target: target.wrapping_add(range.start),
            source: source.wrapping_add(range.start),
            length: range.len(),
        },
        Operation::Fill { target, byte, .. } => {
            Operation::Fill { target: target.wrapping_add(range.start), byte, length: range.len() }
        }
        whole => whole,
    };
    Request { operation, hint: request.hint }
}

/// Does what an engine left undone: the bytes behind the fault, or everything. A range that was
/// refused stays refused.
///
/// # Safety
/// As for [`execute`]; the engine accesses the memory no more.
pub(crate) unsafe fn finish(request: &Request, outcome: Outcome) -> Outcome {
    match (outcome, request.operation) {
        (Outcome::Done(_) | Outcome::Refused(Refusal::BadRange), _) => outcome,
        (
            Outcome::Partial { bytes_done, .. },
            Operation::Copy { length, .. } | Operation::Fill { length, .. },
        ) => {
            let rest = part(request, bytes_done.min(length)..length);
            // SAFETY: the rest is inside of the operation.
            unsafe { execute(&rest) }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { execute(request) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(bytes: &mut [u8]) -> Region {
        Region { start: bytes.as_mut_ptr(), length: bytes.len() }
    }

    #[test]
    fn lists_of_different_shapes_carry_the_bytes_in_order() {
        let (mut a, mut b, mut c) = (*b"abc", *b"", *b"defgh");
        let sources = [region(&mut a), region(&mut b), region(&mut c)];
        let (mut x, mut y) = ([0; 5], [0; 3]);
        let targets = [region(&mut x), region(&mut y)];
        let operation = Operation::Lists {
            targets: targets.as_ptr(),
            target_count: 2,
            sources: sources.as_ptr(),
            source_count: 3,
        };
        // SAFETY: all regions are live arrays.
        assert_eq!(unsafe { check(&operation) }, Ok(()));
        // SAFETY: as above.
        unsafe { execute(&Request { operation, hint: Hint::Unknown }) };
        assert_eq!((&x, &y), (b"abcde", b"fgh"));
        let short = Operation::Lists {
            targets: targets.as_ptr(),
            target_count: 1,
            sources: sources.as_ptr(),
            source_count: 3,
        };
        // SAFETY: as above.
        assert_eq!(unsafe { check(&short) }, Err(Refusal::BadRange));
    }

    #[test]
    fn bad_ranges_are_refused() {
        let mut byte = 0_u8;
        let good = &raw mut byte;
        let null = std::ptr::null_mut();
        for (target, source, length) in [
            (null, good.cast_const(), 1),
            (good, std::ptr::null(), 1),
            (good, good.cast_const(), usize::MAX),
            (good, std::ptr::without_provenance(usize::MAX - 3), 5),
        ] {
            let operation = Operation::Copy { target, source, length };
            // SAFETY: there are no lists.
            assert_eq!(unsafe { check(&operation) }, Err(Refusal::BadRange), "{operation:?}");
        }
        let nothing = Operation::Copy { target: null, source: std::ptr::null(), length: 0 };
        // SAFETY: there are no lists.
        assert_eq!(unsafe { check(&nothing) }, Ok(()));
    }

    #[test]
    fn rest_behind_a_fault_is_finished() {
        let source: Vec<u8> = (0..100).collect();
        let mut target = vec![0; 100];
        target[..40].copy_from_slice(&source[..40]);
        let operation = Operation::Copy {
            target: target.as_mut_ptr(),
            source: source.as_ptr(),
            length: source.len(),
        };
        let request = Request { operation, hint: Hint::Unknown };
        let access = crate::outcome::Access::Write;
        let fault = Outcome::Partial { bytes_done: 40, address: 40, access };
        // SAFETY: both vectors are 100 bytes long.
        let outcome = unsafe { finish(&request, fault) };
        assert_eq!((outcome, target), (Outcome::Done(Value::Written), source));
    }

    #[test]
    fn pieces_cover_an_operation_once() {
        const PIECES_MAX: u32 = crate::ring::PIECES_MAX;
        let most = PIECES_MAX as usize * PIECE_MAX - 1;
        let ends = [0, PIECE_MIN, 2 * PIECE_MIN, 2 * PIECE_MAX, 16 * PIECE_MAX, most];
        for length in ends.into_iter().flat_map(|end| [end.saturating_sub(1), end, end + 1]) {
            let start = std::ptr::without_provenance_mut(1 << 30);
            let operation = Operation::Fill { target: start, byte: 0, length };
            let pieces = Pieces::of(Request { operation, hint: Hint::Unknown });
            assert_eq!(pieces.bytes(pieces.count()), length);
            assert!(pieces.count() <= PIECES_MAX);
            assert!(pieces.count() == 1 || pieces.bytes(pieces.count() - 1) < length);
        }
    }
}
