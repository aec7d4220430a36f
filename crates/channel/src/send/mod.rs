//! The half of a channel that messages go into.
//!
//! From the bottom up:
//!
//! - `outbox`: what the half keeps from message to message;
//! - `at_once`: a small message that finds its slot at once;
//! - `sending`: any other message on its way;
//! - `sender`: the half, for who sends.

mod at_once;
pub(crate) mod outbox;
pub(crate) mod sender;
pub(crate) mod sending;
