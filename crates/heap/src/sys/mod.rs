//! The system calls of this crate, and the facts about the machine that it reads. Only code in
//! this folder calls the kernel, and this code does not allocate.
//!
//! From the bottom up:
//!
//! - `raw`: the system calls that rustix lacks;
//! - `miri`: address space under Miri, which does not support the system calls for it;
//! - [`huge`]: sizes of huge pages;
//! - [`limit`]: resource limits of the process;
//! - [`file`]: memory files, named files, and small files that are read into a buffer;
//! - [`memory`]: reserves, maps, populates and gives back address space;
//! - [`signal`]: actions for a signal;
//! - [`process`]: the identities of processes and threads, and whether these live;
//! - [`machine`]: page sizes, huge pages, nodes, memory.

#[cfg(miri)]
mod miri;
mod raw;

pub(crate) mod file;
pub(crate) mod huge;
pub(crate) mod limit;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod signal;

pub(crate) use rustix::io::Errno;

/// Nanoseconds of the monotonic clock. One system call.
pub(crate) fn now_ns() -> u64 {
    let [seconds, nanoseconds] = raw::monotonic();
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
}

/// Yields the rest of this thread's time slice.
pub(crate) fn yield_now() {
    rustix::thread::sched_yield();
}

/// Sleeps for a tenth of a millisecond, between two polls for another process's work.
pub(crate) fn pause() {
    pause_times(1);
}

/// Sleeps for `times` pauses of a tenth of a millisecond. `times` must be below 10,000.
pub(crate) fn pause_times(times: u32) {
    let time = rustix::thread::Timespec { tv_sec: 0, tv_nsec: (times * 100_000).into() };
    // A signal only shortens the sleep.
    let _ = rustix::thread::nanosleep(&time);
}
