//! The ring from the callers to the helper thread, and the claims of pieces.
//!
//! The ring has at least as many places as there are slots, and a slot is in it at most once, so
//! it is never full: a caller takes a place by one addition, and waits for nothing.

use crate::slots::Index;
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Relaxed, Release};

/// Slots in the order in which they were submitted. Many threads put, one thread takes.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Each place holds the number of a slot plus 1, or 0.
    places: Box<[Place]>,
    /// The number of slots that were put.
    tail: Alone<AtomicU32>,
    /// The number of slots that were taken. Only the thread that takes uses it.
    head: Alone<AtomicU32>,
}

/// A place on a line of its own: the thread that puts the next slot does not disturb the thread
/// that takes this one.
type Place = Alone<AtomicU32>;

/// A value on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Alone<T>(pub(crate) T);

impl Ring {
    /// A ring for this many slots.
    pub(crate) fn new(slots: usize) -> Self {
        let places = slots.next_power_of_two();
        Self {
            places: (0..places).map(|_| Alone(AtomicU32::new(0))).collect(),
            tail: Alone(AtomicU32::new(0)),
            head: Alone(AtomicU32::new(0)),
        }
    }

    fn place(&self, number: u32) -> &AtomicU32 {
        &self.places[number as usize & (self.places.len() - 1)].0
    }

    /// Puts a slot that is not in the ring.
    pub(crate) fn put(&self, index: Index) {
        // SYNC: place emptied. The thread that puts into a place one lap later sees, through the
        // additions between, that the place was taken.
        let number = self.tail.0.fetch_add(1, AcqRel);
        // SYNC: request published
        self.place(number).store(index.0 + 1, Release);
    }

    /// Takes the next slot; `None` if there is none yet. Only one thread calls this.
    pub(crate) fn take(&self) -> Option<Index> {
        let head = self.head.0.load(Relaxed);
        let place = self.place(head);
        // SYNC: request published
        let number = place.load(Acquire).checked_sub(1)?;
        // SYNC: place emptied. The slot is put again only after this thread has let go of it.
        place.store(0, Relaxed);
        self.head.0.store(head.wrapping_add(1), Relaxed);
        Some(Index(number))
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

    #[test]
    fn ring_keeps_the_order_over_many_laps() {
        let ring = Ring::new(3);
        for lap in 0..100 {
            let (first, second) = (Index(lap % 3), Index((lap + 1) % 3));
            ring.put(first);
            ring.put(second);
            assert_eq!((ring.take(), ring.take(), ring.take()), (Some(first), Some(second), None));
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
