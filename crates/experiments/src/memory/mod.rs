//! The limits of memory itself: bandwidth, and the cost of a page fault.
//!
//! From the bottom up:
//!
//! - `bandwidth`: the limit of every copy;
//! - `fault`: the cost of a page fault.

pub mod bandwidth;
pub mod fault;

pub use bandwidth::{Bandwidth, Extent, Operation};
pub use fault::Fault;
