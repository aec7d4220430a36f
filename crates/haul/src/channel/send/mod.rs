//! The half of a channel that messages go into.
//!
//! From the bottom up:
//!
//! - `sender`: the half itself;
//! - `sending`: a message on its way;
//! - `begin`: how a message begins.

pub(crate) mod begin;
pub(crate) mod sender;
pub(crate) mod sending;
