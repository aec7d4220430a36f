//! What any part needs that meets another process.
//!
//! From the bottom up:
//!
//! - `fork`: what a fork leaves in the child;
//! - `descriptor`: descriptors that this library keeps;
//! - `error`: what can go wrong, for each part to say in its own words;
//! - `life`: whether another process has the same;
//! - `caller`: events that a peer has too, signalled without waiting;
//! - `deadline`: how long something may take;
//! - `closer`: descriptors that a peer may hold up as they are closed;
//! - `received`: descriptors that came from a peer;
//! - `socket`: the Unix socket: packets, descriptors, and who sent them;
//! - `in_the_way`: what stands where a file or a socket was to be made;
//! - `listening`: the path of a listener;
//! - `users`: whose processes may be at the other end;
//! - `process`: the process at the other end: who it is, and whether it lives;
//! - `reach`: memory of another process, read and written;
//! - `poller`: what an event loop polls;
//! - `memory`: memory files, and the contract under which one of a peer's is mapped;
//! - `region`: memory that is shared with a peer, mapped;
//! - `guest`: the memory of a virtual machine, mapped under the contract for it.
//!
//! System calls that concern another process are made here, and nowhere else.

pub(crate) mod caller;
pub(crate) mod closer;
pub(crate) mod deadline;
pub(crate) mod descriptor;
pub(crate) mod error;
pub(crate) mod fork;
pub(crate) mod guest;
pub(crate) mod in_the_way;
pub(crate) mod life;
pub(crate) mod listening;
pub(crate) mod memory;
pub(crate) mod poller;
pub(crate) mod process;
pub(crate) mod reach;
pub(crate) mod received;
pub(crate) mod region;
pub(crate) mod socket;
pub(crate) mod users;
