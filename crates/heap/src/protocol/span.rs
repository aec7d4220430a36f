//! Takes a span apart while other caches may claim its slots.
//!
//! The cache that takes the span apart claims every slot first. So no slot is live or belongs to
//! another cache, and no cache can claim a slot before the span's word says that the run is being
//! taken apart. Another cache that claims slots reads the span's word before and after. If it has
//! claimed a slot that was released meanwhile, it finds a different word and gives the slot back
//! with a compare-and-swap. If the span was built again meanwhile, the word differs in its
//! generation.

use core::ops::Range;

use super::slice;
use super::slot::Slots;
use super::step::step;
use super::word::{CacheId, SliceWord};
use crate::sync::AtomicU64;

/// The outcome of taking a span apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The slices are free.
    Done,
    /// A slot is not free.
    InUse,
    /// Another cache was faster.
    Gone,
}

/// Takes the span with the head `seen` apart, if all its slots are free.
pub(crate) fn take_apart(
    slices: &[AtomicU64],
    run: Range<usize>,
    seen: SliceWord,
    slots: &Slots<'_>,
    me: CacheId,
) -> Outcome {
    if !slots.claim_all(me) {
        return Outcome::InUse;
    }
    step!("span.take_apart.after_claim");
    if !slice::seize(slices, run.clone(), seen, me) {
        slots.release_all(me);
        return Outcome::Gone;
    }
    step!("span.take_apart.after_seize");
    slots.release_all(me);
    slice::dissolve(slices, run, me);
    Outcome::Done
}
