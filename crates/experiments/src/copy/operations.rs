//! Lists of densely packed operations, and the timed loop over them.
//!
//! The loop is as small as possible, because its own time dilutes every ratio: it loads offsets and
//! size, adds the base, and calls. Lists are packed into the fewest bytes that their region allows,
//! so that they occupy little of the measured caches.

use std::hint::black_box;

use haul_copy::kernel::{CopyFn, FillFn};
use haul_measure::placement::Operation;

use super::subjects::Routine;
use super::then_read::{LOAD_BYTES, ThenRead};

/// The byte that a fill writes. The byte is neither 0, which some libraries treat specially, nor
/// 0xff.
pub const FILL_BYTE: u8 = 0xa5;

/// The number of bytes after every target that must be readable, because [`List::run`] reads
/// them.
pub const READ_SLACK_BYTES: usize = LOAD_BYTES;

/// The addresses to which the offsets of a list are added.
#[derive(Clone, Copy, Debug)]
pub struct Bases {
    /// The base of all sources.
    pub source: *const u8,
    /// The base of all targets.
    pub target: *mut u8,
}

impl Bases {
    /// Sources and targets in one region that starts at `base`.
    #[must_use]
    pub fn same(base: *mut u8) -> Self {
        Self { source: base, target: base }
    }
}

/// Operations in the smallest form that holds their offsets.
#[derive(Clone, Debug)]
pub enum List {
    /// Regions up to 64 KiB: 8 bytes per operation.
    Near(Vec<Packed<u16>>),
    /// Regions up to 4 GiB: 12 bytes.
    Far(Vec<Packed<u32>>),
    /// Larger regions: 24 bytes.
    Wide(Vec<Operation>),
}

/// An operation with offsets of type `T`; its size is below 4 GiB.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packed<T> {
    source: T,
    target: T,
    size: u32,
}

const _: () = assert!(size_of::<Packed<u16>>() == 8);
const _: () = assert!(size_of::<Packed<u32>>() == 12);

impl List {
    /// Packs operations.
    #[must_use]
    pub fn pack(operations: &[Operation]) -> Self {
        if let Some(near) = operations.iter().map(Packed::from_operation).collect() {
            Self::Near(near)
        } else if let Some(far) = operations.iter().map(Packed::from_operation).collect() {
            Self::Far(far)
        } else {
            Self::Wide(operations.to_vec())
        }
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Near(list) => list.len(),
            Self::Far(list) => list.len(),
            Self::Wide(list) => list.len(),
        }
    }

    /// Whether the list has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a byte in every `line_bytes` bytes, so that the caches hold the list.
    pub fn touch(&self, line_bytes: usize) {
        match self {
            Self::Near(list) => touch(list, line_bytes),
            Self::Far(list) => touch(list, line_bytes),
            Self::Wide(list) => touch(list, line_bytes),
        }
    }

    /// One operation, unpacked.
    ///
    /// # Panics
    /// The list has no operation of this index.
    #[must_use]
    pub fn operation(&self, index: usize) -> Operation {
        match self {
            Self::Near(list) => list[index].unpack(),
            Self::Far(list) => list[index].unpack(),
            Self::Wide(list) => list[index],
        }
    }

    /// Performs the operations of `range` on memory after `bases`, with the reader of each target
    /// right after it.
    ///
    /// # Safety
    /// For each operation, the caller must have exclusive access to source and target, which must
    /// lie in memory after their base, with [`READ_SLACK_BYTES`] after each target.
    ///
    /// # Panics
    /// The range is not within the list.
    pub unsafe fn run(
        &self,
        routine: Routine,
        range: std::ops::Range<usize>,
        bases: Bases,
        read: ThenRead,
    ) {
        match self {
            // SAFETY: the caller keeps the contract of this function, which is also the callee's.
            Self::Near(list) => unsafe { run_routine(routine, &list[range], bases, read) },
            // SAFETY: as above.
            Self::Far(list) => unsafe { run_routine(routine, &list[range], bases, read) },
            // SAFETY: as above.
            Self::Wide(list) => unsafe { run_routine(routine, &list[range], bases, read) },
        }
    }
}

fn touch<E: Entry>(entries: &[E], line_bytes: usize) {
    for entry in entries.iter().step_by((line_bytes / size_of::<E>()).max(1)) {
        black_box(entry.unpack());
    }
}

/// An entry of a list, as the loop reads it.
trait Entry: Copy {
    fn unpack(self) -> Operation;
}

impl<T: Copy + TryFrom<usize>> Packed<T> {
    fn from_operation(operation: &Operation) -> Option<Self> {
        Some(Self {
            source: T::try_from(operation.source).ok()?,
            target: T::try_from(operation.target).ok()?,
            size: u32::try_from(operation.size).ok()?,
        })
    }
}

impl Entry for Packed<u16> {
    #[inline(always)]
    fn unpack(self) -> Operation {
        Operation {
            source: self.source.into(),
            target: self.target.into(),
            size: self.size as usize,
        }
    }
}

impl Entry for Packed<u32> {
    #[inline(always)]
    fn unpack(self) -> Operation {
        Operation {
            source: self.source as usize,
            target: self.target as usize,
            size: self.size as usize,
        }
    }
}

impl Entry for Operation {
    #[inline(always)]
    fn unpack(self) -> Operation {
        self
    }
}

/// A kind of call: the part that differs between loops.
trait Call: Copy {
    /// Performs one operation.
    ///
    /// # Safety
    /// As for the called function: `size` bytes must be readable at `source` and writable at
    /// `target`.
    unsafe fn call(self, target: *mut u8, source: *const u8, size: usize);
}

impl Call for CopyFn {
    #[inline(always)]
    unsafe fn call(self, target: *mut u8, source: *const u8, size: usize) {
        // SAFETY: the caller keeps the contract of `call`.
        unsafe { self(target, source, size) };
    }
}

impl Call for FillFn {
    #[inline(always)]
    unsafe fn call(self, target: *mut u8, _: *const u8, size: usize) {
        // SAFETY: the caller keeps the contract of `call`.
        unsafe { self(target, i32::from(FILL_BYTE), size) };
    }
}

/// haul's functions, inlined.
#[derive(Clone, Copy)]
struct InlineCopy;
#[derive(Clone, Copy)]
struct InlineMove;
#[derive(Clone, Copy)]
struct InlineFill;

impl Call for InlineCopy {
    #[inline(always)]
    unsafe fn call(self, target: *mut u8, source: *const u8, size: usize) {
        // SAFETY: the caller keeps the contract of `call`.
        unsafe { haul_copy::memcpy(target, source, size) };
    }
}

impl Call for InlineMove {
    #[inline(always)]
    unsafe fn call(self, target: *mut u8, source: *const u8, size: usize) {
        // SAFETY: the caller keeps the contract of `call`.
        unsafe { haul_copy::memmove(target, source, size) };
    }
}

impl Call for InlineFill {
    #[inline(always)]
    unsafe fn call(self, target: *mut u8, _: *const u8, size: usize) {
        // SAFETY: the caller keeps the contract of `call`.
        unsafe { haul_copy::memset(target, FILL_BYTE, size) };
    }
}

/// Chooses the loop. Pointers pass through `black_box`, so that the compiler cannot know the called
/// function.
unsafe fn run_routine<E: Entry>(routine: Routine, entries: &[E], bases: Bases, read: ThenRead) {
    match routine {
        // SAFETY: the caller keeps the contract of this function, which is also the callee's.
        Routine::Copy(copy) => unsafe { run_either(entries, bases, black_box(copy), read) },
        // SAFETY: as above.
        Routine::Fill(fill) => unsafe { run_either(entries, bases, black_box(fill), read) },
        // SAFETY: as above.
        Routine::InlineCopy => unsafe { run_either(entries, bases, InlineCopy, read) },
        // SAFETY: as above.
        Routine::InlineMove => unsafe { run_either(entries, bases, InlineMove, read) },
        // SAFETY: as above.
        Routine::InlineFill => unsafe { run_either(entries, bases, InlineFill, read) },
    }
}

unsafe fn run_either<E: Entry, C: Call>(entries: &[E], bases: Bases, call: C, read: ThenRead) {
    match read {
        // SAFETY: the caller keeps the contract of this function, which is also the callee's.
        ThenRead::Nothing => unsafe { run_only(entries, bases, call) },
        // SAFETY: as above.
        ThenRead::First => unsafe { run_and_read(entries, bases, call, ReadFirst) },
        // SAFETY: as above.
        ThenRead::Last => unsafe { run_and_read(entries, bases, call, ReadLast) },
        // SAFETY: as above.
        ThenRead::All => unsafe { run_and_read(entries, bases, call, ReadAll) },
    }
}

/// The timed loop.
#[inline(never)]
unsafe fn run_only<E: Entry, C: Call>(entries: &[E], bases: Bases, call: C) {
    for entry in entries {
        let Operation { source, target, size } = entry.unpack();
        // Wrapping: the two additions are in bounds, and a checked addition would cost time in this
        // loop.
        let (target, source) =
            (bases.target.wrapping_add(target), bases.source.wrapping_add(source));
        // SAFETY: the caller promises that source and target lie in the memory behind their bases.
        unsafe { call.call(target, source, size) };
    }
}

/// The timed loop with a reader right after each call. The loads wait for the copy's stores. The
/// loads are slow if several stores contribute to a load, or if a store is not forwarded.
#[inline(never)]
unsafe fn run_and_read<E: Entry, C: Call, R: Read>(
    entries: &[E],
    bases: Bases,
    call: C,
    reader: R,
) {
    let mut sum = 0u64;
    for entry in entries {
        let Operation { source, target, size } = entry.unpack();
        let (target, source) =
            (bases.target.wrapping_add(target), bases.source.wrapping_add(source));
        // SAFETY: as in `run_only`.
        unsafe { call.call(target, source, size) };
        // SAFETY: the caller promises that the target's bytes, and at least READ_SLACK_BYTES, are
        // readable.
        sum = sum.wrapping_add(unsafe { reader.read(target, size) });
    }
    // The function uses the sum, so that the compiler keeps every load.
    black_box(sum);
}

/// The loads of a reader: the part that differs between loops.
trait Read: Copy {
    /// The sum of the loaded words.
    ///
    /// # Safety
    /// `size` bytes and at least [`READ_SLACK_BYTES`] must be readable at `target`.
    unsafe fn read(self, target: *const u8, size: usize) -> u64;
}

#[derive(Clone, Copy)]
struct ReadFirst;
#[derive(Clone, Copy)]
struct ReadLast;
#[derive(Clone, Copy)]
struct ReadAll;

impl Read for ReadFirst {
    #[inline(always)]
    unsafe fn read(self, target: *const u8, _: usize) -> u64 {
        // SAFETY: the caller promises that this many bytes are readable. The load may be unaligned.
        unsafe { target.cast::<u64>().read_unaligned() }
    }
}

impl Read for ReadLast {
    #[inline(always)]
    unsafe fn read(self, target: *const u8, size: usize) -> u64 {
        let last = target.wrapping_add(size.saturating_sub(LOAD_BYTES));
        // SAFETY: the load ends with the target, or within the slack after a shorter one. The
        // caller promises that both are readable. The load may be unaligned.
        unsafe { last.cast::<u64>().read_unaligned() }
    }
}

impl Read for ReadAll {
    #[inline(always)]
    unsafe fn read(self, target: *const u8, size: usize) -> u64 {
        // SAFETY: the caller keeps the contract of `read`.
        let mut sum = unsafe { ReadLast.read(target, size) };
        for offset in (0..size.saturating_sub(LOAD_BYTES)).step_by(LOAD_BYTES) {
            // SAFETY: `offset` is below `size` minus a load, so that the load lies within the
            // target.
            sum = sum.wrapping_add(unsafe { ReadFirst.read(target.wrapping_add(offset), size) });
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_uses_smallest_form_and_keeps_operations() {
        let operation = |source, target, size| Operation { source, target, size };
        let near = [operation(1, 65_535, 70_000)];
        let far = [operation(1, 65_536, 7)];
        let wide = [operation(1, 1 << 32, 5), operation(3, 4, 5)];
        assert!(matches!(List::pack(&near), List::Near(_)));
        assert!(matches!(List::pack(&far), List::Far(_)));
        assert!(matches!(List::pack(&wide), List::Wide(_)));
        for operations in [&near[..], &far[..], &wide[..]] {
            let list = List::pack(operations);
            let unpacked: Vec<Operation> =
                (0..list.len()).map(|index| list.operation(index)).collect();
            assert_eq!(unpacked, operations);
        }
    }

    #[test]
    fn every_loop_performs_its_operations() {
        let mut memory: Vec<u8> = (0..=255).collect();
        memory.resize(512 + READ_SLACK_BYTES, 0);
        let list = List::pack(&[Operation { source: 3, target: 300, size: 100 }]);
        let expected: Vec<u8> = (3..103).collect();
        for read in ThenRead::ALL {
            for (routine, filled) in [
                (Routine::InlineCopy, false),
                (Routine::InlineMove, false),
                (Routine::InlineFill, true),
            ] {
                memory[300..400].fill(0);
                // SAFETY: offsets and size lie within the vector, with the slack after them.
                unsafe { list.run(routine, 0..1, Bases::same(memory.as_mut_ptr()), read) };
                if filled {
                    assert_eq!(memory[300..400], [FILL_BYTE; 100]);
                } else {
                    assert_eq!(memory[300..400], expected);
                }
                assert_eq!((memory[299], memory[400]), (0, 0));
            }
        }
    }

    /// The reader of all bytes reads every byte; the other readers read only the beginning or the
    /// end of the target.
    #[test]
    fn readers_read_their_part_of_target() {
        let mut memory = [0u8; 100 + READ_SLACK_BYTES];
        for size in [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 100] {
            for at in 0..size {
                memory[at] = 1;
                let target = memory.as_ptr();
                // SAFETY: at most 100 bytes, with the slack after them.
                let first = unsafe { ReadFirst.read(target, size) };
                // SAFETY: as above.
                let last = unsafe { ReadLast.read(target, size) };
                // SAFETY: as above.
                let all = unsafe { ReadAll.read(target, size) };
                assert_eq!(first != 0, at < LOAD_BYTES, "{at} of {size}");
                assert_eq!(last != 0, at + LOAD_BYTES >= size, "{at} of {size}");
                assert_ne!(all, 0, "{at} of {size}");
                memory[at] = 0;
            }
        }
    }
}
