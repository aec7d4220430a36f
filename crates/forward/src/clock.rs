//! Time stamps of packets, and cycles of workers.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the system's monotonic clock, which all processes of the machine share.
///
/// A call costs about 25 ns: call it once a burst, not once a packet.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `time` in nanoseconds, at most `u64::MAX`.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Cycles of the time stamp counter, which has a constant rate; nanoseconds on other architectures.
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
