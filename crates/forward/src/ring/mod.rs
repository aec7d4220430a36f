//! Rings of virtio 1.2 in memory that two sides write to.
//!
//! Nothing here believes the other side: indices are masked to the ring's size, so that every
//! access is inside it whatever stands there, and each word is read once, by an access that the
//! compiler cannot repeat. What the words mean is checked by whoever asks for them.
//!
//! From the bottom up:
//!
//! - `features`: what two sides agree on;
//! - `prefetch`: lines of the caches asked for early;
//! - `split`: the split ring;
//! - `packed`: the packed ring.

pub(crate) mod features;
pub(crate) mod packed;
pub(crate) mod prefetch;
pub(crate) mod split;
