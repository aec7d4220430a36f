//! What experiments and their parameters are called in records: once, for who writes records and
//! who reads them.
//!
//! From the bottom up:
//!
//! - [`name`]: what [`Record::experiment`](crate::Record::experiment) says;
//! - [`key`]: the keys of [`Record::parameters`](crate::Record::parameters).

pub mod key;
pub mod name;
