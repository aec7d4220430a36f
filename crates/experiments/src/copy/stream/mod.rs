//! The calls of real programs, replayed in their order: `copy.stream`.
//!
//! All subjects use the same arena, which is allocated once, and the same calls. So sizes, order,
//! alignments, overlaps, reuse and reads are those of the recorded program.
//!
//! From the bottom up:
//!
//! - [`recorded`]: streams from files, and those that haul contains;
//! - [`sites`]: one code location for each call site, and the timed loop;
//! - [`subjects`]: the candidates, each with its three functions;
//! - [`track`]: the arena and the calls of a stream, and the subject that runs on them;
//! - [`replay`]: the experiment.

pub mod recorded;
pub mod replay;
pub mod sites;
pub mod subjects;
#[cfg(test)]
mod tests;
pub mod track;

pub use recorded::Recorded;
pub use replay::{Programs, Replay};
