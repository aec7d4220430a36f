//! `libhaul_engine_fake.so`: shows a fake DSA to an unmodified program. `haul engine fake` starts
//! programs with it.
//!
//! `docs/engine-dsa.md` is the documentation for users. Notes for readers of the code:
//!
//! - **Files.** Paths below `/sys/bus/dsa` and `/dev/dsa` lead to the folder that the variable
//!   `HAUL_ENGINE_FAKE` names. All other paths are passed on.
//! - **The device lives in the program.** Threads of this library execute the descriptors, so that
//!   they reach the program's memory without any permission. The first `open` of a queue starts
//!   them; a child of fork starts its own.
//! - **A portal is a page without access.** MOVDIR64B and ENQCMD on it trap, also on a processor
//!   without these instructions. The handler of the signal executes them.
//!
//! From the bottom up:
//!
//! - `real`: the next functions with the same names;
//! - `paths`: paths of the fake;
//! - `device`: the device of this process, and the queues that it has open;
//! - `decode`: the two instructions;
//! - `handler`: the handler of signals;
//! - `portal`: pages on which the two instructions trap;
//! - `calls`: functions of libc on files;
//! - `path_calls`: functions of libc on paths;
//! - `start`: the constructor.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("libhaul_engine_fake is for 64-bit Linux");

mod real;

mod paths;

mod device;

#[cfg(target_arch = "x86_64")]
mod decode;

#[cfg(target_arch = "x86_64")]
mod handler;

mod portal;

pub mod calls;

pub mod path_calls;

mod start;
