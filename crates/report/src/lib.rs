//! Records in, one self-contained HTML page out.
//!
//! Sees nothing but records, so that any page can be made again, on another machine, from the saved
//! file. Pure: no input or output, no clock; the same records give the same page, byte for byte.
//!
//! ```
//! use haul_model::{Line, Record};
//! let record = Record::new("run-1", "copy.size", "haul", "time", "ns");
//! let mut record = record.with("size_bytes", 4096);
//! record.samples = vec![51.2, 50.9, 51.0];
//! let lines = [Line::from(record)];
//! assert!(haul_report::html(&lines).starts_with("<!doctype html>"));
//! assert_eq!(haul_report::csv(&lines).lines().count(), 2);
//! ```
//!
//! From the bottom up:
//!
//! - `text`, `stats`: words and numbers;
//! - [`limit`]: how far a copy is from what memory allows;
//! - `select`: which records belong together, by machine and by experiment;
//! - [`compare`](mod@compare): what changed from one file of records to another;
//! - `note`: what is said beside a figure;
//! - `rerun`: the command that measures a record again;
//! - `map`: what a heap holds, drawn;
//! - `sim`: the simulated server's tables and figures, drawn;
//! - `forward`: the forwarder's rates, ledger and histograms, drawn;
//! - `burst`: bursts of a running program, drawn;
//! - `sweep`: a modelled NIC over the rate, drawn;
//! - `terms`: what a packet workload moves, term by term, drawn;
//! - `findings`: the sentences that open the page;
//! - `figures`: what the plots draw, as data;
//! - `svg`: a figure without a browser;
//! - `table`, `csv`: every number;
//! - `compact`: records in less room;
//! - `embed`: the records that a page carries;
//! - `page`: the whole.
#![forbid(unsafe_code)]

mod text;

mod stats;

pub mod limit;

mod select;

pub mod compare;

mod note;

mod rerun;

mod map;

mod sim;

mod burst;
mod forward;

mod sweep;

mod terms;

mod findings;

mod figures;

mod svg;

mod table;

mod csv;

mod compact;

mod embed;

mod page;

pub use compact::compact;
pub use compare::{Changes, Terms, compare};
pub use csv::csv;
pub use findings::verdicts::{Missing, Verdict, missing, verdicts};
pub use findings::{Finding, Tone, findings};
pub use note::note;
pub use page::html;
pub use svg::svg;
