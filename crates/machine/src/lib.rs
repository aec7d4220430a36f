//! Facts about the machine on which haul runs. All crates of haul use this crate to read them.
//!
//! ```
//! let machine = haul_machine::sys::Sys::new().machine();
//! assert!(machine.processors >= 1);
//! println!("{}: {} processors", machine.cpu, machine.processors);
//! ```
//!
//! The library `haul`, the measurements and the program use this crate; users of the library find
//! the same modules in `haul`. From the bottom up; a module imports only modules above it in this
//! list:
//!
//! - [`error`]: the error type, [`Error`];
//! - [`file`](mod@file): reads files once with a limit, replaces files in one step;
//! - [`sys`]: properties, resources and permissions of this machine;
//! - [`tuning`]: `haul.toml`, the thresholds measured on this machine.

pub mod error;
pub mod file;
pub mod sys;
pub mod tuning;

pub use error::Error;
pub use tuning::init;

/// Tests the example in the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
