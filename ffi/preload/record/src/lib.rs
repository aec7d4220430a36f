//! `libhaul_record.so`: records the calls of an unmodified program to its allocators.
//!
//! ```text
//! HAUL_RECORD=/tmp/sort.trace LD_PRELOAD=libhaul_record.so sort words
//! haul heap replay /tmp/sort.trace.4711
//! ```
//!
//! `docs/heap-trace.md` contains the format and the documentation for users. Notes for readers of
//! the code:
//!
//! - **Nothing here allocates**, takes a lock or changes `errno`: the code runs inside `malloc`, in
//!   any thread, before libc is set up and after its teardown, and in signal handlers. `std` is
//!   linked and not used.
//! - **Each thread writes into a separate block**, which is a shared mapping of the file. So the
//!   kernel has every event, however the process ends. Nothing is flushed, so no code has to run
//!   at exit.
//! - **A fork needs no handler**: all state is in memory that the kernel wipes in a child. So the
//!   child starts in the initial state and creates a separate file.
//! - **No descriptor is trusted**: programs close descriptors that they do not know, and then
//!   open other files with the same number. For each block, the recorder opens the file by name,
//!   or uses a kept descriptor if that fails; in both cases, it checks that the file is the
//!   trace.
//! - **No fault reaches the program**: if the trace is truncated, memory replaces its mapped
//!   pages.
//! - **No system call under a filter**: the recorder maps blocks in advance before the filter
//!   begins.
//!
//! From the bottom up:
//!
//! - `early`: memory for calls before the real allocator is known;
//! - `real`: the real functions;
//! - `filter`: whether the recorder may make a system call;
//! - `file`: the trace's file: creates, grows and maps it;
//! - `thread`: the part of the trace that one thread writes;
//! - `tree`: the shared knowledge of the processes of one run;
//! - `recorder`: the state of the recording, and the path of an event from a call to the file;
//! - `libc_calls`: `malloc` and related functions;
//! - `dpdk_calls`: `rte_malloc` and related functions;
//! - `signal_calls`, `filter_calls`: other functions whose calls the recorder must see.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("libhaul_record is for 64-bit Linux");

mod early;

mod real;

mod filter;

mod file;

mod thread;

mod tree;

mod recorder;

pub mod libc_calls;

pub mod dpdk_calls;

pub mod signal_calls;

pub mod filter_calls;
