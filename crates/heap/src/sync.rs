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
