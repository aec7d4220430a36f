//! What both ends of a channel have.
//!
//! From the bottom up:
//!
//! - `names`: the mechanisms by name;
//! - `machine`: facts about this machine;
//! - `error`: what can go wrong;
//! - `remedy`: the text of an error, with its remedy;
//! - `account`: what a transfer took;
//! - `message`: which message of a direction;
//! - `layout`: what stands where in the shared memory;
//! - `settings`: how a channel behaves;
//! - `pace`: how much of the ring a message goes through, and in which pieces;
//! - `checksum`: two sums over the bytes of a message;
//! - `header`: what a message's slot says of it;
//! - `greeting`: what the two ends say as they meet;
//! - `ticks`: a clock that costs next to nothing;
//! - `words`: words that both ends change;
//! - `user`: which process uses a half of this end, after a fork;
//! - `counter`: pieces of a message that either end claims;
//! - `bell`: what an end sleeps on;
//! - `closing`: the end of a channel, told and seen;
//! - `distance`: how far the other end's cache is;
//! - `affinity`: the processors that an end may run on;
//! - `cpu`: the processor that an end ran on last;
//! - `turns`: whether an end gives way to the other one;
//! - `idle`: whether there is a processor for each end;
//! - `handshake`: how the two ends meet;
//! - `link`: socket, shared memory and what came by them;
//! - `lane`: one direction, as one end sees it;
//! - `waiting`: how an end waits for the other one;
//! - `transfer`: a transfer, step by step;
//! - `source`: what is sent.

pub(crate) mod account;
pub(crate) mod affinity;
pub(crate) mod bell;
pub(crate) mod checksum;
pub(crate) mod closing;
pub(crate) mod counter;
pub(crate) mod cpu;
pub(crate) mod distance;
pub(crate) mod error;
pub(crate) mod greeting;
pub(crate) mod handshake;
pub(crate) mod header;
pub(crate) mod idle;
#[cfg(all(test, loom))]
mod interleavings;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod machine;
pub(crate) mod message;
pub(crate) mod names;
pub(crate) mod pace;
mod remedy;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod ticks;
pub(crate) mod transfer;
pub(crate) mod turns;
pub(crate) mod user;
pub(crate) mod waiting;
pub(crate) mod words;
