//! loom's atomics, in place of the processor's.

pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, SeqCst},
    fence,
};

/// Stores to a word that another thread may exchange at the same time. loom may order an exchange
/// that read an earlier value after such a store, as no machine does (its order of the changes of
/// one word is only partial), so here the store is an exchange too.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {{
        $word.swap($value, $order);
    }};
}
pub(crate) use overwrite;

/// Stands between a store to one word and a load of another, where each of two threads does both
/// and at least one must see the other's store. In loom, only fences have a single `SeqCst` order.
macro_rules! barrier {
    () => {
        $crate::sync::fence($crate::sync::SeqCst)
    };
}
pub(crate) use barrier;
