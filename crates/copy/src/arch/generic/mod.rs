//! The algorithms, written once over [`Line`](super::Line).
//!
//! Everything here is `#[inline(always)]`: it becomes code inside the functions of the instruction
//! set files, which enable the features that it needs.
//!
//! Steps are written out, without closures, iterators or loops over registers. The crate is
//! `no_builtins`, so link-time optimization leaves it out after having relied on a second pass for
//! unrolling: with `lto = "thin"` a `for` over four lines stayed a loop over the stack, and a copy
//! of 65 to 256 bytes took twice libc's time instead of 0.8 of it. Its assembly is tested with
//! and without.
//!
//! From the bottom up:
//!
//! - `copy`: memmove over cache lines;
//! - `fill`: memset over cache lines;
//! - `stream`: both past the caches.

mod copy;
mod fill;
mod stream;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(crate) use copy::copy_65_to_256_branching;
pub(crate) use copy::{copy, copy_65_to_256, copy_above_256};
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
pub(crate) use fill::fill_65_to_256_branching;
pub(crate) use fill::{fill, fill_65_to_256, fill_above_256};
pub(crate) use stream::{stream_copy, stream_fill};

/// Above this many bytes a copy loops.
pub(crate) const BLOCK_MAX: usize = 256;
