//! The ring from the callers to the helper thread, and the claims of pieces.
//!
//! The ring has at least as many places as there are slots, and a slot is in it at most once, so
//! it is never full: a caller takes a place by one addition, and waits for nothing.
//!
//! A place holds all that the helper thread needs, in one cache line, which only callers write: one
//! transfer per operation. A caller asks early for the lines of the places that come next, because
//! the thread has read them in the lap before.

use haul_copy::Hint;

use crate::operation::{Operation, Request};
use crate::slots::{Generation, Index};
use crate::sync::{
    AcqRel, Acquire, Alone, AtomicU32, AtomicU64, Cell, Relaxed, Release, take_line,
};

/// How many places ahead a caller asks for a line: a submission takes about as long as a transfer.
const AHEAD: u32 = 3;

/// An operation in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) index: Index,
    pub(crate) generation: Generation,
    pub(crate) request: Request,
}

/// Operations in the order in which they were submitted. Many threads put, one thread takes.
#[derive(Debug)]
pub(crate) struct Ring {
    places: Box<[Place]>,
    /// The number of operations that were put.
    tail: Alone<AtomicU32>,
    /// The number of operations that were taken. Only the thread that takes uses it.
    head: Alone<AtomicU32>,
}

/// A place on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    /// The number of operations that were put before this one, plus 1. Of an earlier lap until the
    /// entry is there.
    count: AtomicU32,
    entry: Cell<Entry>,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Place>() == 64);

impl Ring {
    /// A ring for this many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let nothing = Operation::Fill { target: std::ptr::null_mut(), byte: 0, length: 0 };
        let request = Request { operation: nothing, hint: Hint::Unknown };
        let entry = Entry { index: Index(0), generation: Generation::default(), request };
        let place = |_| Place { count: AtomicU32::new(0), entry: Cell::new(entry) };
        Self {
            places: (0..slots.next_power_of_two()).map(place).collect(),
            tail: Alone(AtomicU32::new(0)),
            head: Alone(AtomicU32::new(0)),
        }
    }

    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Puts an operation whose slot is not in the ring.
    pub(crate) fn put(&self, entry: Entry) {
        // SYNC: place emptied. Since this place was put last, more operations were put than there
        // are slots. So a slot was used twice, after the helper thread, which takes them in order,
        // had let go of an operation that it took after this place's. This thread sees that through
        // the additions between.
        let number = self.tail.0.fetch_add(1, AcqRel);
        take_line(self.place(number.wrapping_add(AHEAD)));
        let place = self.place(number);
        // SAFETY: the thread has taken the entry before, and no other caller has this number.
        unsafe { place.entry.set(entry) };
        // SYNC: request published
        place.count.store(number.wrapping_add(1), Release);
    }

    /// Whether there is a next operation. Only the thread that takes them calls this.
    pub(crate) fn has_next(&self) -> bool {
        let next = self.head.0.load(Relaxed).wrapping_add(1);
        self.place(next.wrapping_sub(1)).count.load(Relaxed) == next
    }

    /// Takes the next operation; `None` if there is none yet. Only one thread calls this.
    pub(crate) fn take(&self) -> Option<Entry> {
        let next = self.head.0.load(Relaxed).wrapping_add(1);
        let place = self.place(next.wrapping_sub(1));
        // SYNC: request published
        if place.count.load(Acquire) != next {
            return None;
        }
        // SAFETY: the entry is there, and its place is put again only after this thread has let go
        // of this operation or of a later one.
        let entry = unsafe { place.entry.get() };
        self.head.0.store(next, Relaxed);
        Some(entry)
    }
}

/// The pieces of an operation that were claimed and done, in the word of its slot: those from the
/// front, those from the back, and those that are done, in 21 bits each.
const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;
const BACK: u64 = 1 << BITS;
const DONE: u64 = 1 << (2 * BITS);

/// The largest number of pieces of an operation.
pub(crate) const PIECES_MAX: u32 = MASK as u32;

/// Claims the next piece from the front. Only the helper thread calls this.
pub(crate) fn claim_front(word: &AtomicU64, pieces: u32) -> Option<u32> {
    claim(word, pieces, 1).map(|(front, _)| front)
}

/// Claims the next piece from the back. Only the waiting caller calls this.
pub(crate) fn claim_back(word: &AtomicU64, pieces: u32) -> Option<u32> {
    claim(word, pieces, BACK).map(|(_, back)| pieces - 1 - back)
}

/// Adds `one` to the word unless every piece is claimed. Returns the claims before.
fn claim(word: &AtomicU64, pieces: u32, one: u64) -> Option<(u32, u32)> {
    let mut now = word.load(Relaxed);
    loop {
        let (front, back) = ((now & MASK) as u32, (now >> BITS & MASK) as u32);
        if front + back >= pieces {
            return None;
        }
        match word.compare_exchange_weak(now, now + one, Relaxed, Relaxed) {
            Ok(_) => return Some((front, back)),
            Err(changed) => now = changed,
        }
    }
}

/// Counts a piece as done. Returns whether it was the last one; then everything that both threads
/// wrote is visible.
pub(crate) fn complete(word: &AtomicU64, pieces: u32) -> bool {
    // SYNC: pieces done
    let done = (word.fetch_add(DONE, AcqRel) >> (2 * BITS)) as u32 + 1;
    done == pieces
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn entry(number: u32) -> Entry {
        let length = number as usize;
        let operation = Operation::Fill { target: std::ptr::null_mut(), byte: 0, length };
        let request = Request { operation, hint: Hint::Unknown };
        Entry { index: Index(number), generation: Generation::default(), request }
    }

    #[test]
    fn ring_keeps_the_order_over_many_laps() {
        let ring = Ring::new(3);
        let take = || ring.take().map(|entry| (entry.index, entry.request));
        for lap in 0..100 {
            assert!(!ring.has_next());
            let (first, second) = (entry(lap), entry(lap + 1));
            ring.put(first);
            ring.put(second);
            for put in [first, second] {
                assert!(ring.has_next());
                assert_eq!(take(), Some((put.index, put.request)));
            }
            assert_eq!(take(), None);
        }
    }

    #[test]
    fn both_sides_claim_every_piece_once() {
        let word = AtomicU64::new(0);
        let mut claimed = [claim_front(&word, 5), claim_back(&word, 5), claim_front(&word, 5)];
        claimed.sort_unstable();
        assert_eq!(claimed, [Some(0), Some(1), Some(4)]);
        assert_eq!((claim_back(&word, 5), claim_back(&word, 5)), (Some(3), Some(2)));
        assert_eq!((claim_back(&word, 5), claim_front(&word, 5)), (None, None));
        let ends: Vec<_> = (0..5).map(|_| complete(&word, 5)).collect();
        assert_eq!(ends, [false, false, false, false, true]);
    }
}
