//! The count of free slots, and the number of live blocks according to their words.

use loom::sync::Arc;
use loom::thread;

use super::{OneSlice, model};
use crate::protocol::count;
use crate::protocol::word::{Slot, SlotWord};
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// A span of two slots with their count.
struct Counted {
    slice: OneSlice,
    free: AtomicU32,
}

impl Counted {
    /// A span with slot 1 held by cache 2.
    fn new() -> Arc<Self> {
        let slice = OneSlice::with_span();
        assert!(slice.slots().claim_one(1, 2));
        Arc::new(Self { slice, free: AtomicU32::new(1) })
    }

    /// Like a refill, claims a slot, then counts it.
    fn claim(&self, slot: usize, me: u16) -> bool {
        let is_mine = self.slice.slots().claim_one(slot, me);
        if is_mine {
            count::claimed(&self.free, 1);
        }
        is_mine
    }

    /// Like a flush, frees a slot, then counts it. Returns the count after that.
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

/// A correction can come between a free and its count. The next correction makes the count right.
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
        // The error is at most the number of concurrent changes.
        thread.join().unwrap();
        let off = count::seen(&span.free) - span.slice.slots().count_free() as i32;
        assert!(off.abs() <= 2, "{off}");
        span.correct();
        assert!(span.is_right());
    });
}

/// The number of blocks with a tag, by the slot words, as statistics count them.
fn live(slice: &OneSlice, wanted: u8) -> usize {
    let is_live =
        |slot: &usize| matches!(slice.slot(*slot), Slot::Live { tag, .. } if tag == wanted);
    (0..slice.slots().count()).filter(is_live).count()
}

/// One process allocates under a tag while another frees a block of the first. A concurrent reader
/// sees no block twice, and afterwards the words show the live blocks, by tag.
#[test]
fn statistics_equal_live_blocks_after_concurrent_changes() {
    model(|| {
        let slice = Arc::new(OneSlice::with_span());
        // A block of process 1 under tag 5, which process 2 frees into its cache.
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
