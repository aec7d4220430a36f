//! Free slots as they are counted, and live blocks as the words tell them.

use loom::sync::Arc;
use loom::thread;

use super::{Ground, model};
use crate::protocol::count;
use crate::protocol::word::{Slot, SlotWord};
use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// A span of two slots with their count.
struct Counted {
    ground: Ground,
    free: AtomicU32,
}

impl Counted {
    /// With slot 1 held by cache 2.
    fn new() -> Arc<Self> {
        let ground = Ground::with_span();
        assert!(ground.slots().claim_one(1, 2));
        Arc::new(Self { ground, free: AtomicU32::new(1) })
    }

    /// What a refill does: claims a slot, then counts it.
    fn claim(&self, slot: usize, me: u16) -> bool {
        let is_mine = self.ground.slots().claim_one(slot, me);
        if is_mine {
            count::claimed(&self.free, 1);
        }
        is_mine
    }

    /// What a flush does: frees a slot, then counts it; what was counted then.
    fn free(&self, slot: usize, me: u16) -> i32 {
        assert!(self.ground.slots().release(slot, me));
        count::freed(&self.free, 1).1
    }

    fn correct(&self) {
        count::correct(&self.free, &self.ground.slots());
    }

    fn is_right(&self) -> bool {
        count::seen(&self.free) == self.ground.slots().count_free() as i32
    }
}

#[test]
fn a_count_is_right_when_all_is_quiet() {
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
fn of_two_that_free_the_last_slots_one_sees_that_the_span_is_free() {
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

/// Who counts a moment after it freed can be overtaken by who corrects: then the next look makes it
/// right.
#[test]
fn a_count_that_was_corrected_beside_others_is_right_after_the_next_look() {
    model(|| {
        let span = Counted::new();
        let other = span.clone();
        let thread = thread::spawn(move || {
            other.correct();
            other.claim(0, 3);
        });
        span.claim(0, 1);
        span.free(1, 2);
        // Off by what was on its way at most.
        thread.join().unwrap();
        let off = count::seen(&span.free) - span.ground.slots().count_free() as i32;
        assert!(off.abs() <= 2, "{off}");
        span.correct();
        assert!(span.is_right());
    });
}

/// Blocks of a tag by the words, as statistics count them.
fn live(ground: &Ground, wanted: u8) -> usize {
    let is_live =
        |slot: &usize| matches!(ground.slot(*slot), Slot::Live { tag, .. } if tag == wanted);
    (0..ground.slots().count()).filter(is_live).count()
}

/// One process allocates under a tag while another frees what the first had allocated: who looks
/// meanwhile sees no block twice, and when all is quiet the words say what lives, by tag.
#[test]
fn statistics_are_what_lives_when_all_is_quiet() {
    model(|| {
        let ground = Arc::new(Ground::with_span());
        // A block of process 1 under tag 5, which process 2 frees into its cache.
        ground.words[1].store(SlotWord::live(1, 5).0, Relaxed);
        let other = ground.clone();
        let thread = thread::spawn(move || {
            other.words[1].store(SlotWord::cached(2).0, Relaxed);
            other.slots().release(1, 2);
        });
        if ground.slots().claim_one(0, 1) {
            ground.words[0].store(SlotWord::live(1, 6).0, Release);
        }
        assert!(live(&ground, 5) <= 1 && live(&ground, 6) == 1);
        if ground.slots().claim_one(1, 1) {
            ground.words[1].store(SlotWord::live(1, 6).0, Release);
        }
        thread.join().unwrap();
        let taken = usize::from(ground.words[1].load(Acquire) != SlotWord::FREE.0);
        assert_eq!((live(&ground, 5), live(&ground, 6)), (0, 1 + taken));
    });
}
