//! loom's atomics, which replace the processor's.

pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, SeqCst},
    fence,
};

/// Stores to a word on which another thread may perform a compare-and-swap at the same time. loom
/// orders the changes of one word only partially. It may put a compare-and-swap that read an
/// earlier value after such a store, which no machine does. So this store is also an exchange.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {{
        $word.swap($value, $order);
    }};
}
pub(crate) use overwrite;

/// Separates a store to one word from a load of another word. Each of two threads performs a
/// store and a load, and at least one thread must read the value that the other stored. In loom,
/// only fences have one total `SeqCst` order.
macro_rules! barrier {
    () => {
        $crate::sync::fence($crate::sync::SeqCst)
    };
}
pub(crate) use barrier;
