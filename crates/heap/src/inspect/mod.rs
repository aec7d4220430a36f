//! What a heap holds: a walk over its live blocks, statistics, a map, a dump, and a check of its
//! words.
//!
//! All of it is read off the state words, so it costs the calls of others nothing and stops nobody.
//! While others allocate and free, each block is seen as it was at some instant of the look, and a
//! count is exact for a heap that is quiet.
//!
//! - `walk`: live blocks;
//! - `stats`: counts by node and tag;
//! - `map`: pages and slices;
//! - `tags`: names of tags;
//! - `validate`: whether the words make sense.

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
