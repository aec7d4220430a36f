//! The names of experiments and of their parameters in records, shared by the code that writes
//! records and the code that reads them.
//!
//! From the bottom up:
//!
//! - [`name`]: the values of [`Record::experiment`](crate::Record::experiment);
//! - [`key`]: the keys of [`Record::parameters`](crate::Record::parameters).

pub mod key;
pub mod name;

/// The most that a caller that waits at once may pay through the engine `auto`, by the time of a
/// copy. The sizes of `haul.toml` are chosen for it, and a page judges by it.
pub const ENGINE_WAIT_MOST: f64 = 1.05;
