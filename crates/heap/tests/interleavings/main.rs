//! Runs the protocols with loom, in every order in which threads can run, with up to three
//! preemptions: `RUSTFLAGS="--cfg loom" cargo test -p haul-heap --test interleavings --release`.
//!
//! The library's source is compiled here again, with loom's atomics (`sync`) instead of the
//! processor's.
//!
//! - `records`: processes and caches that join, leave and are reaped;
//! - `counts`: counts of free slots, and of live blocks;
//! - `words`: words that a signal handler reads.
#![cfg(loom)]

mod counts;
#[expect(dead_code, reason = "the models use only the functions that threads call concurrently")]
#[path = "../../src/protocol/mod.rs"]
mod protocol;
mod records;
mod sync;
mod words;

use std::ops::Range;

use loom::sync::Arc;
use loom::thread;

use protocol::bitmap::{Bitmap, bitmap_words};
use protocol::class::Class;
use protocol::holders::Holders;
use protocol::runs::{self, Runs, Wanted, group_words};
use protocol::slot::Slots;
use protocol::span::{self, Outcome};
use protocol::word::{PageWord, Slice, SliceWord, Slot, SlotWord};
use protocol::{page, slice};
use sync::{
    AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

/// A class with spans of two slots in one slice.
const SMALL: Class = Class { size: 64, span_slices: 1, span_slots: 2, shift: 6, bin_slots: 4 };

/// One slice, with the words of its two slots.
struct OneSlice {
    slices: Vec<AtomicU64>,
    words: Vec<AtomicU16>,
}

impl OneSlice {
    fn new(slices: usize) -> Self {
        Self {
            slices: (0..slices).map(|_| AtomicU64::new(0)).collect(),
            words: (0..2).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// A slice with a span that cache 9 has built.
    fn with_span() -> Self {
        let shared = Self::new(1);
        slice::claim(&shared.slices, 0..1, 9).unwrap();
        slice::begin_span(&shared.slices, 0..1, 0, 9);
        slice::finish_span(&shared.slices, 0, 0);
        shared
    }

    fn slots(&self) -> Slots<'_> {
        Slots::new(&self.words, 0, &SMALL)
    }

    fn take_apart(&self, me: u16) -> Outcome {
        let seen = slice::word(&self.slices, 0);
        if !seen.is_span() {
            return Outcome::Gone;
        }
        span::take_apart(&self.slices, 0..1, seen, &self.slots(), me)
    }

    /// Claims a slot, and keeps it if the span has not changed, like a refill.
    fn refill(&self, me: u16) -> Option<usize> {
        let seen = slice::word(&self.slices, 0);
        if !seen.is_span() {
            return None;
        }
        let mut taken = None;
        self.slots().claim(0, me, |slot| {
            taken = Some(slot);
            false
        });
        let slot = taken?;
        if slice::word(&self.slices, 0) == seen {
            return Some(slot);
        }
        self.slots().release(slot, me);
        None
    }

    fn slot(&self, slot: usize) -> Slot {
        self.slots().get(slot).decode()
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// A thread that finds a slice in use learns whether a holder has hidden it.
#[test]
fn failed_search_learns_of_holder() {
    model(|| {
        let shared = Arc::new((OneSlice::new(1), Holders::new()));
        let other = Arc::clone(&shared);
        let holder = thread::spawn(move || {
            let (one, holders) = &*other;
            holders.enter();
            if slice::claim(&one.slices, 0..1, 2).is_ok() {
                slice::unclaim(&one.slices, 0..1, 2);
            }
            holders.leave();
        });
        let (one, holders) = &*shared;
        let before = holders.before();
        let is_found = slice::claim(&one.slices, 0..1, 1).is_ok();
        assert!(is_found || holders.held_since(before));
        holder.join().unwrap();
        assert!(!holders.is_held());
        assert!(is_found || slice::claim(&one.slices, 0..1, 1).is_ok());
    });
}

#[test]
fn overlapping_claims_lose_no_slice() {
    model(|| {
        let shared = Arc::new(OneSlice::new(3));
        let other = shared.clone();
        let thread = thread::spawn(move || slice::claim(&other.slices, 1..3, 2).is_ok());
        let first = slice::claim(&shared.slices, 0..2, 1).is_ok();
        let second = thread.join().unwrap();
        assert!(!(first && second));
        let holder = |index| slice::word(&shared.slices, index).decode();
        let expect =
            |is_claimed, cache| if is_claimed { Slice::Claimed(cache) } else { Slice::Free };
        assert_eq!(holder(0), expect(first, 1));
        assert_eq!(holder(2), expect(second, 2));
        assert_eq!(holder(1), if first { Slice::Claimed(1) } else { expect(second, 2) });
    });
}

/// Claims slices of a page and gets its memory, like a request. Returns whether it succeeded.
fn claim_ready(page: &AtomicU64, slices: &[AtomicU64], run: Range<usize>, me: u16) -> bool {
    slice::claim(slices, run.clone(), me).is_ok()
        && page::keep_claims(slices, &run, me, || page::make_ready(page, me, provide)).is_ok()
}

/// Claims a page without memory, and gets memory for it.
fn map(page: &AtomicU64, me: u16) -> bool {
    page::map(page, me, provide).is_ok()
}

fn provide() -> Result<PageWord, page::Refused> {
    Ok(PageWord::ready(1))
}

#[test]
fn whole_page_claim_and_slice_claim_exclude_each_other() {
    model(|| {
        let (shared, page) = (Arc::new(OneSlice::new(2)), Arc::new(AtomicU64::new(0)));
        let (other, theirs) = (shared.clone(), page.clone());
        let thread = thread::spawn(move || claim_ready(&theirs, &other.slices, 0..1, 2));
        let ready = PageWord::ready(1);
        let whole = map(&page, 1) && slice::claim_mapped(&page, ready, &shared.slices, &(0..2), 1);
        let one = thread.join().unwrap();
        assert!(!(whole && one));
        let expected = match (whole, one) {
            (true, _) => [Slice::Claimed(1); 2],
            (_, true) => [Slice::Claimed(2), Slice::Free],
            _ => [Slice::Free; 2],
        };
        let found = [0, 1].map(|index| slice::word(&shared.slices, index).decode());
        assert_eq!(found, expected);
        assert!(PageWord(page.load(Acquire)).is_ready() || !(whole || one));
    });
}

/// Claims an idle page, drains it and leaves it absent, like the upkeep. Returns whether it did.
fn drain(page: &AtomicU64, slices: &[AtomicU64], run: Range<usize>, me: u16) -> bool {
    if slice::claim(slices, run.clone(), me).is_err() {
        return false;
    }
    let is_gone = page::drain(page, slices, &run, me, None, |_| true);
    slice::unclaim(slices, run, me);
    is_gone
}

#[test]
fn drained_page_that_is_claimed_as_a_whole_has_one_owner() {
    model(|| {
        let (shared, page) = (Arc::new(OneSlice::new(2)), Arc::new(AtomicU64::new(0)));
        page.store(PageWord::ready(1).0, Relaxed);
        let (other, theirs) = (shared.clone(), page.clone());
        let thread = thread::spawn(move || drain(&theirs, &other.slices, 0..2, 2));
        let ready = PageWord::ready(1);
        let is_mapped = map(&page, 1);
        let whole = is_mapped && slice::claim_mapped(&page, ready, &shared.slices, &(0..2), 1);
        let is_drained = thread.join().unwrap();
        // No other thread could prevent this.
        assert!(is_drained);
        let expected = if whole { [Slice::Claimed(1); 2] } else { [Slice::Free; 2] };
        let found = [0, 1].map(|index| slice::word(&shared.slices, index).decode());
        assert_eq!(found, expected);
        assert_eq!(PageWord(page.load(Acquire)).is_ready(), is_mapped);
    });
}

/// Reaps a page that the cache `dead` claimed, like a reaper: first the page, then each slice.
fn reap(page: &AtomicU64, slices: &[AtomicU64], dead: u16) {
    let word = PageWord(page.load(Acquire));
    page::reap(page, word, |cache| cache == dead, PageWord::ABSENT);
    for (index, claimed) in slices.iter().enumerate() {
        let word = slice::word(slices, index);
        if word.decode() == Slice::Claimed(dead) {
            slice::reap_claim(claimed, word);
        }
    }
}

#[test]
fn reaped_claims_become_free_or_belong_to_the_new_page_owner() {
    model(|| {
        let (shared, page) = (Arc::new(OneSlice::new(2)), Arc::new(AtomicU64::new(0)));
        // The cache died while it was claiming the slices of a page that it had mapped.
        assert!(map(&page, 3));
        shared.slices[0].store(SliceWord::claimed(0, 3).0, Relaxed);
        let (other, theirs) = (shared.clone(), page.clone());
        let thread = thread::spawn(move || reap(&theirs, &other.slices, 3));
        let ready = PageWord::ready(1);
        let is_mapped = map(&page, 1);
        let whole = is_mapped && slice::claim_mapped(&page, ready, &shared.slices, &(0..2), 1);
        thread.join().unwrap();
        let expected = if whole { [Slice::Claimed(1); 2] } else { [Slice::Free; 2] };
        let found = [0, 1].map(|index| slice::word(&shared.slices, index).decode());
        assert_eq!(found, expected);
        assert_eq!(PageWord(page.load(Acquire)).is_ready(), is_mapped);
    });
}

#[test]
fn builder_of_a_span_keeps_its_slots() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let other = shared.clone();
        let thread = thread::spawn(move || {
            if other.take_apart(2) != Outcome::Done {
                return false;
            }
            slice::claim(&other.slices, 0..1, 2).unwrap();
            slice::begin_span(&other.slices, 0..1, 0, 2);
            other.slots().hold(1, 2);
            slice::finish_span(&other.slices, 0, 0);
            true
        });
        let mine = shared.refill(1);
        let is_built = thread.join().unwrap();
        if is_built {
            assert_eq!(shared.slot(0), Slot::Cached(2));
            let second = if mine == Some(1) { Slot::Cached(1) } else { Slot::Free };
            assert!(mine != Some(0) && shared.slot(1) == second);
        } else if let Some(slot) = mine {
            assert_eq!(shared.slot(slot), Slot::Cached(1));
        }
    });
}

#[test]
fn one_of_two_claims_gets_the_slot() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let other = shared.clone();
        let thread = thread::spawn(move || other.slots().claim_one(0, 2));
        let first = shared.slots().claim_one(0, 1);
        let second = thread.join().unwrap();
        assert!(first != second);
        assert_eq!(shared.slot(0), Slot::Cached(if first { 1 } else { 2 }));
    });
}

#[test]
fn refill_during_take_apart_gets_a_slot_or_none() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let other = shared.clone();
        let thread = thread::spawn(move || other.take_apart(2));
        let taken = shared.refill(1);
        let outcome = thread.join().unwrap();
        match taken {
            Some(slot) => {
                assert_eq!(outcome, Outcome::InUse);
                assert_eq!(shared.slot(slot), Slot::Cached(1));
                assert_eq!(shared.slot(1 - slot), Slot::Free);
                assert!(slice::word(&shared.slices, 0).is_span());
            }
            None => {
                assert_eq!([shared.slot(0), shared.slot(1)], [Slot::Free; 2]);
                let word = slice::word(&shared.slices, 0);
                assert!(if outcome == Outcome::Done { word.is_free() } else { word.is_span() });
            }
        }
    });
}

#[test]
fn refill_detects_a_rebuilt_span() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let other = shared.clone();
        let thread = thread::spawn(move || {
            if other.take_apart(2) != Outcome::Done {
                return None;
            }
            slice::claim(&other.slices, 0..1, 2).unwrap();
            slice::begin_span(&other.slices, 0..1, 0, 2);
            slice::finish_span(&other.slices, 0, 0);
            other.refill(2)
        });
        let mine = shared.refill(1);
        let theirs = thread.join().unwrap();
        assert!(mine.is_none() || mine != theirs);
        for (slot, cache) in [(mine, 1), (theirs, 2)] {
            if let Some(slot) = slot {
                assert_eq!(shared.slot(slot), Slot::Cached(cache));
            }
        }
        let held = (0..2).filter(|slot| shared.slot(*slot) != Slot::Free).count();
        assert_eq!(held, usize::from(mine.is_some()) + usize::from(theirs.is_some()));
    });
}

#[test]
fn at_most_one_of_two_takes_a_span_apart() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let other = shared.clone();
        let thread = thread::spawn(move || other.take_apart(2));
        let first = shared.take_apart(1);
        let second = thread.join().unwrap();
        assert!(first != Outcome::Done || second != Outcome::Done);
        assert_eq!([shared.slot(0), shared.slot(1)], [Slot::Free; 2]);
        let is_done = first == Outcome::Done || second == Outcome::Done;
        let word = slice::word(&shared.slices, 0);
        assert!(if is_done { word.is_free() } else { word.is_span() });
    });
}

#[test]
fn one_of_two_frees_of_a_large_block_succeeds() {
    model(|| {
        let shared = OneSlice::new(2);
        slice::claim(&shared.slices, 0..2, 9).unwrap();
        slice::build_large(&shared.slices, 0..2, (0, 0), 9);
        let shared = Arc::new(shared);
        let free = |slices: &[AtomicU64], me| {
            let seen = slice::word(slices, 0);
            let is_large = matches!(seen.decode(), Slice::Large { length: 2, .. });
            let is_mine = is_large && slice::seize(slices, 0..2, seen, me);
            if is_mine {
                slice::dissolve(slices, 0..2, me);
            }
            is_mine
        };
        let other = shared.clone();
        let thread = thread::spawn(move || free(&other.slices, 2));
        let first = free(&shared.slices, 1);
        assert!(first != thread.join().unwrap());
        for index in 0..2 {
            let word = slice::word(&shared.slices, index);
            assert_eq!((word.decode(), word.generation()), (Slice::Free, 1));
        }
    });
}

#[test]
fn next_owner_sees_writes_before_the_free() {
    model(|| {
        let shared = Arc::new(OneSlice::with_span());
        let data = Arc::new(loom::cell::UnsafeCell::new(0));
        assert!(shared.slots().claim_one(0, 2));
        let (other, theirs) = (shared.clone(), data.clone());
        let thread = thread::spawn(move || {
            // SAFETY: cache 2 owns the slot and its content until it releases the slot.
            theirs.with_mut(|content| unsafe { *content = 7 });
            other.slots().release(0, 2);
        });
        if shared.slots().claim_one(0, 1) {
            // SAFETY: cache 1 owns the slot now.
            data.with(|content| assert_eq!(unsafe { *content }, 7));
        }
        thread.join().unwrap();
        assert_ne!(shared.slots().get(0), SlotWord::cached(2));
    });
}

#[test]
fn bit_set_during_a_clear_is_found() {
    model(|| {
        let words: Vec<AtomicU64> = (0..bitmap_words(130)).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        Bitmap::new(&words, 130).set(65);
        let other = words.clone();
        let thread = thread::spawn(move || Bitmap::new(&other, 130).clear(65));
        let bitmap = Bitmap::new(&words, 130);
        bitmap.set(66);
        assert!(thread.join().unwrap());
        assert_eq!(bitmap.next(0, 130), Some(66));
    });
}

/// A heap of two pages of one slice, with its hints.
struct Noted {
    slices: Vec<AtomicU64>,
    pages: Vec<AtomicU64>,
    groups: Vec<AtomicU64>,
}

impl Noted {
    fn new() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let noted = Self { slices: words(2), pages: words(2), groups: words(group_words(2)) };
        slice::claim(&noted.slices, 0..2, 9).unwrap();
        noted.note(0);
        noted
    }

    fn runs(&self) -> Runs<'_> {
        Runs::new(&self.pages, &self.groups, 0, 1)
    }

    fn free_mask(&self, page: usize) -> u32 {
        u32::from(slice::word(&self.slices, page).is_free())
    }

    fn note(&self, page: usize) {
        self.runs().note(page, || self.free_mask(page));
    }

    /// Records a page's free slices, like a search that the page's word has misled.
    fn note_page(&self, page: usize) {
        self.runs().note_page(page, || self.free_mask(page));
    }

    /// Frees the slice of a page, and records this.
    fn free(&self, page: usize) {
        slice::unclaim(&self.slices, page..page + 1, 9);
        if runs::freed(&self.pages[page], 1).is_some() {
            self.runs().raise_groups(page);
        }
    }

    fn finds(&self, count: usize) -> Option<usize> {
        // More pages than exist, so that the search begins at the groups.
        let wanted = Wanted { count, align: 1, from: 0, end: 9, tries: 1 };
        self.runs().find(&wanted)
    }
}

#[test]
fn adjacent_slices_freed_concurrently_form_one_run() {
    model(|| {
        let noted = Arc::new(Noted::new());
        let other = noted.clone();
        let thread = thread::spawn(move || other.free(1));
        noted.free(0);
        thread.join().unwrap();
        assert_eq!(noted.finds(2), Some(0));
    });
}

#[test]
fn slice_freed_while_its_page_is_noted_full_is_found() {
    model(|| {
        let noted = Arc::new(Noted::new());
        noted.free(1);
        // The slice is claimed without recording this, like in a request, so the hints are stale.
        slice::claim(&noted.slices, 1..2, 9).unwrap();
        let other = noted.clone();
        let thread = thread::spawn(move || other.note_page(1));
        noted.free(1);
        thread.join().unwrap();
        assert_eq!(noted.finds(1), Some(1));
    });
}

#[test]
fn slice_freed_during_failed_group_search_is_found() {
    model(|| {
        let noted = Arc::new(Noted::new());
        noted.free(1);
        slice::claim(&noted.slices, 1..2, 9).unwrap();
        // The page's word is right, but the group's word reports too many free slices. The search
        // corrects the group.
        noted.note_page(1);
        let other = noted.clone();
        let thread = thread::spawn(move || other.finds(1));
        noted.free(1);
        assert!(thread.join().unwrap().is_none_or(|found| found == 1));
        assert_eq!(noted.finds(1), Some(1));
    });
}

/// loom runs the search last, and lets each of its loads read any value that it may. The other way
/// around it would try no other order: it remembers only the last access to a word.
#[test]
fn search_beside_a_free_does_not_find_the_middle_of_a_hole() {
    model(|| {
        let noted = Arc::new(Noted::new());
        let other = noted.clone();
        let thread = thread::spawn(move || {
            // The search begins at the pages.
            let wanted = Wanted { count: 1, align: 1, from: 0, end: 2, tries: 1 };
            assert_ne!(other.runs().find(&wanted), Some(1));
        });
        slice::unclaim(&noted.slices, 0..2, 9);
        // From its start on, like every part of a heap that frees slices of several pages.
        for page in 0..2 {
            if runs::freed(&noted.pages[page], 1).is_some() {
                noted.runs().raise_groups(page);
            }
        }
        thread.join().unwrap();
    });
}
