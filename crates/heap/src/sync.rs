//! The atomics that the protocols are written over. Where loom runs these (`tests/interleavings`),
//! a module of its own stands in the place of this one.

pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Stores to a word that another thread may exchange at this instant: whatever it read last, either
/// its exchange is before the store, or it fails.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {
        $word.store($value, $order)
    };
}
pub(crate) use overwrite;

/// Between a change of one word and a look at another, by each of two threads, of which one is to
/// see the other's change. All four are `SeqCst`, so their one order does it.
macro_rules! barrier {
    () => {};
}
pub(crate) use barrier;
