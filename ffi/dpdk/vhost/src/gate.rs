//! A gate decides for each burst whether this library or DPDK accesses a ring.
//!
//! A burst enters the gate as this library's if the gate is open and no other burst is inside, and
//! as DPDK's otherwise. [`Gate::close`] returns once no burst of this library is inside; it does
//! not wait for DPDK's bursts, which wait for DPDK's own lock. A burst of this library waits for
//! nothing, so that a closing thread may hold DPDK's locks.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bit of a closed gate.
const CLOSED: u32 = 1 << 31;
/// The bit of a burst of this library.
const OURS: u32 = 1;
/// One burst of DPDK.
const THEIRS: u32 = 2;

/// The state of a ring: closed at first.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU32);

/// The side to which a burst belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// This library: leave by [`Gate::leave`] or [`Gate::hand_over`].
    Ours,
    /// DPDK: leave by [`Gate::leave`].
    Theirs,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(CLOSED))
    }

    /// Enters the gate with a burst. Waits while another burst of this library is inside: a program
    /// calls the bursts of a queue from one thread at a time, and this protects from one that
    /// does not.
    #[inline]
    pub(crate) fn enter(&self) -> Side {
        // SYNC: ring handed over.
        if self.0.compare_exchange(0, OURS, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return Side::Ours;
        }
        self.enter_slowly()
    }

    fn enter_slowly(&self) -> Side {
        loop {
            let state = self.0.load(Ordering::Relaxed);
            let (next, side) = match state {
                0 => (OURS, Side::Ours),
                _ if state & OURS != 0 => {
                    spin_loop();
                    continue;
                }
                _ => (state + THEIRS, Side::Theirs),
            };
            // SYNC: ring handed over.
            if self.0.compare_exchange(state, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return side;
            }
        }
    }

    /// Makes a burst of this library one of DPDK.
    #[inline]
    pub(crate) fn hand_over(&self) {
        // SYNC: ring handed over.
        self.0.fetch_add(THEIRS - OURS, Ordering::SeqCst);
    }

    /// Leaves the gate.
    #[inline]
    pub(crate) fn leave(&self, side: Side) {
        let burst = if side == Side::Ours { OURS } else { THEIRS };
        // SYNC: ring handed over.
        self.0.fetch_sub(burst, Ordering::SeqCst);
    }

    /// Closes the gate: when this returns, no burst of this library is inside, and none enters
    /// before [`Gate::open`].
    pub(crate) fn close(&self) {
        // SYNC: ring handed over.
        let mut state = self.0.fetch_or(CLOSED, Ordering::SeqCst);
        while state & OURS != 0 {
            spin_loop();
            state = self.0.load(Ordering::SeqCst);
        }
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        // SYNC: ring handed over.
        self.0.fetch_and(!CLOSED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    #[test]
    fn closed_gate_admits_bursts_of_dpdk_only() {
        let gate = Gate::new();
        assert_eq!(gate.enter(), Side::Theirs);
        gate.open();
        // DPDK's burst is still inside.
        assert_eq!(gate.enter(), Side::Theirs);
        gate.leave(Side::Theirs);
        gate.leave(Side::Theirs);
        assert_eq!(gate.enter(), Side::Ours);
        gate.hand_over();
        // Does not wait for DPDK's burst.
        gate.close();
        gate.leave(Side::Theirs);
        assert_eq!(gate.enter(), Side::Theirs);
    }

    #[test]
    fn ring_is_never_accessed_from_both_sides() {
        let (gate, ended) = (Gate::new(), AtomicBool::new(false));
        let (inside, bursts) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        let side = gate.enter();
                        if side == Side::Ours {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            bursts.fetch_add(1, Ordering::Relaxed);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        gate.leave(side);
                    }
                });
            }
            for _ in 0..20_000 {
                gate.close();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                inside.fetch_sub(1, Ordering::SeqCst);
                gate.open();
                spin_loop();
            }
            while bursts.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}
