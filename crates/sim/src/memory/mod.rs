//! The parts of the memory system, each a small machine of its own: the memory system ties them.
//!
//! - [`port`]: what passes between the processor and the memory system.

pub mod port;

pub use port::{Access, Completion, Copy, Kind, Passing, Tag};
