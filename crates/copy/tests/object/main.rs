//! The machine code of this crate: the functions that it calls, and the shape of critical code.
//!
//! The test compiles the crate again, alone, with cargo's compiler, and reads the object file: a
//! test binary would also contain other crates.
#![cfg(not(miri))]

mod build;
mod calls;
#[cfg(target_arch = "x86_64")]
mod listing;
#[cfg(target_arch = "x86_64")]
mod shape;
