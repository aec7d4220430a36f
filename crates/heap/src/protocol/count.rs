//! The count of free slots of a span: a hint. A thread that claims or frees slots first changes
//! the slot words, and updates the count a moment later. A thread that finds a wrong count
//! corrects it, unless another thread changes the count meanwhile.

use super::slot::Slots;
use crate::sync::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The recorded count. If one thread freed a slot and another thread claimed it, the claim may be
/// counted first, so the count can be negative for a moment.
pub(crate) fn seen(count: &AtomicU32) -> i32 {
    count.load(Acquire) as i32
}

/// Adds slots that were freed to the count. Returns the count before and after.
pub(crate) fn freed(count: &AtomicU32, slots: u32) -> (i32, i32) {
    let before = count.fetch_add(slots, AcqRel) as i32;
    (before, before.wrapping_add(slots as i32))
}

/// Subtracts slots that were claimed from the count.
pub(crate) fn claimed(count: &AtomicU32, slots: u32) {
    count.fetch_sub(slots, Relaxed);
}

/// Corrects the count, unless another thread changes the count meanwhile. Otherwise that change
/// would be lost, and a span with too low a count is never recognized as free. Threads update the
/// count a moment after they free or claim slots, so the count may still be wrong by a few slots
/// until the next correction.
pub(crate) fn correct(count: &AtomicU32, slots: &Slots<'_>) {
    let counted = count.load(Acquire);
    let free = slots.count_free() as u32;
    let _ = replace(count, counted, free);
}

/// Changes the count from `counted` to `free`. Returns false if another thread has changed the
/// count meanwhile.
pub(crate) fn replace(count: &AtomicU32, counted: u32, free: u32) -> bool {
    counted == free || count.compare_exchange(counted, free, AcqRel, Relaxed).is_ok()
}
