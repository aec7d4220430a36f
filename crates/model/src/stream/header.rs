//! The first line of a file: what was recorded, as JSON.

use serde::{Deserialize, Serialize};

use super::call::{PAGES_MAX, ReadsBy, Site};
use super::{CALLS_MAX, SITES_MAX, StreamError};

/// The `schema` of every stream that this version writes.
pub const STREAM_SCHEMA: &str = "haul.stream/1";

/// The largest size of the header in bytes, including its line feed.
pub(super) const HEADER_BYTES_MAX: usize = 16 << 20;

/// The longest text of a header in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// The program, the machine and the counts of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The base name of the executable.
    pub program: String,
    /// A description by the user; it may be empty.
    #[serde(default)]
    pub about: String,
    /// When the recording began: RFC 3339, UTC, to the second.
    pub time: String,
    /// The id of the machine that recorded it.
    pub machine: String,
    /// The libc of the program.
    pub libc: String,
    /// The thread: 0 for the first of the process that made a call, 1 for the second.
    pub thread: u32,
    /// The number of calls of the whole process.
    pub process_calls: u64,
    /// The number of calls of the thread.
    pub thread_calls: u64,
    /// The number of the thread's calls that precede the kept ones.
    pub skipped: u64,
    /// The number of calls among the kept ones that the stream does not have: they are longer than
    /// [`SIZE_MAX`](super::SIZE_MAX), or beyond an arena of [`PAGES_MAX`] pages.
    pub left_out: u64,
    /// How reads of targets are known.
    pub reads_by: ReadsBy,
    /// The number of pages of the arena.
    pub pages: u32,
}

/// The whole line.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstLine {
    schema: String,
    #[serde(flatten)]
    pub(super) header: Header,
    /// The number of calls that follow.
    pub(super) calls: u64,
    /// The sum of their sizes.
    pub(super) bytes: u64,
    pub(super) sites: Vec<Site>,
}

impl FirstLine {
    pub(super) fn new(header: Header, sites: Vec<Site>, calls: u64, bytes: u64) -> Self {
        Self { schema: STREAM_SCHEMA.into(), header, calls, bytes, sites }
    }

    /// Reads the line at the start of a file, and returns it with the bytes that follow.
    pub(super) fn parse(file: &[u8]) -> Result<(Self, &[u8]), StreamError> {
        let head = &file[..file.len().min(HEADER_BYTES_MAX)];
        let end = head.iter().position(|byte| *byte == b'\n').ok_or(StreamError::NoHeader)?;
        let value: serde_json::Value = serde_json::from_slice(&head[..end])?;
        let schema = value.get("schema").and_then(serde_json::Value::as_str);
        if schema != Some(STREAM_SCHEMA) {
            let found = schema.unwrap_or("(none)").chars().take(40).collect();
            return Err(StreamError::Schema { found });
        }
        let line: Self = serde_json::from_value(value)?;
        line.check()?;
        Ok((line, &file[end + 1..]))
    }

    /// The line's bytes, including the line feed.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StreamError> {
        self.check()?;
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn check(&self) -> Result<(), StreamError> {
        let Header { program, about, time, machine, libc, pages, .. } = &self.header;
        for (field, text) in [("about", about), ("time", time), ("machine", machine)] {
            check_text(field, text)?;
        }
        check_text("libc", libc)?;
        check_name("program", program)?;
        for site in &self.sites {
            check_name("module", &site.module)?;
            check_text("symbol", site.symbol.as_deref().unwrap_or_default())?;
            at_most("read_soon", site.read_soon, site.sampled)?;
        }
        at_most("pages", (*pages).into(), PAGES_MAX.into())?;
        at_most("calls", self.calls, CALLS_MAX as u64)?;
        at_most("number of sites", self.sites.len() as u64, SITES_MAX as u64)
    }
}

pub(super) fn at_most(field: &'static str, found: u64, highest: u64) -> Result<(), StreamError> {
    if found <= highest { Ok(()) } else { Err(StreamError::Count { field, found, highest }) }
}

fn check_text(field: &'static str, text: &str) -> Result<(), StreamError> {
    if text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(StreamError::Text { field, found: text.chars().take(40).collect() })
}

/// A base name: streams have no paths.
fn check_name(field: &'static str, name: &str) -> Result<(), StreamError> {
    check_text(field, name)?;
    if name.is_empty() || name.contains('/') {
        return Err(StreamError::Text { field, found: name.chars().take(40).collect() });
    }
    Ok(())
}
