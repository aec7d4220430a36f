//! `libhaul_record.so`: records what an unmodified program asks of its allocators.
//!
//! ```text
//! HAUL_RECORD=/tmp/sort.trace LD_PRELOAD=libhaul_record.so sort words
//! haul heap replay /tmp/sort.trace.4711
//! ```
//!
//! `docs/heap-trace.md` has the format and what a user needs to know. What a reader of the code
//! needs to know:
//!
//! - **Nothing here allocates**, takes a lock or changes `errno`: it runs inside of `malloc`, in
//!   any thread, before libc is set up and after it was torn down, and in signal handlers. `std` is
//!   linked and not used.
//! - **A thread writes into a block of its own**, mapped from the file and shared with it: whatever
//!   ends the process, the kernel has every event. Nothing is flushed, so nothing has to run at
//!   exit.
//! - **A fork needs no handler**: all state is in memory that the kernel wipes in a child, so that
//!   the child finds it as it was before the first call and begins a file of its own.
//! - **No descriptor is trusted**: programs close what they do not know, and then open something
//!   else with the same number. The file is opened by name for each block, and where that cannot
//!   be, by a descriptor that was kept; either is checked to be ours.
//! - **No fault is the program's**: a page of the trace that somebody cut is replaced by memory.
//! - **No system call under a filter**: what is needed is taken before the filter begins.
//!
//! From the bottom up:
//!
//! - `early`: memory for calls that come before there is an allocator;
//! - `real`: the functions that would have been called;
//! - `filter`: whether a system call may be made;
//! - `file`: the trace's file: created, grown, mapped;
//! - `thread`: what one thread has of it;
//! - `tree`: what the processes of one run know of each other;
//! - `recorder`: whether to record, and the way of an event from a call into the file;
//! - `libc_calls`: `malloc` and its kin;
//! - `dpdk_calls`: `rte_malloc` and its kin;
//! - `signal_calls`, `filter_calls`: what else a program asks for that the recorder has to know.

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
