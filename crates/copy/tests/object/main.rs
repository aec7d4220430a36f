//! What the compiler made of this crate: whom it calls, and the shape of the code that matters.
//!
//! The crate is compiled again, alone, by the compiler that cargo uses: an object file can be read,
//! a test binary has everything else in it too.
#![cfg(not(miri))]

mod build;
mod calls;
#[cfg(target_arch = "x86_64")]
mod listing;
#[cfg(target_arch = "x86_64")]
mod shape;
