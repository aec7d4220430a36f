//! Memory that messages come in, and pages of theirs that take the place of others.
//!
//! From the bottom up:
//!
//! - `exclusive`: whether this process alone reaches a memory file;
//! - `huge`: huge pages for a memory file;
//! - `ranges`: addresses of a kind;
//! - `registry`: which pages haul has mapped for messages;
//! - `spares`: huge pages of messages that are gone;
//! - `announced`: pages of a view that the receiver will write to;
//! - `pool`: memory that a trusted sender copies into;
//! - `buffer`: what `recv` gives.

pub(crate) mod announced;
pub(crate) mod buffer;
pub(crate) mod exclusive;
pub(crate) mod huge;
pub(crate) mod pool;
pub(crate) mod ranges;
pub(crate) mod registry;
pub(crate) mod spares;
