//! Communication with another process: sockets, descriptors, identity, death and shared memory.
//!
//! `haul-channel` and `haul-forward` use this crate. Its interface is only for these two crates
//! and may change with any version. A program should depend on `haul`.
//!
//! From the bottom up:
//!
//! - `foreign`: files that another user left, and the process that has locked a file;
//! - `fork`: locks and threads that stay valid in a child of fork;
//! - `descriptor`: descriptors that this library keeps, none of which is 0, 1 or 2;
//! - `error`: errors without texts, which each user of this crate adds;
//! - `life`: whether another process still has a copy of a value;
//! - `caller`: signals events that are shared with a peer, without waiting;
//! - `deadline`: time limits;
//! - `closer`: closes descriptors in the background, because a peer may delay a close;
//! - `received`: descriptors that a peer handed over;
//! - `socket`: the Unix socket: packets, descriptors and their sender;
//! - `in_the_way`: describes a file that prevents the creation of a file or a socket;
//! - `listening`: the path of a listener;
//! - `users`: the users whose processes may be at the other end;
//! - `process`: the process at the other end: its identity, and whether it lives;
//! - `reach`: reads and writes the memory of another process;
//! - `poller`: the descriptor that an event loop polls;
//! - `memory`: memory files, and the contract under which a peer's file is mapped;
//! - `region`: mapped memory that is shared with a peer;
//! - `guest`: the memory of a virtual machine, and the contract under which it is mapped.
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

/// Tests the example in the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
