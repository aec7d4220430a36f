//! The count of free slots, and the number of live blocks that the slot words show.

use loom::sync::Arc;
use loom::thread;

use super::{OneSlice, model};
use crate::protocol::count;
use crate::protocol::word::{Slot, SlotWord};
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// A span of two slots, and its count of free slots.
struct Counted {
    slice: OneSlice,
    free: AtomicU32,
}

impl Counted {
    /// A span. Cache 2 holds its slot 1.
    fn new() -> Arc<Self> {
        let slice = OneSlice::with_span();
        assert!(slice.slots().claim_one(1, 2));
        Arc::new(Self { slice, free: AtomicU32::new(1) })
    }

    /// Claims a slot, then counts it, like a refill.
    fn claim(&self, slot: usize, me: u16) -> bool {
        let is_mine = self.slice.slots().claim_one(slot, me);
        if is_mine {
            count::claimed(&self.free, 1);
        }
        is_mine
    }

    /// Frees a slot, then counts it, like a flush. Returns the new count.
    fn free(&self, slot: usize, me: u16) -> i32 {
        assert!(self.slice.slots().release(slot, me));
        count::freed(&self.free, 1).1
    }

    fn correct(&self) {
        count::correct(&self.free, &self.slice.slots());
    }

    fn is_right(&self) -> bool {
        count::seen(&self.free) == self.slice.slots().count_free() as i32
    }
}

#[test]
fn count_is_right_after_concurrent_changes() {
    model(|| {
        let span = Counted::new();
        let other = span.clone();
        let thread = thread::spawn(move || other.free(1, 2));
        span.claim(0, 1);
        span.claim(1, 1);
        thread.join().unwrap();
        assert!(span.is_right(), "{}", count::seen(&span.free));
    });
}

#[test]
fn one_of_two_final_frees_sees_the_empty_span() {
    model(|| {
        let span = Counted::new();
        assert!(span.claim(0, 1));
        let other = span.clone();
        let thread = thread::spawn(move || other.free(1, 2) == 2);
        let first = span.free(0, 1) == 2;
        assert!(first != thread.join().unwrap());
        assert!(span.is_right());
    });
}

/// A correction can happen after a free and before the freed slot is counted. The next correction
/// makes the count right.
#[test]
fn count_is_right_after_a_second_correction() {
    model(|| {
        let span = Counted::new();
        let other = span.clone();
        let thread = thread::spawn(move || {
            other.correct();
            other.claim(0, 3);
        });
        span.claim(0, 1);
        span.free(1, 2);
        // The error of the count is at most the number of concurrent changes.
        thread.join().unwrap();
        let off = count::seen(&span.free) - span.slice.slots().count_free() as i32;
        assert!(off.abs() <= 2, "{off}");
        span.correct();
        assert!(span.is_right());
    });
}

/// The number of live blocks with a tag, counted from the slot words like in the statistics.
fn live(slice: &OneSlice, wanted: u8) -> usize {
    let is_live =
        |slot: &usize| matches!(slice.slot(*slot), Slot::Live { tag, .. } if tag == wanted);
    (0..slice.slots().count()).filter(is_live).count()
}

/// One process allocates with a tag, while another process frees a block of the first. A
/// concurrent reader counts no block twice. Afterwards, the words show the live blocks of each
/// tag.
#[test]
fn statistics_equal_live_blocks_after_concurrent_changes() {
    model(|| {
        let slice = Arc::new(OneSlice::with_span());
        // A block of process 1 with tag 5. Process 2 frees it into its own cache.
        slice.words[1].store(SlotWord::live(1, 5).0, Relaxed);
        let other = slice.clone();
        let thread = thread::spawn(move || {
            other.words[1].store(SlotWord::cached(2).0, Relaxed);
            other.slots().release(1, 2);
        });
        if slice.slots().claim_one(0, 1) {
            slice.words[0].store(SlotWord::live(1, 6).0, Release);
        }
        assert!(live(&slice, 5) <= 1 && live(&slice, 6) == 1);
        if slice.slots().claim_one(1, 1) {
            slice.words[1].store(SlotWord::live(1, 6).0, Release);
        }
        thread.join().unwrap();
        let taken = usize::from(slice.words[1].load(Acquire) != SlotWord::FREE.0);
        assert_eq!((live(&slice, 5), live(&slice, 6)), (0, 1 + taken));
    });
}
