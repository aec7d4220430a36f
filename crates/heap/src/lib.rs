//! A huge-page heap: flat, shared between processes, and safe to die in.
//!
//! # The one principle
//!
//! **Every resource has one state word, in metadata that all sharers see, that names its owner; every
//! transition is one compare-and-swap, or a store by the only owner.** Everything else (counts,
//! bitmaps, the arrays of a thread's cache, cursors) is a hint that can be made again from the state
//! words. So nothing takes a lock, nothing needs a log, and recovery from a death at any instruction
//! is a scan that gives back what the dead one owned.
//!
//! # Modules, lowest first
//!
//! - `sync`: the atomics, or loom's;
//! - `step`: labelled points between shared stores, for tests that kill there;
//! - `word`: the state words;
//! - `class`: the size classes;
//! - `layout`: pages, nodes, and where every table is;
//! - [`fault`]: what goes wrong with a request or a pointer;
//! - `tables`: the metadata as typed tables;
//! - `sys`: system calls, and facts of the machine;
//! - [`error`]: why there is no heap;
//! - [`region`]: the mappings of data and metadata.
#![no_std]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the lower modules are there, what uses them follows"
)]

#[cfg(any(test, loom))]
extern crate std;

mod class;
pub mod error;
pub mod fault;
mod layout;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(feature = "steps"))]
mod step;
#[cfg(feature = "steps")]
pub mod step;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod tables;
mod word;

pub use error::{Error, Name};
pub use fault::{AllocError, Fault, Misuse, Owner};
