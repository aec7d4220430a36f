//! The receiving half of a channel.
//!
//! From the bottom up:
//!
//! - `inbox`: the state of the half, and the header of the current message;
//! - `at_once`: the fast path of a small message that is in its slot;
//! - `filling`: the transfer of any other message to its target;
//! - `receiver`: the public interface of the half.

mod at_once;
mod filling;
pub(crate) mod inbox;
pub(crate) mod receiver;
