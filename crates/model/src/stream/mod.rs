//! The file format of a stream: the calls of memcpy, memmove and memset of one thread, in their
//! order.
//!
//! `docs/stream.md` describes the file; this module implements it. A stream has sizes, call sites
//! and offsets in an arena, but no address and no byte of the program's data. The arena has the
//! pages that the calls used, in the order of their addresses; adjacent pages stay adjacent, and a
//! page that no call uses stands for every gap. So alignments, distances below a page, overlap and
//! reuse are those of the program.
//!
//! ```
//! use haul_model::stream::{
//!     Call, Function, Header, Read, ReadsBy, Site, Stream, TimeClass,
//! };
//! let stream = Stream {
//!     header: Header {
//!         program: "sort".into(),
//!         about: "a list of words".into(),
//!         time: "2026-11-27T06:00:00Z".into(),
//!         machine: "zen5-2cpu".into(),
//!         libc: "glibc 2.36".into(),
//!         thread: 0,
//!         process_calls: 1,
//!         thread_calls: 1,
//!         skipped: 0,
//!         left_out: 0,
//!         reads_by: ReadsBy::Breakpoint,
//!         pages: 3,
//!     },
//!     sites: vec![Site {
//!         module: "sort".into(),
//!         offset: 0x4a31,
//!         symbol: Some("fillbuf".into()),
//!         sampled: 1,
//!         read_soon: 1,
//!     }],
//!     calls: vec![Call {
//!         function: Function::Memcpy,
//!         site: 0,
//!         size: 100,
//!         target: 16,
//!         source: Some(8192 + 3),
//!         since: TimeClass::of_ns(700),
//!         read: Read::After(TimeClass::of_ns(3)),
//!     }],
//! };
//! let file = stream.write().unwrap();
//! assert_eq!(Stream::read(&file).unwrap(), stream);
//! ```
//!
//! Reading checks everything, so that any bytes give a stream or an error.
//!
//! - `call`: one call and its site;
//! - `header`: the first line of a file;
//! - `packed`: the calls as bytes;
//! - [`recording`]: what recorded processes leave, and its conversion to streams.

mod call;
mod header;
mod packed;
pub mod recording;

use self::header::FirstLine;

pub use call::{
    Call, Function, PAGE_BYTES, PAGES_MAX, READ_SOON_NS, Read, ReadsBy, SIZE_MAX, Site, TimeClass,
};
pub use header::{Header, STREAM_SCHEMA, TEXT_BYTES_MAX};

/// The largest number of calls of a stream.
pub const CALLS_MAX: usize = 4 << 20;

/// The largest number of call sites of a stream.
pub const SITES_MAX: usize = 1 << 16;

/// The calls of one thread in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The program, the machine and the counts.
    pub header: Header,
    /// The call sites. Recorders put those with the most calls first.
    pub sites: Vec<Site>,
    /// The calls.
    pub calls: Vec<Call>,
}

impl Stream {
    /// Reads a whole file. It needs about 60 bytes for each call while it reads.
    ///
    /// # Errors
    /// It is an error if the bytes are not a stream of this version, or if a value is beyond its
    /// limit: every call of the result has a site and lies in the arena.
    pub fn read(file: &[u8]) -> Result<Self, StreamError> {
        let (line, packed) = FirstLine::parse(file)?;
        let (count, sites) = (line.calls as usize, line.sites.len());
        let calls = packed::unpack(packed, count, sites, line.header.pages)?;
        let stream = Self { header: line.header, sites: line.sites, calls };
        let bytes = stream.bytes();
        if bytes != line.bytes {
            return Err(StreamError::Bytes { found: bytes, said: line.bytes });
        }
        Ok(stream)
    }

    /// The bytes of a file. [`read`](Self::read) gives the same stream.
    ///
    /// # Errors
    /// It is an error if a value is beyond its limit, a site or a page is missing, or a call has a
    /// source although its function has none, or the reverse.
    pub fn write(&self) -> Result<Vec<u8>, StreamError> {
        let (calls, bytes) = (self.calls.len() as u64, self.bytes());
        let line = FirstLine::new(self.header.clone(), self.sites.clone(), calls, bytes);
        let mut file = line.to_bytes()?;
        for (at, call) in self.calls.iter().enumerate() {
            self.check(at, call)?;
        }
        file.extend(packed::pack(self));
        Ok(file)
    }

    /// The sum of the sizes of all calls.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.calls.iter().map(|call| u64::from(call.size)).sum()
    }

    /// The size of the arena in bytes.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        u64::from(self.header.pages) * u64::from(PAGE_BYTES)
    }

    fn check(&self, at: usize, call: &Call) -> Result<(), StreamError> {
        if usize::from(call.site) >= self.sites.len() {
            return Err(StreamError::Call { at, why: "its site is not in the table" });
        }
        if call.source.is_some() != call.function.has_source() {
            return Err(StreamError::Call { at, why: "its function and its source disagree" });
        }
        let range = |field, found, highest| StreamError::Range { at, field, found, highest };
        if call.size > SIZE_MAX {
            return Err(range("size", call.size.into(), SIZE_MAX.into()));
        }
        let arena = self.arena_bytes();
        for offset in std::iter::once(call.target).chain(call.source) {
            if u64::from(offset) + u64::from(call.size) > arena {
                let highest = arena.saturating_sub(call.size.into());
                return Err(range("offset", offset.into(), highest));
            }
        }
        Ok(())
    }
}

/// The reason why bytes are not a valid stream, or a stream cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no line feed where the header must end.
    #[error(
        "not a haul stream: it does not begin with a line of JSON; record one with `haul copy \
         record`"
    )]
    NoHeader,
    /// A recording has another layout.
    #[error(
        "not a recording of this version of haul: its library and this program differ; install \
         both from one build"
    )]
    NoRecording,
    /// The first line is not JSON, or lacks a field.
    #[error("not a haul stream: its first line: {0}; record one with `haul copy record`")]
    Json(#[from] serde_json::Error),
    /// The first line has another schema.
    #[error(
        "the file has schema {found:?}, and this version of haul reads streams of schema \
         {STREAM_SCHEMA:?}; read it with the version that wrote it, or record it again"
    )]
    Schema {
        /// The file's schema.
        found: String,
    },
    /// A number of the header is beyond its limit.
    #[error(
        "the stream's header says {field} is {found}, which must be at most {highest}; record \
         fewer calls, or record it again if the file is damaged"
    )]
    Count {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The largest valid value.
        highest: u64,
    },
    /// A text of the header is too long, is a path, or has control characters.
    #[error(
        "the stream's header has {found:?} as {field}, which must have at most {TEXT_BYTES_MAX} \
         bytes, no control characters, and no slash if it is a name; record it again"
    )]
    Text {
        /// The name of the field.
        field: &'static str,
        /// The beginning of its value.
        found: String,
    },
    /// The bytes after the header are not the packed calls that it announces.
    #[error(
        "the stream is damaged or cut off: the bytes after its header do not unpack to {calls} \
         calls; record it again"
    )]
    Packed {
        /// The number of calls in the header.
        calls: usize,
    },
    /// A call is invalid.
    #[error("call {at} of the stream is invalid: {why}; record it again")]
    Call {
        /// The index of the call.
        at: usize,
        /// The reason.
        why: &'static str,
    },
    /// A value of a call is beyond its limit.
    #[error(
        "call {at} of the stream has {field} {found}, which must be at most {highest}; record it \
         again"
    )]
    Range {
        /// The index of the call.
        at: usize,
        /// The name of the value.
        field: &'static str,
        /// The value.
        found: u64,
        /// The largest valid value.
        highest: u64,
    },
    /// The sizes do not add up to the header's sum.
    #[error(
        "the stream's calls have {found} bytes, and its header says {said}; the file is damaged: \
         record it again"
    )]
    Bytes {
        /// The sum of the sizes.
        found: u64,
        /// The sum in the header.
        said: u64,
    },
}

#[cfg(test)]
mod tests;
