//! System calls that libc or rustix do not have, and the counters of the processor.

use core::ffi::{c_int, c_long};

/// Makes a system call without libc, which would change `errno`. The result is negative if it
/// failed.
///
/// # Safety
/// The obligations of the call.
pub(crate) unsafe fn call(number: c_long, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise. The kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise. The kernel changes x0 only.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// Sets `errno` and returns -1 if a call failed, as libc does.
pub(crate) fn with_errno(result: i64) -> c_long {
    /// The largest number of an error (MAX_ERRNO of `linux/err.h`).
    const MAX_ERRNO: i64 = 4095;
    if !(-MAX_ERRNO..0).contains(&result) {
        return result;
    }
    // SAFETY: the call has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno belongs to this thread and lives as long as it.
    unsafe { errno.write(-result as c_int) };
    -1
}

/// The processor's counter, which advances at the same rate on all processors.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction. A process that has forbidden it to itself
    // (prctl, PR_SET_TSC) is the documented exception.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the register.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}

/// The monotonic clock in nanoseconds. The read needs no system call if the kernel provides a page
/// for the clock.
pub(crate) fn clock_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, a local variable. It does not change errno if it
    // succeeds, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The process ID.
pub(crate) fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

// Eight bytes of each thread, at a fixed distance from its thread pointer, so that no access
// allocates. The dynamic linker reserves room for such variables even in libraries that a program
// opens later.
core::arch::global_asm!(
    ".pushsection .tbss.haul_copy_record_thread,\"awT\",%nobits",
    ".balign 8",
    ".type haul_copy_record_thread,%object",
    ".size haul_copy_record_thread,8",
    ".hidden haul_copy_record_thread",
    ".globl haul_copy_record_thread",
    "haul_copy_record_thread:",
    ".zero 8",
    ".popsection",
);

/// The word of the calling thread: 0 at first.
#[inline(always)]
pub(crate) fn thread_word() -> *mut u64 {
    let word: *mut u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fs:0 has the thread pointer (ELF Handling For Thread-Local Storage, 3.4.6), and this
    // library's constructor has run, so the dynamic linker has written the offset.
    unsafe {
        core::arch::asm!(
            "mov {word}, qword ptr fs:[0]",
            "add {word}, qword ptr [rip + haul_copy_record_thread@GOTTPOFF]",
            word = out(reg) word,
            options(nostack, readonly, pure)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the thread pointer and the offset are as on x86-64.
    unsafe {
        core::arch::asm!(
            "mrs {word}, tpidr_el0",
            "adrp {offset}, :gottprel:haul_copy_record_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:haul_copy_record_thread]",
            "add {word}, {word}, {offset}",
            word = out(reg) word,
            offset = out(reg) _,
            options(nostack, readonly, pure)
        );
    }
    word
}
