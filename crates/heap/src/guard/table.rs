//! Which mappings are guarded.

use crate::protocol::versioned::Versioned;
use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Mappings that are guarded at once. A forwarder's 8 ports of 8 queues with 16 regions each are
/// 1,024; a process of a thousand channels has some 6,000.
pub(super) const RANGES_MAX: usize = 16_384;

/// A mapping: where it begins and ends, and bytes of its pages. It ends at 0 where there is none.
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

    /// The page of the file's kind that the address lies in.
    pub(super) fn page_of(&self, address: usize) -> usize {
        address & !(self.page_bytes - 1)
    }
}

/// A place for a mapping.
pub(super) struct Range {
    is_taken: AtomicU32,
    /// Pages of it that were gone as they were touched.
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

/// One more than the highest place that was ever taken: what the handler looks through.
static RANGES_USED: AtomicU32 = AtomicU32::new(0);

/// Takes a place for a mapping; `None` where all are taken.
pub(super) fn take(mapped: Mapped) -> Option<usize> {
    let is_free =
        |range: &Range| range.is_taken.load(Relaxed) == 0 && range.is_taken.swap(1, Acquire) == 0;
    let index = RANGES.iter().position(is_free)?;
    RANGES_USED.fetch_max(index as u32 + 1, Relaxed);
    RANGES[index].faults.store(0, Relaxed);
    RANGES[index].mapped.write(mapped.words());
    Some(index)
}

/// Gives a place back. Before the mapping goes, whose addresses may be another's then.
pub(super) fn give_back(index: usize) {
    RANGES[index].mapped.write(Mapped::NONE.words());
    RANGES[index].is_taken.store(0, Release);
}

/// Whether pages of it were gone.
#[inline]
pub(super) fn is_broken(index: usize) -> bool {
    RANGES[index].faults.load(Relaxed) != 0
}

/// None of its pages is gone any more.
pub(super) fn mended(index: usize) {
    RANGES[index].faults.store(0, Relaxed);
}

/// The mapping that an address lies in, and how many of its pages were gone, this one counted. A
/// place that is written meanwhile is of a mapping that nobody can touch yet, or any more.
pub(super) fn find(address: usize) -> Option<(Mapped, u32)> {
    let used = RANGES_USED.load(Relaxed) as usize;
    RANGES[..used.min(RANGES_MAX)].iter().find_map(|range| {
        let [start, end, page_bytes] = range.mapped.read()?.map(|word| word as usize);
        let mapped = Mapped { start, end, page_bytes };
        // Known before the zeros can be read, by whatever thread.
        mapped.has(address).then(|| (mapped, range.faults.fetch_add(1, Release) + 1))
    })
}
