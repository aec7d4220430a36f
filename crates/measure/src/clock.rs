//! The finest clock of the machine, and its precision.
//!
//! On x86-64 with an invariant time-stamp counter (CPUID 8000_0007h EDX bit 8), the clock is that
//! counter, fenced on both sides and scaled against CLOCK_MONOTONIC_RAW. Elsewhere, the clock is
//! CLOCK_MONOTONIC_RAW itself.

use std::sync::OnceLock;

use crate::sys;

/// The time for which the counter is compared with the system's clock. After this time, the scale
/// is correct to about 10^-5; ratios do not depend on it.
const CALIBRATION_NS: u64 = 20_000_000;

/// A clock. [`Clock::get`] returns the machine's best clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    kind: ClockKind,
    ns_per_tick: f64,
    precision_ns: f64,
}

/// The source of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The processor's time-stamp counter.
    Counter,
    /// clock_gettime(CLOCK_MONOTONIC_RAW).
    System,
}

impl Clock {
    /// The machine's best clock. The first call takes about 25 ms for calibration.
    #[must_use]
    pub fn get() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            if counter::is_invariant() { Self::calibrated() } else { Self::system() }
        })
    }

    /// The clock of clock_gettime, even if the machine has a better clock.
    #[must_use]
    pub fn system() -> Self {
        Self { kind: ClockKind::System, ns_per_tick: 1.0, precision_ns: 0.0 }.with_precision()
    }

    /// The source of this clock's ticks.
    #[must_use]
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// The current time in ticks. Earlier instructions have completed, later ones have not begun.
    #[must_use]
    #[inline]
    pub fn now(&self) -> u64 {
        match self.kind {
            ClockKind::Counter => counter::ticks(),
            ClockKind::System => sys::monotonic_ns(),
        }
    }

    /// Nanoseconds from the first tick to the second; 0 if the second is not later.
    #[must_use]
    #[inline]
    pub fn ns_between(&self, start: u64, end: u64) -> f64 {
        end.saturating_sub(start) as f64 * self.ns_per_tick
    }

    /// The least difference above 0 between two consecutive readings, in nanoseconds, as measured:
    /// resolution and cost of the clock together.
    #[must_use]
    pub fn precision_ns(&self) -> f64 {
        self.precision_ns
    }

    fn calibrated() -> Self {
        let (system_start, start) = simultaneous();
        while sys::monotonic_ns() - system_start < CALIBRATION_NS {
            std::hint::spin_loop();
        }
        let (system_end, end) = simultaneous();
        let ticks = end.saturating_sub(start);
        // A counter that does not advance is unusable, even if CPUID reports it as invariant.
        if ticks < 1000 {
            return Self::system();
        }
        let ns_per_tick = (system_end - system_start) as f64 / ticks as f64;
        Self { kind: ClockKind::Counter, ns_per_tick, precision_ns: 0.0 }.with_precision()
    }

    fn with_precision(mut self) -> Self {
        let least = (0..10_000)
            .map(|_| {
                let start = self.now();
                self.ns_between(start, self.now())
            })
            .filter(|&ns| ns > 0.0)
            .fold(f64::INFINITY, f64::min);
        // No difference at all means that the clock is coarser than all readings together; the
        // coarsest clock in use ticks 100 times a second.
        self.precision_ns = if least.is_finite() { least } else { 1e7 };
        self
    }
}

/// Both clocks at one instant: of several readings, the reading with the narrowest bracket.
fn simultaneous() -> (u64, u64) {
    (0..20)
        .map(|_| {
            let before = counter::ticks();
            let system = sys::monotonic_ns();
            let after = counter::ticks();
            (after.saturating_sub(before), system, before + after.saturating_sub(before) / 2)
        })
        .min()
        .map_or((0, 0), |(_, system, ticks)| (system, ticks))
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};

    /// CPUID 8000_0007h EDX bit 8: the counter runs at one rate in every power state.
    pub(super) fn is_invariant() -> bool {
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    }

    /// Reads the counter between two fences: LFENCE waits until all earlier instructions have
    /// completed and lets no later one begin (Intel SDM volume 2, RDTSC; on AMD with LFENCE
    /// serializing, which Linux sets).
    #[inline]
    pub(super) fn ticks() -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_lfence() };
        // SAFETY: RDTSC needs no feature that x86-64 lacks; a process that may not use it (prctl
        // PR_SET_TSC) dies from a signal, which is not undefined behaviour.
        let ticks = unsafe { _rdtsc() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        ticks
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    /// The generic timer of AArch64 ticks at 25 MHz to 1 GHz. clock_gettime reads the timer
    /// without a system call, so that a direct read gains nothing.
    pub(super) fn is_invariant() -> bool {
        false
    }

    pub(super) fn ticks() -> u64 {
        crate::sys::monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_system() {
        let clock = Clock::get();
        let agreed = (0..10).any(|_| {
            let (system_start, start) = (sys::monotonic_ns(), clock.now());
            while sys::monotonic_ns() - system_start < 5_000_000 {}
            let ns = clock.ns_between(start, clock.now());
            let system_ns = (sys::monotonic_ns() - system_start) as f64;
            (ns / system_ns - 1.0).abs() < 0.005
        });
        assert!(agreed, "{clock:?} runs at another rate than CLOCK_MONOTONIC_RAW");
    }

    #[test]
    fn precision_is_plausible() {
        for clock in [Clock::get(), Clock::system()] {
            assert!((0.2..1e7).contains(&clock.precision_ns()), "{clock:?}");
        }
    }

    #[test]
    fn never_backwards() {
        let clock = Clock::get();
        let readings: Vec<u64> = (0..10_000).map(|_| clock.now()).collect();
        assert!(readings.is_sorted());
        assert_eq!(clock.ns_between(5, 3), 0.0);
    }
}
