//! The table of guarded mappings.

use crate::protocol::versioned::Versioned;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The most mappings that are guarded at once. A forwarder with 8 ports of 8 queues and 16
/// regions per queue guards 1,024; a process with a thousand channels guards some 6,000.
pub(super) const RANGES_MAX: usize = 16_384;

/// A mapping: its start, its end, and the bytes of its pages. The end is 0 if the table entry is
/// free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) page_bytes: usize,
}

impl Mapped {
    const NONE: Self = Self { start: 0, end: 0, page_bytes: 0 };

    fn words(self) -> [u64; 3] {
        [self.start as u64, self.end as u64, self.page_bytes as u64]
    }

    fn has(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }

    /// The page, of the file's page size, that contains the address.
    pub(super) fn page_of(&self, address: usize) -> usize {
        address & !(self.page_bytes - 1)
    }
}

/// An entry for a mapping.
pub(super) struct Range {
    is_taken: AtomicU32,
    /// Pages of the mapping that were missing when they were accessed.
    faults: AtomicU32,
    mapped: Versioned<3>,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range {
        is_taken: AtomicU32::new(0),
        faults: AtomicU32::new(0),
        mapped: Versioned { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 3] },
    }
}; RANGES_MAX];

/// One more than the highest entry that was ever in use. The handler searches only the entries
/// below.
static RANGES_USED: AtomicU32 = AtomicU32::new(0);

/// Allocates an entry for a mapping; `None` if all entries are in use.
pub(super) fn take(mapped: Mapped) -> Option<usize> {
    let is_free =
        |range: &Range| range.is_taken.load(Relaxed) == 0 && range.is_taken.swap(1, Acquire) == 0;
    let index = RANGES.iter().position(is_free)?;
    RANGES_USED.fetch_max(index as u32 + 1, Relaxed);
    RANGES[index].faults.store(0, Relaxed);
    RANGES[index].mapped.write(mapped.words());
    Some(index)
}

/// Frees an entry. Must be called before the mapping is unmapped, because another mapping may
/// reuse the addresses.
pub(super) fn give_back(index: usize) {
    RANGES[index].mapped.write(Mapped::NONE.words());
    RANGES[index].is_taken.store(0, Release);
}

/// Whether pages of the mapping were missing.
#[inline]
pub(super) fn is_broken(index: usize) -> bool {
    RANGES[index].faults.load(Relaxed) != 0
}

/// Records that no page of the mapping is missing any more.
pub(super) fn mended(index: usize) {
    RANGES[index].faults.store(0, Relaxed);
}

/// The mapping that contains an address, and how many of its pages were missing, including the
/// page at this address. Skips an entry that another thread is writing: its mapping is not yet or
/// no longer in use.
pub(super) fn find(address: usize) -> Option<(Mapped, u32)> {
    let used = RANGES_USED.load(Relaxed) as usize;
    RANGES[..used.min(RANGES_MAX)].iter().find_map(|range| {
        let [start, end, page_bytes] = range.mapped.read()?.map(|word| word as usize);
        let mapped = Mapped { start, end, page_bytes };
        // The fault is counted before any thread can read the zeros.
        mapped.has(address).then(|| (mapped, range.faults.fetch_add(1, Release) + 1))
    })
}
