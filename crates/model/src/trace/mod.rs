//! A recorded history of allocations: the format of a trace file, to the byte.
//!
//! A trace is what one process asked of its allocator, by thread and by time. `docs/heap-trace.md`
//! describes the file; this module is that description as code. It allocates nothing while it
//! writes, so that a recorder may use it inside of `malloc`, and it checks everything while it
//! reads, so that any bytes give events or an error.
//!
//! - `number`: whole numbers in as few bytes as they need;
//! - `header`: the first bytes of a file, and of each block;
//! - `event`: one call, as bytes and back;
//! - `history`: calls with addresses become operations on numbered blocks, in one order.

mod event;
mod header;
mod history;
mod number;

pub use event::{Call, Coder, EVENT_BYTES_MAX, Event, Events, NAME_BYTES_MAX, TAGS_MAX};
pub use header::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES, Header,
    PROGRAM_BYTES, VERSION,
};
pub use history::{Builder, History, Kind, Oddities, Operation};

/// Why bytes are not a trace, or not all of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The first bytes are another file's.
    #[error(
        "not a haul trace: it begins with {found:02x?} where a trace begins with \"haultrc\"; \
         record one with LD_PRELOAD=libhaul_record.so"
    )]
    Magic {
        /// What stands there.
        found: [u8; 8],
    },
    /// A version that this haul does not know.
    #[error(
        "a trace of version {found}, and this haul reads version {VERSION}; read it with the haul \
         that recorded it, or record it again"
    )]
    Version {
        /// The file's version.
        found: u16,
    },
    /// A field of a header beyond its limits.
    #[error(
        "the trace's header says {field} is {found}, which must be from {lowest} to {highest}; the \
         file is damaged: record it again"
    )]
    Header {
        /// Which field.
        field: &'static str,
        /// What it says.
        found: u64,
        /// The least it may say.
        lowest: u64,
        /// The most it may say.
        highest: u64,
    },
    /// Fewer bytes than the header takes.
    #[error(
        "a trace's header takes {HEADER_BYTES} bytes and there are {found}; the recorder was \
         stopped before it began: record it again"
    )]
    Short {
        /// How many there are.
        found: usize,
    },
    /// A block whose bytes are no events.
    #[error(
        "a block of the trace is damaged at byte {at} of its events: {why}; what stands before it \
         is used"
    )]
    Event {
        /// Where, from the first byte of the block's events.
        at: usize,
        /// What is wrong there.
        why: &'static str,
    },
    /// More operations than the reader was told to take.
    #[error(
        "the trace has more than {limit} operations; raise the limit with --operations, or record \
         a shorter run"
    )]
    TooLong {
        /// The limit.
        limit: usize,
    },
}
