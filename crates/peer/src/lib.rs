//! How haul meets another process: sockets, descriptors, identity, death and shared memory.
//!
//! `haul-channel` and `haul-forward` are built from this crate. Its interface is theirs and may
//! change with any version: a program depends on `haul`.
//!
//! From the bottom up:
//!
//! - `foreign`: files of another user, and the process that has locked a file;
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

pub mod caller;
pub mod closer;
pub mod deadline;
pub mod descriptor;
pub mod error;
pub mod foreign;
pub mod fork;
pub mod guest;
pub mod in_the_way;
pub mod life;
pub mod listening;
pub mod memory;
pub mod poller;
pub mod process;
pub mod reach;
pub mod received;
pub mod region;
pub mod socket;
pub mod users;

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
