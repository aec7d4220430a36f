//! The atomics of the protocols. Under loom (`tests/interleavings`), another module replaces this
//! one.

pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Stores to a word that another thread may exchange at the same time. Either its exchange comes
/// before the store, or it fails, whatever value it read last.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {
        $word.store($value, $order)
    };
}
pub(crate) use overwrite;

/// Stands between a store to one word and a load of another, where each of two threads does both
/// and at least one must see the other's store. All four accesses are `SeqCst`, whose single order
/// guarantees it.
macro_rules! barrier {
    () => {};
}
pub(crate) use barrier;
