//! Atomic words that two processes share, as the protocols use them: the standard library's, or
//! loom's in `interleavings`. The memory orders are written once, for both kinds of words.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// An atomic word of 64 bits.
pub(crate) trait Word {
    /// The value. Everything written before it was published is visible afterwards.
    fn get(&self) -> u64;

    /// Publishes a value, and with it everything written before.
    fn put(&self, value: u64);

    /// Replaces `old` with `new`, or returns the word's value if it is not `old`.
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64>;
}

/// An atomic word of 32 bits: how an end sleeps, or its state.
pub(crate) trait Flags {
    /// The value. Everything written before it was published is visible afterwards.
    fn get(&self) -> u32;

    /// Publishes a value, and with it everything written before.
    fn put(&self, value: u32);

    /// The value, ordered by fences alone.
    fn peek(&self) -> u32;

    /// Sets bits, sequentially consistent with all fences.
    fn set(&self, bits: u32);

    /// Clears bits, without an order.
    fn clear(&self, bits: u32);

    /// Adds 1, and publishes everything written before.
    fn count_up(&self);

    /// A sequentially consistent fence.
    fn fence();
}

/// Implements the traits for the atomics of the standard library or of loom.
macro_rules! with_orders {
    ($Word:ty, $Flags:ty, $fence:path) => {
        impl Word for $Word {
            fn get(&self) -> u64 {
                self.load(Acquire)
            }

            fn put(&self, value: u64) {
                self.store(value, Release);
            }

            fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
                self.compare_exchange(old, new, AcqRel, Acquire).map(drop)
            }
        }

        impl Flags for $Flags {
            fn get(&self) -> u32 {
                self.load(Acquire)
            }

            fn put(&self, value: u32) {
                self.store(value, Release);
            }

            fn peek(&self) -> u32 {
                self.load(Relaxed)
            }

            fn set(&self, bits: u32) {
                self.fetch_or(bits, SeqCst);
            }

            fn clear(&self, bits: u32) {
                self.fetch_and(!bits, Relaxed);
            }

            fn count_up(&self) {
                self.fetch_add(1, Release);
            }

            fn fence() {
                $fence(SeqCst);
            }
        }
    };
}

with_orders!(std::sync::atomic::AtomicU64, std::sync::atomic::AtomicU32, std::sync::atomic::fence);
#[cfg(all(test, loom))]
with_orders!(
    loom::sync::atomic::AtomicU64,
    loom::sync::atomic::AtomicU32,
    loom::sync::atomic::fence
);
