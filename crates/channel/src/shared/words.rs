//! Words that two processes share, as the protocols see it: the processor's own, or loom's where
//! loom runs every order of them (`interleavings`). The orders are written once, for both.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// 64 bits that several can change at once.
pub(crate) trait Word {
    /// What it says; everything told by it is seen from here on.
    fn get(&self) -> u64;

    /// Says something, and with it everything that was written before.
    fn put(&self, value: u64);

    /// Puts `new` in the place of `old`, or says what is there instead.
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64>;
}

/// 32 bits that say whether, and how, an end sleeps, or whether it is closed.
pub(crate) trait Flags {
    /// What they say; everything told by it is seen from here on.
    fn get(&self) -> u32;

    /// Says something, and with it everything that was written before.
    fn put(&self, value: u32);

    /// What they say, with no order but that of fences.
    fn peek(&self) -> u32;

    /// Sets bits, in one order with all fences.
    fn set(&self, bits: u32);

    /// Takes bits away, with no order.
    fn clear(&self, bits: u32);

    /// Counts one up, and tells with it everything that was written before.
    fn count_up(&self);

    /// One order of everything before and after it, for all that have such a fence.
    fn fence();
}

/// What each of them asks of the atomics, whoever makes those.
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
