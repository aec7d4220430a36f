//! The algorithms, written once over [`Line`](super::Line).
//!
//! Every function here is `#[inline(always)]`: it is inlined into the functions of the instruction
//! set files, which enable the features that it needs.
//!
//! Steps are written out, without closures, iterators or loops over registers. The crate is
//! `no_builtins`, so link-time optimization skips it, although the compiler leaves unrolling to
//! that pass: with `lto = "thin"`, a `for` over four lines stayed a loop over the stack, and a
//! copy of 65 to 256 bytes takes twice libc's time instead of 0.8 of it. A test reads the crate's
//! assembly with and without link-time optimization.
//!
//! From the bottom up:
//!
//! - `copy`: memmove over cache lines;
//! - `fill`: memset over cache lines;
//! - `stream`: memmove and memset that bypass the caches.

mod copy;
mod fill;
mod stream;

pub(crate) use copy::{copy, copy_65_to_256, copy_above_256};
pub(crate) use fill::{fill, fill_65_to_256, fill_above_256};
pub(crate) use stream::{stream_copy, stream_fill};

/// The largest size in bytes that is copied without a loop.
pub(crate) const BLOCK_MAX: usize = 256;
