//! The atomics that the protocols are written over: the processor's, or loom's under `cfg(loom)`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
};

/// Stores to a word that another thread may exchange at this instant: whatever it read last, either
/// its exchange is before the store, or it fails. loom lets an exchange that read what was there
/// before come after such a store, as no machine does (its order of the changes of one word is only
/// partial), so there it is an exchange too.
macro_rules! overwrite {
    ($word:expr, $value:expr, $order:expr) => {{
        #[cfg(not(loom))]
        $word.store($value, $order);
        #[cfg(loom)]
        $word.swap($value, $order);
    }};
}
pub(crate) use overwrite;
