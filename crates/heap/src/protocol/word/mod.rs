//! The state words: every resource has one state word, which alone decides who owns the resource.
//!
//! | resource | word | states |
//! |---|---|---|
//! | slot | [`SlotWord`], 16 bits | free, cached by a cache, live for a process under a tag |
//! | slice | [`SliceWord`], 64 bits | free, claimed, run, span, large, tail |
//! | page | [`PageWord`], 64 bits | absent, mapping, ready, draining |
//! | cache record | [`CacheWord`], 64 bits | free, active, reaping |
//! | process record | [`ProcessWord`], 64 bits | free, joining, active, reaping |
//!
//! The word 0 is always "free", so that fresh, zeroed memory is a valid empty heap. A word from
//! shared memory can have any value. Decoding never fails, and the value of a field never exceeds
//! its number of bits. Callers check a field before they use it as an index.
//!
//! From the bottom up:
//!
//! - `slot`: the word of a slot;
//! - `slice`: the word of a slice;
//! - `page`: the word of a page;
//! - `record`: the words of the records of processes and caches.

mod page;
mod record;
mod slice;
mod slot;

pub(crate) use page::{Page, PageWord};
pub(crate) use record::{Cache, CacheWord, Process, ProcessWord};
pub(crate) use slice::{Slice, SliceWord};
pub(crate) use slot::{Slot, SlotWord};

/// The highest cache number: 15 bits of a slot word. The lowest is 1.
pub(crate) const CACHE_ID_MAX: u32 = 0x7FFF;

/// The largest number of caches that serve one thread each. The other numbers are for the spare
/// records: [`crate::layout::Geometry::spare_caches`].
pub(crate) const CACHES_MAX: u32 = CACHE_ID_MAX - PROCESSES_MAX * 8;

/// How many processes can share a heap: 7 bits of a slot word.
pub(crate) const PROCESSES_MAX: u32 = 128;

/// The largest number of PID namespaces in which processes of a heap can run, plus one: 7 bits of
/// a process record's word. The value 0 means unknown.
pub(crate) const NAMESPACES_MAX: usize = 128;

/// How many tags there can be, including the empty tag 0: 8 bits of a slot word.
pub(crate) const TAGS_MAX: u32 = 256;

/// The number of pieces per slice. A piece is 4 KiB; a slice's memory is counted in pieces.
pub(crate) const PIECES: u32 = 16;

/// The number of a cache: 1 to [`CACHE_ID_MAX`]. 0 means none.
pub(crate) type CacheId = u16;
