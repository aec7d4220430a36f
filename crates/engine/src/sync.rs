//! The atomics of the slots and the ring: the processor's, or loom's in a test under loom.

#[cfg(not(all(test, loom)))]
pub(crate) use std::cell::UnsafeCell;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// A value on cache lines of its own: no other value shares the pair of lines that a processor
/// fetches together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Alone<T>(pub(crate) T);

/// Asks for the cache line of a value that this thread will write, and does not wait for it. A
/// write without this waits for the line at the next locked instruction.
#[inline]
pub(crate) fn take_line<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(all(test, loom))))]
    // SAFETY: a prefetch changes no memory. Every x86-64 processor has the instruction; the first
    // ones execute it as one that does nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) std::ptr::from_ref(value),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
    let _ = value;
}

/// A value that one thread at a time accesses, as a protocol of atomics decides.
#[derive(Debug)]
pub(crate) struct Cell<T>(
    #[cfg(not(all(test, loom)))] UnsafeCell<T>,
    #[cfg(all(test, loom))] loom::cell::UnsafeCell<T>,
);

// SAFETY: every access is unsafe, and its caller promises that no other thread accesses the value.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T: Copy> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(all(test, loom)))]
        return Self(UnsafeCell::new(value));
        #[cfg(all(test, loom))]
        return Self(loom::cell::UnsafeCell::new(value));
    }

    /// # Safety
    /// No other thread may write the value at the same time.
    pub(crate) unsafe fn get(&self) -> T {
        // SAFETY: the caller's promise.
        #[cfg(not(all(test, loom)))]
        return unsafe { *self.0.get() };
        #[cfg(all(test, loom))]
        return self.0.with(|value| {
            // SAFETY: the caller's promise, which loom checks.
            unsafe { *value }
        });
    }

    /// # Safety
    /// No other thread may access the value at the same time.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: the caller's promise.
        #[cfg(not(all(test, loom)))]
        unsafe {
            *self.0.get() = value;
        }
        #[cfg(all(test, loom))]
        self.0.with_mut(|at| {
            // SAFETY: the caller's promise, which loom checks.
            unsafe { *at = value }
        });
    }
}
