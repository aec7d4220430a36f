//! The file format of a trace: a recorded history of allocations.
//!
//! A trace contains the calls of one process to its allocator, each with its thread and its time.
//! `docs/heap-trace.md` describes the file; this module implements it. Writing does not allocate,
//! so that a recorder may use it inside `malloc`. Reading checks everything, so that any bytes
//! give events or an error.
//!
//! - `header`: the headers of a file and of its blocks;
//! - `event`: encodes and decodes one call;
//! - `history`: converts calls with addresses to operations on numbered blocks, in one order.

mod event;
mod header;
mod history;

pub use event::{Call, Coder, EVENT_BYTES_MAX, Event, Events, NAME_BYTES_MAX, TAGS_MAX};
pub use header::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES, Header,
    PROGRAM_BYTES, VERSION,
};
pub use history::{Builder, History, Kind, Oddities, Operation};

/// The reason why bytes are not a valid trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The first bytes belong to another format.
    #[error(
        "not a haul trace: it begins with {found:02x?} where a trace begins with \"haultrc\"; \
         record one with LD_PRELOAD=libhaul_record.so"
    )]
    Magic {
        /// The bytes that were found.
        found: [u8; 8],
    },
    /// The version of the format is unknown.
    #[error(
        "the trace has version {found}, and this version of haul reads version {VERSION}; read it \
         with the version that recorded it, or record it again"
    )]
    Version {
        /// The file's version.
        found: u16,
    },
    /// A field of a header is outside its limits.
    #[error(
        "the trace's header says {field} is {found}, which must be from {lowest} to {highest}; the \
         file is damaged: record it again"
    )]
    Header {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The smallest valid value.
        lowest: u64,
        /// The largest valid value.
        highest: u64,
    },
    /// There are fewer bytes than a header has.
    #[error(
        "a trace's header has {HEADER_BYTES} bytes, but the file has {found}; the recorder was \
         stopped before it began: record it again"
    )]
    Short {
        /// The number of bytes in the file.
        found: usize,
    },
    /// A block has bytes that are not events.
    #[error(
        "a block of the trace is damaged at byte {at} of its events: {why}; the events before it \
         are used"
    )]
    Event {
        /// The offset from the first byte of the block's events.
        at: usize,
        /// The reason.
        why: &'static str,
    },
    /// The trace has more operations than the reader's limit.
    #[error(
        "the trace has more than {limit} operations; raise the limit with --operations, or record \
         a shorter run"
    )]
    TooLong {
        /// The limit.
        limit: usize,
    },
}
