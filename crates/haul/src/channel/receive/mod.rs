//! The half of a channel that messages come out of.
//!
//! From the bottom up:
//!
//! - `receiver`: the half itself;
//! - `incoming`: what a header says, and what of it is believed;
//! - `filling`: how a message comes to its target.

pub(crate) mod filling;
pub(crate) mod incoming;
pub(crate) mod receiver;
