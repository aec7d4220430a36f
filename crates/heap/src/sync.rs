//! The atomics of the protocols. In tests with loom (`tests/interleavings`), another module
//! replaces this module.

pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Stores to a word on which another thread may perform a compare-and-swap at the same time. The
/// compare-and-swap either comes before the store or fails, no matter which value the other
/// thread read before.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {
        $word.store($value, $order)
    };
}
pub(crate) use overwrite;

/// Separates a store to one word from a load of another word. Each of two threads performs a
/// store and a load, and at least one thread must read the value that the other stored. All four
/// accesses are `SeqCst`, which have one total order, so this is guaranteed.
macro_rules! barrier {
    () => {};
}
pub(crate) use barrier;
