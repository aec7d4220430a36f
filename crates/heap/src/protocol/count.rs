//! The count of free slots of a span: a hint that is updated a moment after the slots' words. A
//! thread that claims or frees slots counts them afterwards. A thread that finds the count wrong
//! corrects it, unless another thread counts meanwhile.

use super::slot::Slots;
use crate::sync::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The count. If one thread freed a slot and another claimed it, the claim may be counted first, so
/// the count can be negative for a moment.
pub(crate) fn seen(count: &AtomicU32) -> i32 {
    count.load(Acquire) as i32
}

/// Counts slots that were freed. Returns the count before and after.
pub(crate) fn freed(count: &AtomicU32, slots: u32) -> (i32, i32) {
    let before = count.fetch_add(slots, AcqRel) as i32;
    (before, before.wrapping_add(slots as i32))
}

/// Counts slots that were claimed.
pub(crate) fn claimed(count: &AtomicU32, slots: u32) {
    count.fetch_sub(slots, Relaxed);
}

/// Corrects the count, unless another thread counts meanwhile: its change would be lost, and a span
/// with too low a count is never found to be free. Threads count a moment after they free or claim,
/// so the count may still be off by a few until the next correction.
pub(crate) fn correct(count: &AtomicU32, slots: &Slots<'_>) {
    let counted = count.load(Acquire);
    let free = slots.count_free() as u32;
    let _ = replace(count, counted, free);
}

/// Sets the count to `free`, which was found after the count was `counted`. Returns false if
/// another thread counted meanwhile.
pub(crate) fn replace(count: &AtomicU32, counted: u32, free: u32) -> bool {
    counted == free || count.compare_exchange(counted, free, AcqRel, Relaxed).is_ok()
}
