//! `libhaul_copy.so`: haul's memcpy, memmove and memset in an unmodified program, through
//! `LD_PRELOAD`, and a profile of their calls. `haul copy run` and `haul copy profile` start
//! programs with it.
//!
//! `docs/copy-preload.md` is the documentation for users. Notes for readers of the code:
//!
//! - **It runs everywhere**: before the dynamic linker has relocated it, in constructors, in
//!   signal handlers and after a fork. It does not allocate, take a lock, look up a symbol, print,
//!   or change `errno`. `std` is linked and not used.
//! - **A call** compares one byte, [`ready::MODE`], and jumps to haul's kernel. The byte says
//!   otherwise until the library is relocated, and while calls are profiled.
//! - **The constructor is optional.** Without it, the first call after the relocation puts the
//!   processor's default policy into force. With it, the policy of `haul.toml` is in force before
//!   the program begins, and no file is opened later.
//! - **After the constructor, it makes no system call**, so that a filter of system calls does not
//!   matter. A profile is memory that all processes of a run share.
//!
//! From the bottom up:
//!
//! - `sys`: system calls and the words of a thread;
//! - `ready`: whether kernels may run, and whether calls are profiled;
//! - `environment`: what the program was started with;
//! - `policy`: the policy of `haul.toml`;
//! - `file`: the file that all processes of a run map;
//! - `place`: the module of a call site;
//! - `profile`: the path of a sampled call to the file;
//! - `start`: the constructor;
//! - `calls`: memcpy and related functions.
#![no_builtins]

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!("libhaul_copy is for 64-bit Linux on x86-64 and aarch64");

mod sys;

mod ready;

mod environment;

mod policy;

mod file;

mod place;

mod profile;

mod start;

pub mod calls;
