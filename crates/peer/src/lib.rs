//! Communication with another process: sockets, descriptors, identity, death and shared memory.
//!
//! `haul-channel` and `haul-forward` use this crate. Its interface is for them alone and may change
//! with any version: a program should depend on `haul`.
//!
//! From the bottom up:
//!
//! - `foreign`: files of another user, and the process that has locked a file;
//! - `fork`: what a fork leaves in the child;
//! - `descriptor`: descriptors that this library keeps;
//! - `error`: errors, to which each user of this crate adds its own text;
//! - `life`: whether another process still has a copy of a value;
//! - `caller`: events that are shared with a peer, signalled without waiting;
//! - `deadline`: time limits;
//! - `closer`: descriptors whose closing a peer may delay;
//! - `received`: descriptors that a peer handed over;
//! - `socket`: the Unix socket: packets, descriptors and their sender;
//! - `in_the_way`: a file at the path where a file or a socket is to be made;
//! - `listening`: the path of a listener;
//! - `users`: the users whose processes may be at the other end;
//! - `process`: the process at the other end: its identity, and whether it lives;
//! - `reach`: reads and writes the memory of another process;
//! - `poller`: the descriptor that an event loop polls;
//! - `memory`: memory files, and the contract under which a peer's file is mapped;
//! - `region`: mapped memory that is shared with a peer;
//! - `guest`: the memory of a virtual machine, mapped under the contract for it.
//!
//! Only this crate makes system calls that concern another process.

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
