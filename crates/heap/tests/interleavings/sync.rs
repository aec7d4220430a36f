//! loom's atomics, in place of the processor's.

pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, SeqCst},
    fence,
};

/// Stores to a word on which another thread may do an exchange at the same time. loom's order of
/// the changes of one word is only partial: after such a store it may order an exchange that read
/// an earlier value, which no machine does. So here the store is an exchange too.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {{
        $word.swap($value, $order);
    }};
}
pub(crate) use overwrite;

/// Separates a store to one word from a load of another. Each of two threads does both, and at
/// least one of them must see the other's store. In loom, only fences have a single `SeqCst`
/// order.
macro_rules! barrier {
    () => {
        $crate::sync::fence($crate::sync::SeqCst)
    };
}
pub(crate) use barrier;
