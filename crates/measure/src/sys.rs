//! The system calls for measurement: clocks, accounts, CPUs, memory. [`haul_machine::sys`] reads
//! facts of the machine.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::CpuSet;
use rustix::time::ClockId;

pub use haul_machine::sys::affinity;

/// Whether standard output was closed when this process began.
static WAS_OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls this function before Rust's runtime opens `/dev/null` in place of closed
/// descriptors. After that, a closed descriptor cannot be recognised.
#[used]
// SAFETY: the section holds pointers to functions that are called once, before `main`, on Linux
// by glibc and musl with arguments that this one ignores.
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check_output;

extern "C" fn check_output() {
    // SAFETY: asks for the flags of a descriptor, open or not, and needs no part of Rust's start.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_OUTPUT_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether standard output was closed when this process began (`>&-`). In this case, output is
/// lost, and no write reports an error.
#[must_use]
pub fn was_output_closed() -> bool {
    WAS_OUTPUT_CLOSED.load(Ordering::Relaxed)
}

/// The kernel's counters of a thread or a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Page faults served without reading from a disk.
    pub faults_minor: u64,
    /// Page faults that read from a disk.
    pub faults_major: u64,
    /// The number of times that the kernel preempted the thread.
    pub switches_involuntary: u64,
}

/// Restricts this thread to these CPUs. Returns false if the kernel refuses.
#[must_use]
pub fn set_affinity(cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    !cpus.is_empty() && rustix::thread::sched_setaffinity(None, &set).is_ok()
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW: not slewed by NTP, from an arbitrary start.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The kernel's counters of the calling thread so far. Takes two system calls.
#[must_use]
pub fn usage_thread() -> Usage {
    usage(libc::RUSAGE_THREAD, ClockId::ThreadCPUTime)
}

/// The kernel's counters of this process so far, all its threads together. Takes two system calls.
#[must_use]
pub fn usage_process() -> Usage {
    usage(libc::RUSAGE_SELF, ClockId::ProcessCPUTime)
}

fn usage(who: libc::c_int, clock: ClockId) -> Usage {
    let Some(raw) = raw_usage(who) else { return Usage::default() };
    // The times of rusage only change at scheduler ticks; this clock is finer.
    let cpu = rustix::time::clock_gettime(clock);
    Usage {
        cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
        faults_minor: raw.ru_minflt as u64,
        faults_major: raw.ru_majflt as u64,
        switches_involuntary: raw.ru_nivcsw as u64,
    }
}

/// The kernel's counters; `None` if it refuses.
fn raw_usage(who: libc::c_int) -> Option<libc::rusage> {
    // SAFETY: `rusage` is plain integers, for which all zeros is a value.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole, writable `rusage` that outlives the call.
    let status = unsafe { libc::getrusage(who, &raw mut raw) };
    (status == 0).then_some(raw)
}

/// The CPU time, user and system, of the child processes that this process has waited for, with
/// the processes that those waited for; and the largest resident memory of one of them in bytes.
/// The kernel counts memory from the fork on, so that it is at least that of this process.
#[must_use]
pub fn usage_children() -> (Duration, u64) {
    let Some(raw) = raw_usage(libc::RUSAGE_CHILDREN) else { return Default::default() };
    let time = |it: libc::timeval| {
        Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
    };
    (time(raw.ru_utime) + time(raw.ru_stime), raw.ru_maxrss as u64 * 1024)
}

/// The size of a base page in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Yields the CPU to another thread.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Maps private, zeroed memory, which the caller unmaps with [`unmap`].
///
/// # Errors
/// The kernel's reason: no memory, or a limit.
pub(crate) fn map(bytes: NonZeroUsize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without a fixed address, an anonymous mapping replaces no existing mapping.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes.get(),
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Unmaps memory from [`map`].
///
/// # Safety
/// `start` and `bytes` are those of one [`map`], and nothing refers to the memory any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller has exactly this obligation. After a failure the memory would remain
    // mapped, about which the caller can do nothing.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
}

/// Advises huge pages (or, with `false`, against them) for mapped memory. Returns false if the
/// kernel does not support this advice.
///
/// # Safety
/// The range lies in one mapping made by [`map`].
pub(crate) unsafe fn advise_huge(start: NonNull<u8>, bytes: usize, huge: bool) -> bool {
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range is the caller's own mapping, and this advice never changes its contents.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, advice) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_counts_faults_and_time() {
        let before = usage_thread();
        let bytes = NonZeroUsize::new(64 * page_bytes()).unwrap();
        let start = map(bytes).unwrap();
        // SAFETY: the range is the mapping made a line above.
        let _ = unsafe { advise_huge(start, bytes.get(), false) };
        for page in 0..64 {
            // SAFETY: the page is one of the 64 of the mapping.
            let byte = unsafe { start.as_ptr().add(page * page_bytes()) };
            // SAFETY: the byte lies in the mapping, which nothing else refers to.
            unsafe { byte.write_volatile(1) };
        }
        // SAFETY: start and length are those of `map`, and no reference into it exists.
        unsafe { unmap(start, bytes.get()) };
        assert!(usage_thread().faults_minor >= before.faults_minor + 64);
    }
}
