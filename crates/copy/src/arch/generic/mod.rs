//! The algorithms, written once over [`Line`](super::Line).
//!
//! Everything here is `#[inline(always)]`: it becomes code inside the functions of the instruction
//! set files, which enable the features that it needs.

mod copy;
mod fill;
mod stream;

pub(crate) use copy::{copy, copy_65_to_256, copy_above_256};
pub(crate) use fill::{fill, fill_65_to_256, fill_above_256};
pub(crate) use stream::{stream_copy, stream_fill};

/// Above this many bytes a copy loops.
pub(crate) const BLOCK_MAX: usize = 256;
