//! The atomics of the protocols. Under loom (`tests/interleavings`), another module replaces this
//! one.

pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Stores to a word on which another thread may do a compare-and-swap at the same time. That
/// exchange either comes before the store or fails, whichever value the other thread read last.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {
        $word.store($value, $order)
    };
}
pub(crate) use overwrite;

/// Separates a store to one word from a load of another. Each of two threads does both, and at
/// least one of them must see the other's store. All four accesses are `SeqCst`, whose single
/// order guarantees this.
macro_rules! barrier {
    () => {};
}
pub(crate) use barrier;
