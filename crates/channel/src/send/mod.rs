//! The sending half of a channel.
//!
//! From the bottom up:
//!
//! - `outbox`: the state of the half between messages;
//! - `at_once`: the fast path of a small message whose slot is free;
//! - `sending`: any other message in transit;
//! - `sender`: the public interface of the half.

mod at_once;
pub(crate) mod outbox;
pub(crate) mod sender;
pub(crate) mod sending;
