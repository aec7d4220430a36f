//! Rings of virtio 1.2 in memory that both sides write.
//!
//! This code does not trust the other side. Indices are masked to the ring's size, so that every
//! access is inside the ring for any content. Each word is read once, by an access that the
//! compiler cannot repeat. The caller must check the values.
//!
//! From the bottom up:
//!
//! - `features`: feature bits that both sides negotiate;
//! - `prefetch`: prefetches of cache lines;
//! - `split`: the split ring;
//! - `packed`: the packed ring.

pub(crate) mod features;
pub(crate) mod packed;
pub(crate) mod prefetch;
pub(crate) mod split;
