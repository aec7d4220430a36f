//! Time, as packets carry it and workers count it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the system's monotonic clock, the same in all processes of the machine.
///
/// Some 25 ns: once a burst, not once a packet.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A time in nanoseconds, as many as fit.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Cycles of the time stamp counter, at its own constant rate; nanoseconds where there is none.
#[inline]
pub(crate) fn cycles() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: reads a counter that every x86-64 processor lets a program read.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        now_ns()
    }
}
