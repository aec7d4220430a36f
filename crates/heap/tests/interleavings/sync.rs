//! loom's atomics, in the place of the processor's.

pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, SeqCst},
    fence,
};

/// Stores to a word that another thread may exchange at this instant. loom lets an exchange that
/// read what was there before come after such a store, as no machine does (its order of the changes
/// of one word is only partial), so here it is an exchange too.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {{
        $word.swap($value, $order);
    }};
}
pub(crate) use overwrite;

/// Between a change of one word and a look at another, by each of two threads, of which one is to
/// see the other's change. loom has no one order of what is `SeqCst`, but for fences.
macro_rules! barrier {
    () => {
        $crate::sync::fence($crate::sync::SeqCst)
    };
}
pub(crate) use barrier;
