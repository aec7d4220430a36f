//! The words of pages and groups: how many slices are free at the start, at the end, and in the
//! longest run.

use crate::sync::{AtomicU64, Ordering::SeqCst};

const BITS: u32 = 21;

/// Three counts of free slices in a page or a group: at the start, in the longest run, and at the
/// end. Each has 21 bits; the first is in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Free(pub(super) u64);

impl Free {
    pub(super) const fn new(start: usize, longest: usize, end: usize) -> Self {
        Self(start as u64 | (longest as u64) << BITS | (end as u64) << (2 * BITS))
    }

    /// The counts for a page of 32 slices. The set bits of `mask` are the free slices.
    const fn of_mask(mask: u32) -> Self {
        // Bit i of `ends[k]`: a run of 2^k slices ends at slice i.
        let mut ends = [mask; 6];
        let mut k = 1;
        while k < 6 {
            ends[k] = ends[k - 1] & ends[k - 1] << (1 << (k - 1));
            k += 1;
        }
        // Bit i of `remaining`: a run of `longest` slices ends at slice i.
        let (mut remaining, mut longest) = (!0, 0);
        while k > 0 {
            k -= 1;
            let longer = if longest < 32 { remaining & ends[k] << longest } else { 0 };
            if longer != 0 {
                (remaining, longest) = (longer, longest + (1 << k));
            }
        }
        Self::new(mask.trailing_ones() as usize, longest, mask.leading_ones() as usize)
    }

    const fn part(self, index: u32) -> usize {
        (self.0 >> (index * BITS)) as usize & ((1 << BITS) - 1)
    }

    pub(super) const fn start(self) -> usize {
        self.part(0)
    }

    pub(super) const fn longest(self) -> usize {
        self.part(1)
    }

    pub(super) const fn end(self) -> usize {
        self.part(2)
    }

    /// For each of the three counts, the greater of the two values.
    pub(super) fn max(self, other: Self) -> Self {
        Self::new(
            self.start().max(other.start()),
            self.longest().max(other.longest()),
            self.end().max(other.end()),
        )
    }
}

/// The free slices in a page: one bit per slice, and above these bits the three counts of
/// [`Free`], 6 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct PageFree(pub(super) u64);

const PAGE_BITS: u32 = 6;

impl PageFree {
    pub(super) const fn of_mask(mask: u32) -> Self {
        let free = Free::of_mask(mask);
        let (start, longest, end) = (free.start() as u64, free.longest() as u64, free.end() as u64);
        let numbers = start | longest << PAGE_BITS | end << (2 * PAGE_BITS);
        Self(mask as u64 | numbers << u32::BITS)
    }

    pub(super) const fn mask(self) -> u32 {
        self.0 as u32
    }

    pub(super) const fn free(self) -> Free {
        let numbers = (self.0 >> u32::BITS) as usize;
        let most = (1 << PAGE_BITS) - 1;
        Free::new(numbers & most, numbers >> PAGE_BITS & most, numbers >> (2 * PAGE_BITS) & most)
    }
}

/// Computes the counts of a group from the words of its `parts`, which have `width` slices each.
#[inline(always)]
pub(super) fn join(parts: &[AtomicU64], width: usize, read: impl Fn(u64) -> Free) -> Free {
    let (mut start, mut longest, mut run, mut all) = (0, 0, 0, 0);
    for part in parts {
        let free = read(part.load(SeqCst));
        let (first, is_full) = (free.start().min(width), free.start() >= width);
        start += if start == all { first } else { 0 };
        longest = longest.max(free.longest().min(width)).max(run + first);
        run = if is_full { run + width } else { free.end().min(width) };
        all += width;
    }
    Free::new(start, longest, run)
}

/// Makes the counts in a page's word consistent with its bits. They are inconsistent only if
/// another process has corrupted the word. Without this correction, every search would follow a
/// run that does not exist.
pub(super) fn make_consistent(page: &AtomicU64) {
    let word = page.load(SeqCst);
    let consistent = PageFree::of_mask(PageFree(word).mask()).0;
    if word != consistent {
        let _ = page.compare_exchange(word, consistent, SeqCst, SeqCst);
    }
}
