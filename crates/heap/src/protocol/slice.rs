//! Transitions of slices. Each step is one compare-and-swap, or a store by the only owner.
//!
//! Building `[head, head + count)`: every slice free -> claimed by me (if one is not free, all
//! are given back); the head -> run; the others -> span or tail; the head -> span or large, last.
//! In a page without memory, the page word decides about all slices. The cache that maps the page
//! overwrites claims, so a claim is valid only if the page is ready and the slice word, read
//! after that, still contains the claim ([`is_claimed`]). Taking apart: the head -> run; the
//! others -> claimed; the head -> claimed; each -> free, with its generation increased by one.
//!
//! So at any time, a slice is free, or its word names its owner, or it follows a head whose word
//! names the owner. If a process dies between two steps, a scan finds all slices that it owned.

use core::ops::Range;

use super::step::step;
use super::word::{CacheId, PIECES, PageWord, SliceWord};
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    overwrite,
};

/// Reads a slice's word.
#[inline]
pub(crate) fn word(slices: &[AtomicU64], index: usize) -> SliceWord {
    SliceWord(slices[index].load(Acquire))
}

/// Why a run of slices could not be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// A slice that is in use.
    pub(crate) at: usize,
    /// Whether the slices after it were claimed for a moment, so that a search at that moment did
    /// not find them.
    pub(crate) was_claiming: bool,
}

/// Claims the free slices `run` for `me`, the last one first. If one is in use, claims none.
///
/// Another thread may search while only the last slices are claimed. It then finds the slices
/// before them or, if they are too few, the next run. If the first slices were claimed first, it
/// would take a run that begins in the middle of this one, and leave two holes that are too small.
pub(crate) fn claim(slices: &[AtomicU64], run: Range<usize>, me: CacheId) -> Result<(), Lost> {
    // A run with a slice that was in use before stays untouched.
    if let Some(at) = run.clone().rev().find(|index| !word(slices, *index).is_free()) {
        return Err(Lost { at, was_claiming: false });
    }
    for (index, word) in run.clone().zip(&slices[run.clone()]).rev() {
        let old = SliceWord(word.load(Acquire));
        if !old.is_free() || !exchange(word, old, old.free_to_claimed(me)) {
            step!("slice.claim.before_roll_back");
            unclaim(slices, index + 1..run.end, me);
            return Err(Lost { at: index, was_claiming: true });
        }
        step!("slice.claim.between");
    }
    Ok(())
}

/// Claims all slices of a page that `me` is mapping, if they are free, and stores the page word
/// `ready`.
pub(crate) fn claim_mapped(
    page: &AtomicU64,
    ready: PageWord,
    slices: &[AtomicU64],
    run: &Range<usize>,
    me: CacheId,
) -> bool {
    // The slices may not be free, because a process that used them when the page was ready before
    // may have died.
    let is_free = is_free(slices, run.clone());
    if is_free {
        for word in &slices[run.clone()] {
            let generation = SliceWord(word.load(Relaxed)).generation();
            let claimed = SliceWord::claimed(generation, me).with_resident(PIECES);
            overwrite!(word, claimed.0, Release);
            step!("slice.claim_mapped.between");
        }
    }
    step!("slice.claim_mapped.before_ready");
    page.store(ready.0, Release);
    is_free
}

/// Gives back slices that `me` claimed and did not use. Does not change a slice whose claim was
/// overwritten by the cache that maps the page.
pub(crate) fn unclaim(slices: &[AtomicU64], run: Range<usize>, me: CacheId) {
    for index in run {
        let old = SliceWord(slices[index].load(Relaxed));
        if old.is_claimed_by(me) {
            exchange(&slices[index], old, old.to_free());
        }
        step!("slice.unclaim.between");
    }
}

/// Whether all slices are free.
fn is_free(slices: &[AtomicU64], run: Range<usize>) -> bool {
    slices[run].iter().all(|word| SliceWord(word.load(Acquire)).is_free())
}

/// Whether all slices are claimed by `me`. Must be called when their page is ready, because from
/// then on the slices stay claimed.
pub(crate) fn is_claimed(slices: &[AtomicU64], mut run: Range<usize>, me: CacheId) -> bool {
    run.all(|index| word(slices, index).is_claimed_by(me))
}

/// How many pieces of the slices `run` can be resident.
pub(crate) fn pieces(slices: &[AtomicU64], run: Range<usize>) -> usize {
    slices[run].iter().map(|word| SliceWord(word.load(Acquire)).resident() as usize).sum()
}

/// How many pieces of the slices `run` can be resident; `None` if a slice is not claimed by `me`.
/// Must be called when their page is ready, because from then on the slices stay claimed.
pub(crate) fn claimed_pieces(
    slices: &[AtomicU64],
    run: Range<usize>,
    me: CacheId,
) -> Option<usize> {
    let (run, mut pieces) = (&slices[run], 0);
    for word in run {
        let word = SliceWord(word.load(Acquire));
        if !word.is_claimed_by(me) {
            return None;
        }
        pieces += word.length() as usize;
    }
    Some(pieces.min(run.len() * PIECES as usize))
}

/// How many pieces of a large block can be resident: all pieces of its slices except the last,
/// and the recorded number for the last slice.
pub(crate) fn block_pieces(slices: &[AtomicU64], run: &Range<usize>) -> usize {
    let last = word(slices, run.end - 1).resident() as usize;
    (run.len() - 1) * PIECES as usize + last
}

/// Records that each slice of `run`, which this cache owns, has `pieces` resident pieces.
pub(crate) fn set_resident(slices: &[AtomicU64], run: Range<usize>, pieces: u32) {
    for index in run {
        own(slices, index, |old| old.with_resident(pieces));
    }
}

/// Records that a slice has `pieces` resident pieces, if the slice word is still `seen`. Returns
/// whether it was.
pub(crate) fn make_resident(slice: &AtomicU64, seen: SliceWord, pieces: u32) -> bool {
    exchange(slice, seen, seen.with_resident(pieces))
}

/// Begins to build a span of `class` from slices that `me` owns. The head's word becomes a run;
/// the words of the other slices become span words.
pub(crate) fn begin_span(slices: &[AtomicU64], run: Range<usize>, class: u8, me: CacheId) {
    let count = run.len() as u32;
    let Some((head, tails)) = slices[run].split_first() else { return };
    set(head, |old| SliceWord::run(old.generation(), me, class, count));
    step!("slice.build_span.after_run");
    for tail in tails {
        set(tail, |old| SliceWord::span(old.generation(), class));
        step!("slice.build_span.between");
    }
}

/// Completes a span that [`begin_span`] began. Its slots are free, or cached by the cache that
/// builds it.
pub(crate) fn finish_span(slices: &[AtomicU64], head: usize, class: u8) {
    step!("slice.build_span.before_head");
    own(slices, head, |old| SliceWord::span(old.generation(), class));
}

/// Turns claimed slices, or a run of `me`, into a large block of a process. The last slice keeps
/// its number of resident pieces; the other slices count as resident.
pub(crate) fn build_large(
    slices: &[AtomicU64],
    run: Range<usize>,
    (process, tag): (u8, u8),
    me: CacheId,
) {
    let (head, count) = (run.start, run.len() as u32);
    own(slices, head, |old| SliceWord::run(old.generation(), me, 0, count));
    step!("slice.build_large.after_run");
    let (last, middle) = match &slices[run] {
        [_, middle @ .., last] => (Some(last), middle),
        _ => (None, &[][..]),
    };
    for tail in middle {
        set(tail, |old| SliceWord::tail(old.generation()).with_resident(PIECES));
        step!("slice.build_large.between");
    }
    if let Some(last) = last {
        set(last, SliceWord::to_tail);
        step!("slice.build_large.between");
    }
    step!("slice.build_large.before_head");
    own(slices, head, |old| SliceWord::large(old.generation(), process, tag, count));
}

/// Seizes a span or large block if its head's word is still `seen`. From then on the run belongs
/// to `me` alone. The run may be longer than the block, if `me` has claimed the slices after the
/// block. If several caches try, one succeeds.
pub(crate) fn seize(slices: &[AtomicU64], run: Range<usize>, seen: SliceWord, me: CacheId) -> bool {
    let class = if seen.is_span() { seen.class() } else { 0 };
    let new = SliceWord::run(seen.generation(), me, class, run.len() as u32);
    exchange(&slices[run.start], seen, new)
}

/// Frees the slices of a run of `me`. All its slot words must be zero.
pub(crate) fn dissolve(slices: &[AtomicU64], run: Range<usize>, me: CacheId) {
    step!("slice.dissolve.after_run");
    let run = &slices[run];
    let Some((head, tails)) = run.split_first() else { return };
    for tail in tails {
        set(tail, |old| old.to_claimed(me));
        step!("slice.dissolve.between_tails");
    }
    set(head, |old| old.to_claimed(me));
    step!("slice.dissolve.after_head");
    for word in run {
        set(word, SliceWord::of_next_generation);
        step!("slice.dissolve.between_free");
    }
}

/// Shortens a run of `me` to its first `keep` slices and frees the other slices. The head's word
/// stays a run.
pub(crate) fn cut(slices: &[AtomicU64], run: Range<usize>, keep: usize, me: CacheId) {
    for tail in run.start + keep..run.end {
        own(slices, tail, |old| old.to_claimed(me));
        step!("slice.cut.between_tails");
    }
    own(slices, run.start, |old| SliceWord::run(old.generation(), me, 0, keep as u32));
    step!("slice.cut.after_head");
    for index in run.start + keep..run.end {
        own(slices, index, SliceWord::to_next_free);
        step!("slice.cut.between_free");
    }
}

/// Frees a slice that a dead cache claimed, if the slice word is still `seen`. The cache that
/// maps the page may overwrite the word at the same time.
pub(crate) fn reap_claim(slice: &AtomicU64, seen: SliceWord) {
    exchange(slice, seen, seen.to_next_free());
    step!("reap.slice.after_free");
}

/// Replaces the slice word of a slice that this cache owns.
fn own(slices: &[AtomicU64], index: usize, make: impl FnOnce(SliceWord) -> SliceWord) {
    set(&slices[index], make);
}

fn set(word: &AtomicU64, make: impl FnOnce(SliceWord) -> SliceWord) {
    word.store(make(SliceWord(word.load(Relaxed))).0, Release);
}

fn exchange(word: &AtomicU64, old: SliceWord, new: SliceWord) -> bool {
    word.compare_exchange(old.0, new.0, AcqRel, Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::protocol::word::Slice;
    use std::vec::Vec;

    fn slices(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn kinds(slices: &[AtomicU64]) -> Vec<Slice> {
        (0..slices.len()).map(|index| word(slices, index).decode()).collect()
    }

    #[test]
    fn failed_claim_leaves_nothing_claimed() {
        let slices = slices(8);
        claim(&slices, 5..6, 1).unwrap();
        assert_eq!(claim(&slices, 2..8, 2), Err(Lost { at: 5, was_claiming: false }));
        let expected: Vec<Slice> =
            (0..8).map(|i| if i == 5 { Slice::Claimed(1) } else { Slice::Free }).collect();
        assert_eq!(kinds(&slices), expected);
    }

    #[test]
    fn unclaim_keeps_an_overwritten_claim() {
        let slices = slices(3);
        claim(&slices, 0..3, 1).unwrap();
        assert!(is_claimed(&slices, 0..3, 1) && !is_claimed(&slices, 0..3, 2));
        slices[1].store(SliceWord::span(0, 7).0, Release);
        assert!(!is_claimed(&slices, 0..3, 1));
        unclaim(&slices, 0..3, 1);
        assert_eq!(kinds(&slices), [Slice::Free, Slice::Span { class: 7 }, Slice::Free]);
    }

    #[test]
    fn span_is_built_and_dissolved() {
        let slices = slices(4);
        claim(&slices, 0..4, 3).unwrap();
        begin_span(&slices, 0..4, 7, 3);
        assert_eq!(kinds(&slices)[0], Slice::Run { cache: 3, class: 7, length: 4 });
        finish_span(&slices, 0, 7);
        assert_eq!(kinds(&slices), [Slice::Span { class: 7 }; 4]);
        let seen = word(&slices, 0);
        assert!(seize(&slices, 0..4, seen, 4) && !seize(&slices, 0..4, seen, 5));
        assert_eq!(kinds(&slices)[0], Slice::Run { cache: 4, class: 7, length: 4 });
        dissolve(&slices, 0..4, 4);
        assert_eq!(kinds(&slices), [Slice::Free; 4]);
        assert!((0..4).all(|index| word(&slices, index).generation() == 1));
    }

    #[test]
    fn large_block_is_built_and_cut() {
        let slices = slices(4);
        claim(&slices, 0..4, 3).unwrap();
        build_large(&slices, 0..4, (1, 2), 3);
        let large = |length| Slice::Large { process: 1, tag: 2, length };
        assert_eq!(kinds(&slices), [large(4), Slice::Tail, Slice::Tail, Slice::Tail]);
        assert!(seize(&slices, 0..4, word(&slices, 0), 3));
        cut(&slices, 0..4, 2, 3);
        build_large(&slices, 0..2, (1, 2), 3);
        assert_eq!(kinds(&slices), [large(2), Slice::Tail, Slice::Free, Slice::Free]);
    }

    #[test]
    fn slice_keeps_its_resident_pieces_through_its_states() {
        let slices = slices(4);
        let resident = || [0, 1, 2, 3].map(|index| word(&slices, index).resident());
        claim(&slices, 0..3, 3).unwrap();
        assert_eq!(resident(), [0; 4]);
        set_resident(&slices, 2..3, 5);
        build_large(&slices, 0..3, (1, 2), 3);
        assert_eq!(resident(), [PIECES, PIECES, 5, 0]);
        assert!(seize(&slices, 0..3, word(&slices, 0), 4));
        dissolve(&slices, 0..3, 4);
        assert_eq!(resident(), [PIECES, PIECES, 5, 0]);
        claim(&slices, 1..4, 5).unwrap();
        assert!(claim(&slices, 0..4, 6).is_err());
        unclaim(&slices, 1..4, 5);
        assert_eq!(resident(), [PIECES, PIECES, 5, 0]);
        claim(&slices, 1..3, 7).unwrap();
        reap_claim(&slices[2], word(&slices, 2));
        assert_eq!(resident(), [PIECES, PIECES, 5, 0]);
        let seen = word(&slices, 3);
        assert!(make_resident(&slices[3], seen, 2) && !make_resident(&slices[3], seen, 3));
        assert_eq!(resident(), [PIECES, PIECES, 5, 2]);
    }
}
