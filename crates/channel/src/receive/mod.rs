//! The half of a channel that messages come out of.
//!
//! From the bottom up:
//!
//! - `inbox`: what the half keeps, and the header of the message under way;
//! - `at_once`: a small message that is found in its slot at once;
//! - `filling`: how any other message comes to its target;
//! - `receiver`: the half, for who receives.

mod at_once;
mod filling;
pub(crate) mod inbox;
pub(crate) mod receiver;
