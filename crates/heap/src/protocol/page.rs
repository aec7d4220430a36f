//! Transitions of a page of 2 MiB: absent -> mapping -> ready -> draining -> absent. Each
//! transition is one compare-and-swap, or a store by the only owner. While a cache is mapping a
//! page, the page word decides about all its slices: a claim on a slice is valid only if the page
//! is ready and the slice word, read after that, still contains the claim.
//!
//! The callers provide the memory.

use core::ops::Range;

use super::slice;
use super::step::step;
use super::word::{CacheId, Page, PageWord};
use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Why a page's memory is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another cache is mapping the page.
    Busy,
    /// There is no memory for this page, but there may be memory for another page.
    Unusable,
    /// There is no memory for any page.
    Exhausted,
}

/// Claims a page without memory for `me` and gets memory for it with `provide`. Returns the new
/// page word, which the caller must store.
pub(crate) fn map(
    page: &AtomicU64,
    me: CacheId,
    provide: impl FnOnce() -> Result<PageWord, Refused>,
) -> Result<PageWord, Refused> {
    let old = PageWord(page.load(Acquire));
    let is_mine = old == PageWord::ABSENT
        && page.compare_exchange(old.0, PageWord::mapping(me).0, AcqRel, Relaxed).is_ok();
    if !is_mine {
        return Err(Refused::Busy);
    }
    step!("page.ready.after_mapping");
    provide().inspect_err(|_| page.store(PageWord::ABSENT.0, Release))
}

/// Makes a page ready for `me`, if the page is not ready.
pub(crate) fn make_ready(
    page: &AtomicU64,
    me: CacheId,
    provide: impl FnOnce() -> Result<PageWord, Refused>,
) -> Result<(), Refused> {
    if !PageWord(page.load(Acquire)).is_ready() {
        let ready = map(page, me, provide)?;
        step!("page.ready.before_ready");
        page.store(ready.0, Release);
    }
    Ok(())
}

/// Calls `ready` to make the pages of slices ready that `me` has claimed. If the slice words then
/// still contain the claims, the claims are valid. In this case, returns how many pieces of the
/// slices can be resident. Otherwise gives back the slices, except slices whose claims were
/// overwritten by the cache that maps the page.
pub(crate) fn keep_claims(
    slices: &[AtomicU64],
    run: &Range<usize>,
    me: CacheId,
    ready: impl FnOnce() -> Result<(), Refused>,
) -> Result<usize, Refused> {
    let claimed = || slice::claimed_pieces(slices, run.clone(), me).ok_or(Refused::Busy);
    let result = ready().and_then(|()| claimed());
    if result.is_err() {
        slice::unclaim(slices, run.clone(), me);
    }
    result
}

/// Gives back the memory of a page with `give_back`, after `me` has claimed all its slices.
/// Returns whether the memory was given back. During the call of `give_back`, the page word is
/// `between`, or "draining" if `between` is `None`. `between` is for memory whose provider may
/// hand the page out again at once, to a thread that makes it ready.
pub(crate) fn drain(
    page: &AtomicU64,
    slices: &[AtomicU64],
    run: &Range<usize>,
    me: CacheId,
    between: Option<PageWord>,
    give_back: impl FnOnce(PageWord) -> bool,
) -> bool {
    let ready = PageWord(page.load(Acquire));
    let is_mine = ready.is_ready()
        && slice::is_claimed(slices, run.clone(), me)
        && page.compare_exchange(ready.0, PageWord::draining(me).0, AcqRel, Relaxed).is_ok();
    step!("maintain.release.after_draining");
    if let Some(between) = between.filter(|_| is_mine) {
        page.store(between.0, Release);
        step!("maintain.release.after_absent");
    }
    let is_gone = is_mine && give_back(ready);
    step!("maintain.release.after_give_back");
    if is_mine && !(between.is_some() && is_gone) {
        let next = if is_gone { PageWord::ABSENT } else { ready };
        page.store(next.0, Release);
    }
    is_gone
}

/// Sets a page word to `next` if a dead cache was mapping or draining the page. `word` is the
/// previous page word.
pub(crate) fn reap(
    page: &AtomicU64,
    word: PageWord,
    is_dead: impl FnOnce(CacheId) -> bool,
    next: PageWord,
) {
    if let Page::Mapping(cache) | Page::Draining(cache) = word.decode()
        && is_dead(cache)
    {
        page.store(next.0, Release);
        step!("reap.page.after_absent");
    }
}
