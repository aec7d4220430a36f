//! The system calls of this crate, and the facts that it reads of the machine. Nothing outside this
//! folder talks to the kernel, and nothing inside it allocates.
//!
//! From the bottom up:
//!
//! - `raw`: the system calls that rustix lacks, by one instruction;
//! - `miri`: address space under Miri, which has no system calls for it;
//! - [`huge`]: sizes of huge pages;
//! - [`limit`]: what the process may have at most;
//! - [`file`]: memory files, files by name, small files read into a buffer;
//! - [`memory`]: address space reserved, mapped, populated, given back;
//! - [`signal`]: what a process does for a signal;
//! - [`process`]: who runs, and whether it still does;
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

/// Gives the rest of this thread's time slice away.
pub(crate) fn give_way() {
    rustix::thread::sched_yield();
}

/// Sleeps for a tenth of a millisecond: between looks at something that another process does.
pub(crate) fn pause() {
    pause_times(1);
}

/// Sleeps as long as so many of these pauses, fewer than 10,000.
pub(crate) fn pause_times(times: u32) {
    let time = rustix::thread::Timespec { tv_sec: 0, tv_nsec: (times * 100_000).into() };
    // Interrupted by a signal it is merely shorter.
    let _ = rustix::thread::nanosleep(&time);
}
