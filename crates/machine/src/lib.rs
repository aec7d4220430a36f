//! What haul knows of the machine it runs on: the one place that asks.
//!
//! ```
//! let machine = haul_machine::sys::Sys::new().machine();
//! assert!(machine.processors >= 1);
//! println!("{}: {} processors", machine.cpu, machine.processors);
//! ```
//!
//! The library `haul`, measurements and the program read all of this here; a user of the library
//! finds the same modules in `haul`. From the bottom up; a module imports only those above it in
//! this list:
//!
//! - [`error`]: the one error type, [`Error`];
//! - [`file`](mod@file): files read once with a limit, files replaced in one step;
//! - [`sys`]: what this machine is, has and allows;
//! - [`tuning`]: `haul.toml`, the thresholds measured on this machine.

pub mod error;
pub mod file;
pub mod sys;
pub mod tuning;

pub use error::Error;
pub use tuning::init;
