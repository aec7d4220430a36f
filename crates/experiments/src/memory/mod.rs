//! What memory itself allows: bandwidth, and the price of a page fault.
//!
//! From the bottom up:
//!
//! - `bandwidth`: the limit that no copy passes;
//! - `fault`: the price of a page fault.

pub mod bandwidth;
pub mod fault;

pub use bandwidth::{Bandwidth, Extent, Operation};
pub use fault::Fault;
