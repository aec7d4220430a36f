//! Counts the threads that hold free slices for a moment, so that a thread whose search failed
//! finds out whether a holder may have hidden slices from it.

use crate::sync::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
    fence,
};

/// One thread more has begun to hold slices, and holds them now.
const ONE: u64 = 1 << 32 | 1;

/// How many threads hold slices now, in the low half, and how many ever did, in the high half. On
/// a line of its own, because other threads read what would be beside it.
#[repr(align(64))]
pub(crate) struct Holders(AtomicU64);

/// A value of [`Holders`], read before a search.
#[derive(Clone, Copy)]
pub(crate) struct Before(u64);

impl Holders {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Must be called before the first slice is claimed.
    pub(crate) fn enter(&self) {
        self.0.fetch_add(ONE, AcqRel);
    }

    /// Must be called after the last slice was given back.
    pub(crate) fn leave(&self) {
        // In a child of fork, `forget` has set the count to 0.
        let less = |value: u64| if value as u32 > 0 { Some(value - 1) } else { None };
        let _ = self.0.fetch_update(AcqRel, Relaxed, less);
    }

    pub(crate) fn before(&self) -> Before {
        Before(self.0.load(Acquire))
    }

    /// Whether a thread held slices at some time since `before`.
    pub(crate) fn held_since(&self, before: Before) -> bool {
        // The search may have read a holder's claim in a failed compare-and-swap, which is relaxed.
        fence(Acquire);
        before.0 as u32 > 0 || self.0.load(Acquire) >> 32 != before.0 >> 32
    }

    /// Whether a thread holds slices now.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Acquire) as u32 > 0
    }

    /// Forgets the threads: in a child of fork, they do not exist.
    pub(crate) fn forget(&self) {
        let none = |value: u64| Some(value & !u64::from(u32::MAX));
        let _ = self.0.fetch_update(AcqRel, Relaxed, none);
    }
}
