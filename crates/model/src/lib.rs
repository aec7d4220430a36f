//! Units, measurement records and cost arithmetic: what every other part of haul says numbers in.
//!
//! ```
//! use haul_model::{Bytes, Line, Record};
//! assert_eq!("4KiB".parse::<Bytes>().unwrap(), Bytes(4096));
//! let mut record = Record::new("run-1", "copy.size", "haul", "time", "ns");
//! record.samples = vec![51.0, 50.0, 53.0];
//! assert_eq!(record.median(), Some(51.0));
//! assert_eq!(Line::parse(&Line::from(record.clone()).to_json()).unwrap(), Line::Record(record));
//! ```
//!
//! Pure: no unsafe code, no input or output, no clock. From the bottom up:
//!
//! - [`units`]: bytes, nanoseconds and rates, how they are parsed and how they are shown;
//! - [`sizes`]: lists and classes of sizes, as the command line takes them;
//! - [`statistics`]: quantiles, intervals and means;
//! - [`experiment`]: what experiments and their parameters are called;
//! - [`record`]: [`Record`] and [`Machine`], the lines of a JSON Lines file;
//! - [`file`](mod@file): a whole record file as text;
//! - [`trace`]: a recorded history of allocations, to the byte;
//! - [`picture`]: what a page of a heap holds, as text;
//! - [`capture`]: the headers of a capture of packets;
//! - [`pcie`]: what a packet workload moves across PCIe.
#![forbid(unsafe_code)]

pub mod units;

pub mod sizes;

pub mod statistics;

pub mod experiment;

pub mod record;

pub mod file;

pub mod trace;

pub mod picture;

pub mod capture;

pub mod pcie;

pub use file::{FileError, parse, parse_what_can_be};
pub use record::{
    Better, Comparison, Kind, Line, LineError, MATTERS, Machine, RatioOf, Record, Settle, Verdict,
};
pub use sizes::{SizeClass, Sizes};
pub use units::{Bytes, BytesPerSecond, Nanos, UnitError};
