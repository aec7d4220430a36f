//! Who owns what, and how it changes hands: the state words, and every transition of them.
//!
//! All of it works on slices of atomics and knows nothing of mappings, threads or system calls. So
//! loom can run it in every order: `tests/interleavings` compiles this folder over loom's atomics.
//! From the bottom up:
//!
//! - `step`: labelled points between shared stores, for tests that kill there;
//! - `word`: the state words;
//! - `class`: the size classes, the shapes of spans;
//! - `bitmap`: bitmaps of candidates;
//! - `runs`: where free slices follow each other;
//! - `slice`: how slices change hands;
//! - `page`: how pages come and go;
//! - `slot`: how the slots of a span change hands;
//! - `count`: how its free slots are counted;
//! - `span`: how a span is taken apart;
//! - `record`: how the records of processes and caches change hands;
//! - `versioned`: words that a signal handler reads as one.

pub(crate) mod bitmap;
pub(crate) mod class;
pub(crate) mod count;
pub(crate) mod page;
pub(crate) mod record;
pub(crate) mod runs;
pub(crate) mod slice;
pub(crate) mod slot;
pub(crate) mod span;
#[cfg(not(feature = "steps"))]
pub(crate) mod step;
#[cfg(feature = "steps")]
pub mod step;
pub(crate) mod versioned;
pub(crate) mod word;
