//! How a page of 2 MiB comes and goes: absent -> mapping -> ready -> draining -> absent, each an
//! exchange, or a store of the only owner. While it comes, the page's word stands for all its
//! slices: so a claim on one counts once the page is ready and the claim is still there.
//!
//! What the memory is and where it comes from, callers say.

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
    /// Another cache is at it.
    Busy,
    /// Not this page; another may do.
    Unusable,
    /// None at all.
    Exhausted,
}

/// Takes hold of a page without memory for `me` and has `provide` give it some: what its word is to
/// say next.
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

/// Makes a page ready for `me`, if it is not yet.
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

/// Has `ready` make the pages ready of slices that `me` claimed; the claims count if they are still
/// there then: how many pieces of them can be resident. Else they are given back, except those that
/// the cache that maps the page wrote over.
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

/// Has `give_back` give the memory of a page back all of whose slices `me` claimed; whether it
/// went. `between` is what the page is called while that goes on, if not draining: whoever provides
/// the memory may hand it out again at once, to a thread that makes the page ready.
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

/// Makes a page that a dead cache was mapping or draining what it is `next`. `word` is what it
/// said.
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
