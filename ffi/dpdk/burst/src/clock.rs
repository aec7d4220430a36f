//! The processor's time counter.

/// Ticks since a fixed moment, the same for all threads.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cycles() -> u64 {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks since a fixed moment, the same for all threads.
#[cfg(target_arch = "aarch64")]
pub(crate) fn cycles() -> u64 {
    let ticks: u64;
    // SAFETY: Linux allows every process to read this register; the code accesses nothing else.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Ticks since a fixed moment, the same for all threads. A tick is a nanosecond, because no
/// register is known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn cycles() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is a local, writable variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The number of ticks per second. `dpdk_hz` is the frequency that DPDK measured for its counter,
/// which on x86 is the same counter as here.
pub(crate) fn cycles_per_s(dpdk_hz: u64) -> u64 {
    if cfg!(target_arch = "x86_64") {
        return dpdk_hz;
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hz: u64;
        // SAFETY: Linux allows every process to read this register; the code accesses nothing else.
        unsafe { core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
        hz
    }
    #[cfg(not(target_arch = "aarch64"))]
    1_000_000_000
}
