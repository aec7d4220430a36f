//! The names of experiments and of their parameters in records, shared by the code that writes
//! records and the code that reads them.
//!
//! From the bottom up:
//!
//! - [`name`]: the values of [`Record::experiment`](crate::Record::experiment);
//! - [`key`]: the keys of [`Record::parameters`](crate::Record::parameters).

pub mod key;
pub mod name;
