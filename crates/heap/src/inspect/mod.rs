//! Inspection of a heap: a walk over its live blocks, statistics, a map, a dump, and a check of
//! its state words.
//!
//! All functions read only the state words, so they slow down no other call and stop no thread.
//! While other threads allocate and free, each block is reported as it was at some time during
//! the call. A count is exact only if no thread allocates or frees meanwhile.
//!
//! - `walk`: live blocks;
//! - `stats`: counts by node and tag;
//! - `map`: pages and slices;
//! - `tags`: names of tags;
//! - `validate`: a consistency check of the words.

mod map;
mod stats;
mod tags;
mod validate;
mod walk;

pub use map::{PageState, PageView, SliceView};
pub use stats::{Count, Stats};
pub use tags::{TAG_NAME_MAX, TagName};
pub use validate::{Damage, DamageKind};
pub use walk::Block;
