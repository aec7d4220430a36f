//! How a span is taken apart while others may claim its slots.
//!
//! Who takes it apart claims every slot first: so none of them is live or anybody's, and nobody can
//! claim one until the span's word says that the run is being taken apart. Who claims slots reads
//! the span's word before and after: a claim on a slot that was released by then finds another word
//! (the generation tells a span that was built anew), and is given back by compare-and-swap.

use core::ops::Range;

use super::slice;
use super::slot::Slots;
use super::step::step;
use super::word::{CacheId, SliceWord};
use crate::sync::AtomicU64;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parted {
    /// Its slices are free.
    Done,
    /// A slot is not free.
    InUse,
    /// Another was faster.
    Gone,
}

/// Takes the span apart whose head said `seen`, if all its slots are free.
pub(crate) fn take_apart(
    slices: &[AtomicU64],
    run: Range<usize>,
    seen: SliceWord,
    slots: &Slots<'_>,
    me: CacheId,
) -> Parted {
    if !slots.claim_all(me) {
        return Parted::InUse;
    }
    step!("span.take_apart.after_claim");
    if !slice::seize(slices, run.clone(), seen, me) {
        slots.release_all(me);
        return Parted::Gone;
    }
    step!("span.take_apart.after_seize");
    slots.release_all(me);
    slice::dissolve(slices, run, me);
    Parted::Done
}
