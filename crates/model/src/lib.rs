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
//! The crate has no unsafe code, does no input or output, and reads no clock. From the bottom up:
//!
//! - [`units`]: bytes, nanoseconds and rates, with their parsers and their text forms;
//! - [`shell`]: words of a shell's command line;
//! - [`sizes`]: lists and classes of sizes, as the command line accepts them;
//! - [`statistics`]: quantiles, intervals and means;
//! - [`experiment`]: the names of experiments and of their parameters;
//! - [`record`]: [`Record`] and [`Machine`], the lines of a JSON Lines file;
//! - [`file`](mod@file): a whole record file as text;
//! - [`trace`]: the file format of a recorded history of allocations;
//! - [`picture`]: the content of a page of a heap, as text;
//! - [`capture`]: the headers of a packet capture;
//! - [`pcie`]: the PCIe traffic of a packet workload.
#![forbid(unsafe_code)]

pub mod units;

pub mod shell;

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
