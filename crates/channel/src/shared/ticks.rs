//! A cheap, inexact clock, which shows whether some time has passed since an event.

/// The processor's time counter, whose rate is constant; nanoseconds if it cannot be read.
#[inline]
pub(crate) fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads a counter that every processor of this architecture has.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    return counter();
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    return nanoseconds();
}

/// The number of ticks in about 0.1 ms. The counter of x86-64 runs at the processor's nominal
/// rate, 2 to 5 GHz: 40 to 100 us.
#[inline]
pub(crate) fn of_a_while() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return 200_000;
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    return frequency() / 10_000;
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    return 100_000;
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn counter() -> u64 {
    let count;
    // SAFETY: a register that Linux lets every process read; nothing else changes.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
    }
    count
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn frequency() -> u64 {
    let hertz;
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
    }
    hertz
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn nanoseconds() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_while_ends_within_milliseconds() {
        let (start, since) = (Instant::now(), now());
        while now().wrapping_sub(since) < of_a_while() {
            assert!(start.elapsed() < Duration::from_secs(30), "the clock stands still");
        }
        assert!(start.elapsed() > Duration::from_micros(10), "{:?}", start.elapsed());
    }
}
