//! Units, measurement records and cost arithmetic, used by every other crate of haul.
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
//! The crate has no unsafe code, does no input or output, and reads no clock. Without the feature
//! `records`, which is on by default, it has the units alone and depends on no other crate.
//!
//! From the bottom up:
//!
//! - [`units`]: bytes, nanoseconds and rates, with their parsers and their text forms;
//! - [`shell`]: words of a shell's command line;
//! - [`sizes`]: lists and classes of sizes, as the command line accepts them;
//! - [`statistics`]: quantiles, intervals and means;
//! - [`experiment`]: the names of experiments and of their parameters;
//! - [`record`]: [`Record`] and [`Machine`], the lines of a JSON Lines file;
//! - [`file`](mod@file): a whole record file as text;
//! - `number`: whole numbers in as few bytes as possible;
//! - [`trace`]: the file format of a recorded history of allocations;
//! - [`stream`]: the file format of a recorded thread's calls of memcpy, memmove and memset;
//! - [`profile`]: the profile of a program's copies and fills;
//! - [`picture`]: the content of a page of a heap, as text;
//! - [`capture`]: the headers of a packet capture;
//! - [`pcie`]: the PCIe traffic of a packet workload.
#![forbid(unsafe_code)]

pub mod units;

#[cfg(feature = "records")]
pub mod shell;

pub mod sizes;

#[cfg(feature = "records")]
pub mod statistics;

#[cfg(feature = "records")]
pub mod experiment;

#[cfg(feature = "records")]
pub mod record;

#[cfg(feature = "records")]
pub mod file;

#[cfg(feature = "records")]
mod number;

#[cfg(feature = "records")]
pub mod trace;

#[cfg(feature = "records")]
pub mod stream;

pub mod profile;

#[cfg(feature = "records")]
pub mod picture;

#[cfg(feature = "records")]
pub mod capture;

#[cfg(feature = "records")]
pub mod pcie;

#[cfg(feature = "records")]
pub use file::{FileError, parse, parse_what_can_be};
#[cfg(feature = "records")]
pub use record::{
    Better, Comparison, Kind, Line, LineError, MATTERS, Machine, RatioOf, Record, Settle, Verdict,
};
#[cfg(feature = "records")]
pub use sizes::{SizeClass, Sizes};
pub use units::{Bytes, BytesPerSecond, Nanos, UnitError};

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
