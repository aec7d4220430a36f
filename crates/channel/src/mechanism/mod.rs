//! The mechanisms, a file for each, and the choice of one.
//!
//! From the bottom up:
//!
//! - `contract`: what a mechanism does at each end;
//! - `window`: how much memory goes round between the two ends;
//! - `inline`: in the slot of the message;
//! - `ring`: piece by piece through memory that both ends have;
//! - `staged`: all of it in shared memory;
//! - `pull`: read by the receiver;
//! - `sealed`: built in shared memory, and handed over;
//! - `double`: read and written by both ends at once;
//! - `lease`: copied into memory of the receiver's;
//! - `vmsplice`: pages through a pipe;
//! - `dispatch`: the mechanism of a message, and calls to it;
//! - `choose`: which of them a message takes.

pub(crate) mod choose;
pub(crate) mod contract;
pub(crate) mod dispatch;
pub(crate) mod double;
pub(crate) mod inline;
pub(crate) mod lease;
pub(crate) mod pull;
pub(crate) mod ring;
pub(crate) mod sealed;
pub(crate) mod staged;
pub(crate) mod vmsplice;
pub(crate) mod window;
