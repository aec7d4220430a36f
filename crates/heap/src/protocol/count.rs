//! How the free slots of a span are counted: a hint, a moment behind the slots' words. Who claims
//! or frees slots counts them afterwards; who finds the count wrong makes it right, unless somebody
//! counts meanwhile.

use super::slot::Slots;
use crate::sync::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// What is counted. A slot that was freed by one thread and claimed by another can be counted by
/// the other first, so for a moment it can be below zero.
pub(crate) fn seen(count: &AtomicU32) -> i32 {
    count.load(Acquire) as i32
}

/// Counts slots that were freed: what was counted before, and after.
pub(crate) fn freed(count: &AtomicU32, slots: u32) -> (i32, i32) {
    let before = count.fetch_add(slots, AcqRel) as i32;
    (before, before.wrapping_add(slots as i32))
}

/// Counts slots that were claimed.
pub(crate) fn claimed(count: &AtomicU32, slots: u32) {
    count.fetch_sub(slots, Relaxed);
}

/// Makes the count what it is, unless somebody counts meanwhile: what that one added would be lost,
/// and a span whose count is too low is never seen to be free. Who frees or claims counts a moment
/// later, so it may be a few off all the same, until the next one to look.
pub(crate) fn correct(count: &AtomicU32, slots: &Slots<'_>) {
    let counted = count.load(Acquire);
    let free = slots.count_free() as u32;
    let _ = replace(count, counted, free);
}

/// Makes the count `free`, as was found after it said `counted`; false where somebody counted
/// meanwhile.
pub(crate) fn replace(count: &AtomicU32, counted: u32, free: u32) -> bool {
    counted == free || count.compare_exchange(counted, free, AcqRel, Relaxed).is_ok()
}
