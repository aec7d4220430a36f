//! `libhaul_copy_record.so`: records the calls of an unmodified program to memcpy, memmove and
//! memset. `haul copy record` starts programs with it, and makes streams of what it leaves.
//!
//! `docs/stream.md` is the documentation for users. Notes for readers of the code:
//!
//! - **It runs everywhere**: before the dynamic linker has relocated it, in constructors, in
//!   signal handlers and after a fork. It does not allocate, take a lock, look up a symbol, or
//!   change `errno`. `std` is linked and not used. Until its own constructor has run, a call
//!   copies with two instructions and touches no other memory.
//! - **One file for a run**: `haul copy record` creates it with all its disk space, and each
//!   process maps it once, when it starts. A forked child inherits the mapping. So recording needs
//!   no descriptor, and nothing has to run at exit.
//! - **A fork needs no handler**: the state of a process is in memory that the kernel wipes in a
//!   child.
//! - **It may call itself**: the compiler makes calls of memcpy from assignments. A thread that is
//!   recording is marked, and its inner calls only copy.
//! - **A sample makes system calls** between two calls of the program. It makes none if the
//!   process filters its system calls.
//!
//! From the bottom up:
//!
//! - `sys`: system calls and the tick counter;
//! - `filter`: whether the recorder may make a system call, as in the other recorder;
//! - `plain`: the copies and fills themselves;
//! - `recording`: the file that all processes of a run write;
//! - `sample`: breakpoints on a target;
//! - `state`: the state of this process;
//! - `thread`: the part of the recording that one thread writes;
//! - `recorder`: the path of a call to the recording;
//! - `start`: the constructor;
//! - `calls`: memcpy and related functions;
//! - `filter_calls`: other functions whose calls the recorder must see.
#![no_builtins]

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!("libhaul_copy_record is for 64-bit Linux on x86-64 and aarch64");

mod sys;

#[path = "../../record/src/filter.rs"]
mod filter;

mod plain;

mod recording;

mod sample;

mod state;

mod thread;

mod recorder;

mod start;

pub mod calls;

pub mod filter_calls;
