//! Moves bulk data on a server for the least cost.
//!
//! ```
//! use haul::{copy::copy, heap::{Heap, Request}};
//! haul::init();
//! let (source, mut target) = ([7_u8; 300], [0_u8; 300]);
//! copy(&mut target, &source);
//! let heap = Heap::builder().limit(1 << 30).build()?;
//! let block = heap.alloc(Request::new(4096).aligned(4096))?;
//! // SAFETY: allocated right above, and not used again.
//! unsafe { heap.free(block) }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the bottom up; a module imports only those above it in this list:
//!
//! - `housekeeper`: the thread that keeps a heap in order;
//! - [`heap`]: the heap of huge pages, with that thread;
//! - `peer`: what any part needs that meets another process;
//! - [`channel`]: bulk transfer between two processes;
//! - [`forward`]: packets forwarded in bursts between ports;
//! - [`telemetry`]: what a running DPDK program says of itself.
//!
//! Two crates stand below this one and are seen through it: the copy functions are in [`copy`],
//! which knows nothing of files; what the machine is ([`sys`]), `haul.toml` ([`tuning`]), files
//! read and written with care ([`file`](mod@file)) and what can go wrong with all of these
//! ([`Error`]) are in `haul-machine`.
//!
//! A Rust program calls [`init`] once, early in `main`, so that the thresholds measured on its
//! machine are in force; without it the defaults for the processor hold. A C program that links
//! `libhaul.so` need not: the library does it as it is loaded.

pub mod channel;
pub mod forward;
mod housekeeper;
mod peer;
pub mod telemetry;

pub use haul_copy as copy;
#[doc(inline)]
pub use haul_machine::{Error, error, file, init, sys, tuning};

/// The heap of `haul-heap`, and the thread that keeps one in order.
pub mod heap {
    pub use crate::housekeeper::{Housekeeper, PAUSE};
    pub use haul_heap::*;
}

/// The example of the README, so that it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of `docs/copy.md`, so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/copy.md")]
struct CopyPage;

/// The examples of `docs/channel.md`, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/channel.md")]
struct ChannelPage;

/// The examples of `docs/heap.md`, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/heap.md")]
struct HeapPage;

/// What is refused without `unsafe`, so that it stays so: each fails for that reason alone.
///
/// A target that a sender which was stopped may still write to when it is the caller's again:
///
/// ```compile_fail,E0133
/// fn receive(channel: &mut haul::channel::Channel, target: &mut [u8]) -> bool {
///     channel.recv_into_exposed(target).is_ok()
/// }
/// ```
///
/// Copies by pointers:
///
/// ```compile_fail,E0133
/// fn copy(copier: &haul::forward::Copier, parts: &[haul::forward::Part]) {
///     copier.copy_batch(parts);
/// }
/// ```
#[cfg(doctest)]
struct Refused;
