//! Converts records to one self-contained HTML page.
//!
//! The crate sees only records, so that every page can be made again from the saved file on another
//! machine. The crate is pure: it has no input or output, and no clock. Equal records give equal
//! pages, byte for byte.
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
//! - `text`, `stats`: text and numbers;
//! - [`limit`]: how far a copy is from the memory limit;
//! - `select`: groups records by machine and by experiment;
//! - [`compare`](mod@compare): changes from one file of records to another;
//! - `note`: the note beside a figure;
//! - `rerun`: the command that measures a record again;
//! - `map`: the map of a heap, drawn;
//! - `sim`: the simulated server's tables and figures, drawn;
//! - `forward`: the forwarder's rates, ledger and histograms, drawn;
//! - `burst`: bursts of a running program, drawn;
//! - [`profile`]: the copies of a program, drawn;
//! - `sweep`: a modelled NIC over the packet rate, drawn;
//! - `terms`: the traffic of a packet workload, term by term, drawn;
//! - [`field`](mod@field): field tests, as sentences and drawn;
//! - `findings`: the sentences at the top of the page;
//! - `figures`: the content of the plots as data;
//! - `svg`: a figure without a browser;
//! - `table`, `csv`: every number;
//! - `export`: results in formats that other programs read;
//! - `compact`: records in less space;
//! - `embed`: the records that a page embeds;
//! - `page`: the whole page.
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

pub mod profile;

mod sweep;

mod terms;

pub mod field;

mod findings;

mod figures;

mod svg;

mod table;

mod csv;

mod export;

mod compact;

mod embed;

mod page;

pub use compact::compact;
pub use compare::{Changes, Terms, compare};
pub use csv::csv;
pub use export::{Format, export};
pub use findings::verdicts::{Missing, Verdict, missing, verdicts};
pub use findings::{Finding, Tone, findings};
pub use note::note;
pub use page::html;
pub use svg::svg;
