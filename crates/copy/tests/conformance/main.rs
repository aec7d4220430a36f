//! Every kernel and every entry of the dispatch against the oracle.
//!
//! In release mode on the processor itself the grids are full: every size to 1,088 bytes, and every
//! 13th to 4096, at every combination of alignments mod 64. Elsewhere the grids are thinned, see
//! `support::effort`.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "a test's buffers are sized right above the calls that use them"
)]

#[path = "../support/mod.rs"]
mod support;

mod copy;
mod entries;
mod fill;
#[cfg(not(miri))]
mod large;
mod meaning;
mod overlap;
