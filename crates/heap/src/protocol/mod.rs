//! The owners of resources: the state words, and every transition between them.
//!
//! The code works on slices of atomics and is independent of mappings, threads and system calls.
//! So loom can run the transitions in every order: `tests/interleavings` compiles this folder
//! with loom's atomics. From the bottom up:
//!
//! - `step`: labelled points between shared stores, at which tests kill the process;
//! - `word`: the state words;
//! - `class`: the size classes and the shapes of spans;
//! - `bitmap`: bitmaps of candidates;
//! - `runs`: runs of free slices;
//! - `slice`: transitions of slices;
//! - `page`: transitions of pages;
//! - `slot`: transitions of slots in a span;
//! - `count`: the count of a span's free slots;
//! - `span`: takes a span apart;
//! - `record`: transitions of the records of processes and caches;
//! - `holders`: counts the threads that hold free slices for a moment;
//! - `versioned`: words that a signal handler reads as one value.

pub(crate) mod bitmap;
pub(crate) mod class;
pub(crate) mod count;
pub(crate) mod holders;
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
