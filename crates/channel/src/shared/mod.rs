//! What both ends of a channel share: shared memory, its protocols, and how an end waits.
//!
//! From the bottom up:
//!
//! - `names`: the mechanisms by name;
//! - `machine`: facts about this machine;
//! - `error`: the errors of a channel;
//! - `remedy`: the text of an error, with its remedy;
//! - `account`: the cost of a transfer;
//! - `message`: the number of a message in its direction;
//! - `layout`: offsets and sizes in the shared memory;
//! - `settings`: settings of a channel;
//! - `beside`: copies by an engine, beside the CPU;
//! - `pace`: how much of the ring a message uses, and in which pieces;
//! - `checksum`: two sums over the bytes of a message;
//! - `header`: the header in a message's slot;
//! - `greeting`: the packets of the handshake;
//! - `ticks`: a cheap, inexact clock;
//! - `words`: atomic words that two processes share;
//! - `user`: which process uses a half of this end, after a fork;
//! - `counter`: pieces of a message that either end claims;
//! - `bell`: how a sleeping end is woken;
//! - `closing`: how an end publishes that it is closed, and how the other end sees that;
//! - `distance`: how far the other end's cache is;
//! - `affinity`: the processors that an end may run on;
//! - `cpu`: the processor that an end ran on last;
//! - `turns`: whether an end yields its processor to the other end;
//! - `idle`: whether there is a processor for each end;
//! - `handshake`: the handshake of the two ends;
//! - `link`: the socket, the descriptors that arrived through it, and the shared memory;
//! - `lane`: one direction of a channel, as one end sees it;
//! - `waiting`: how an end waits for the other end;
//! - `transfer`: the loop of a transfer, step by step;
//! - `source`: the bytes of a message to send.

pub(crate) mod account;
pub(crate) mod affinity;
pub(crate) mod bell;
pub(crate) mod beside;
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
