//! The operations of an engine, as addresses: what the engine reads, and what it writes.

use haul_copy::Hint;

/// A range of memory in a list: `length` bytes from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// The first byte.
    pub start: *mut u8,
    /// The number of bytes.
    pub length: usize,
}

/// A copy in a batch: `length` bytes from `source` to `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pair {
    /// Where the bytes go.
    pub target: *mut u8,
    /// Where the bytes come from.
    pub source: *const u8,
    /// The number of bytes.
    pub length: usize,
}

/// One operation. Lengths are in bytes, addresses have any alignment.
///
/// The source and the target of [`Copy`](Self::Copy) may overlap; in every other operation with a
/// source and a target they must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Operation {
    /// Copies `length` bytes from `source` to `target`.
    Copy {
        /// Where the bytes go.
        target: *mut u8,
        /// Where the bytes come from.
        source: *const u8,
        /// The number of bytes.
        length: usize,
    },
    /// Sets `length` bytes at `target` to `byte`.
    Fill {
        /// The bytes to set.
        target: *mut u8,
        /// Their new value.
        byte: u8,
        /// The number of bytes.
        length: usize,
    },
    /// Finds the first byte at which `left` and `right` differ.
    Compare {
        /// One range.
        left: *const u8,
        /// The other range.
        right: *const u8,
        /// The number of bytes of each.
        length: usize,
    },
    /// Computes the CRC-32C of `length` bytes at `source`.
    Crc32c {
        /// The bytes.
        source: *const u8,
        /// The number of bytes.
        length: usize,
        /// The CRC-32C of the bytes before these; 0 at the beginning.
        seed: u32,
    },
    /// Copies, and computes the CRC-32C of the copied bytes.
    CopyCrc32c {
        /// Where the bytes go.
        target: *mut u8,
        /// Where the bytes come from.
        source: *const u8,
        /// The number of bytes.
        length: usize,
        /// The CRC-32C of the bytes before these; 0 at the beginning.
        seed: u32,
    },
    /// Gathers the bytes of all source regions, in order, and scatters them to the target regions,
    /// in order. The two lists have the same sum of lengths. The lists themselves must stay in
    /// place until the operation has ended.
    Lists {
        /// The target regions.
        targets: *const Region,
        /// The number of target regions.
        target_count: usize,
        /// The source regions.
        sources: *const Region,
        /// The number of source regions.
        source_count: usize,
    },
    /// Does several copies, in any order, none of whose targets overlaps another target or a
    /// source. The list itself must stay in place until the operation has ended.
    Batch {
        /// The copies.
        pairs: *const Pair,
        /// The number of copies.
        count: usize,
    },
}

// SAFETY: an operation is addresses and numbers. The promise about the memory is made by the
// caller that submits the operation, and it holds for every thread.
unsafe impl Send for Operation {}

/// An operation with what the caller knows about the use of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The reader of the target. An engine may ignore it.
    pub hint: Hint,
}

impl Operation {
    /// The number of bytes that the operation moves, sets, compares or sums.
    ///
    /// # Safety
    /// The lists of [`Lists`](Self::Lists) and [`Batch`](Self::Batch) must be readable.
    #[inline]
    #[must_use]
    pub unsafe fn length(&self) -> usize {
        match *self {
            Self::Copy { length, .. }
            | Self::Fill { length, .. }
            | Self::Compare { length, .. }
            | Self::Crc32c { length, .. }
            | Self::CopyCrc32c { length, .. } => length,
            Self::Lists { sources, source_count, .. } => {
                // SAFETY: the caller promises that the list is readable.
                total(unsafe { list(sources, source_count) }.iter().map(|region| region.length))
            }
            Self::Batch { pairs, count } => {
                // SAFETY: the caller promises that the list is readable.
                total(unsafe { list(pairs, count) }.iter().map(|pair| pair.length))
            }
        }
    }

    /// The CRC-32C of the bytes before these; 0 for an operation without one.
    pub(crate) fn seed(&self) -> u32 {
        match *self {
            Self::Crc32c { seed, .. } | Self::CopyCrc32c { seed, .. } => seed,
            _ => 0,
        }
    }

    /// Which operation it is.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Self::Copy { .. } => Verb::Copy,
            Self::Fill { .. } => Verb::Fill,
            Self::Compare { .. } => Verb::Compare,
            Self::Crc32c { .. } => Verb::Crc32c,
            Self::CopyCrc32c { .. } => Verb::CopyCrc32c,
            Self::Lists { .. } => Verb::Lists,
            Self::Batch { .. } => Verb::Batch,
        }
    }
}

/// The elements of a list.
///
/// # Safety
/// `start` must be readable for `count` elements.
pub(crate) unsafe fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// The sum of lengths, at most [`usize::MAX`].
pub(crate) fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Operation::Copy`].
    Copy,
    /// [`Operation::Fill`].
    Fill,
    /// [`Operation::Compare`].
    Compare,
    /// [`Operation::Crc32c`].
    Crc32c,
    /// [`Operation::CopyCrc32c`].
    CopyCrc32c,
    /// [`Operation::Lists`].
    Lists,
    /// [`Operation::Batch`].
    Batch,
}

impl Verb {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Copy,
        Self::Fill,
        Self::Compare,
        Self::Crc32c,
        Self::CopyCrc32c,
        Self::Lists,
        Self::Batch,
    ];

    /// The bit of this kind in [`Facts::verbs`](crate::Facts::verbs).
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}
