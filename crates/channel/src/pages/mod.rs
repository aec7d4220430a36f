//! Memory of messages, and pages of messages that replace other pages.
//!
//! From the bottom up:
//!
//! - `exclusive`: whether this process alone reaches a memory file;
//! - `huge`: huge pages for a memory file;
//! - `ranges`: sets of address ranges;
//! - `registry`: which pages haul has mapped for messages;
//! - `spares`: huge pages of dropped messages;
//! - `announced`: pages of a view to which the receiver will write;
//! - `pool`: memory that a trusted sender copies into;
//! - `buffer`: the memory that `recv` returns.

pub(crate) mod announced;
pub(crate) mod buffer;
pub(crate) mod exclusive;
pub(crate) mod huge;
pub(crate) mod pool;
pub(crate) mod ranges;
pub(crate) mod registry;
pub(crate) mod spares;
