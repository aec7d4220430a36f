//! Units, measurement records and cost arithmetic: what every other part of haul says numbers in.
//!
//! Pure: no unsafe code, no input or output, no clock. From the bottom up:
//!
//! - [`units`]: bytes, nanoseconds and rates, how they are parsed and how they are shown;
//! - [`record`]: [`Record`] and [`Machine`], the lines of a JSON Lines file.
#![forbid(unsafe_code)]

pub mod record;
pub mod units;

pub use record::{Comparison, Kind, Line, Machine, Record};
pub use units::{Bytes, BytesPerSecond, Nanos};
