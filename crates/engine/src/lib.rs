//! Copies beside the CPU, with one contract over a helper thread, a device and the CPU itself.
//!
//! A program submits an operation (a copy, a fill, a comparison, a CRC-32C, a gather and scatter, a
//! batch of copies), computes, and collects the result. Four forms are sound in Rust:
//!
//! | form | buffers | the compiler and haul ensure |
//! |---|---|---|
//! | [`Queue::scope`] | borrowed | the scope returns, also on panic, only when all have ended |
//! | [`Queue::submit`] | owned: `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>` | the handle hands them back at the end |
//! | [`Queue::submit`] | `&'static [u8]`, `&'static mut [u8]` | as above |
//! | [`Queue::execute`] | borrowed; owned ones are dropped | the call returns when it has ended |
//!
//! ```
//! use haul_engine::{Copy, Queue};
//! let queue = Queue::worker()?;
//! let copy = queue.submit(Copy::new(vec![0; 1 << 20], vec![7; 1 << 20]));
//! let sum: u64 = (0..1000).sum(); // runs while the helper thread copies
//! let (copy, result) = copy.wait();
//! assert_eq!((copy.target[0], result, sum), (7, Ok(()), 499_500));
//! # Ok::<(), haul_engine::Error>(())
//! ```
//!
//! From the bottom up:
//!
//! - `sync`: the atomics of the protocols, the processor's or loom's;
//! - `sys`: system calls;
//! - `place`: the processors for a helper thread;
//! - `crowd`: where a helper thread runs, and what it does without a processor of its own;
//! - `crc`: CRC-32C;
//! - `operation`: what an engine does, as addresses;
//! - `outcome`: how an operation ends, and errors;
//! - `cpu`: every operation, done by the calling thread;
//! - `slots`: the slots of pending operations;
//! - `contract`: what an engine implements;
//! - `ring`: the ring from the callers to the helper thread, and claims of pieces;
//! - `worker`: the helper thread;
//! - [`dsa`]: Intel's Data Streaming Accelerator, and a fake of it;
//! - `buffer`: buffers that an engine can access while the program does not;
//! - `task`: the operations over buffers;
//! - `lists`: the operations over lists of buffers;
//! - `bell`: an event for the end of operations;
//! - `watcher`: looks for ends where an engine reports none;
//! - `series`: operations that follow each other soon;
//! - `settings`: how a queue routes operations;
//! - `inner`: routes operations to an engine or to the CPU, and waits;
//! - `flight`: an operation that an engine has, without its buffers;
//! - `break_even`: from which sizes `auto` uses the helper thread;
//! - `queue`: the front of every engine, and how it is opened;
//! - `pending`: the handle of an operation over owned buffers;
//! - `scope`: operations over borrowed buffers;
//! - `execute`: operations that their caller waits for;
//! - `callbacks`: callbacks on the caller's thread;
//! - `ordered`: operations by address, whose overlaps keep their order.

mod bell;
mod break_even;
mod buffer;
mod callbacks;
mod contract;
mod cpu;
mod crc;
mod crowd;
pub mod dsa;
mod execute;
mod flight;
mod inner;
#[cfg(all(test, loom))]
mod interleavings;
mod lists;
mod operation;
mod ordered;
mod outcome;
mod pending;
mod place;
mod queue;
mod ring;
mod scope;
mod series;
mod settings;
mod slots;
mod sync;
mod sys;
mod task;
mod watcher;
mod worker;

pub use bell::Bell;
pub use break_even::{BREAK_EVEN, BreakEven, break_even, set_break_even};
pub use buffer::{Buffer, Target};
pub use callbacks::Callbacks;
pub use contract::{Engine, Facts, Kind};
pub use crc::crc32c;
pub use haul_copy::Hint;
pub use lists::{Batch, List, Lists};
pub use operation::{Operation, Pair, Region, Request, Verb};
pub use ordered::{Conflict, Ordered, Ticket};
pub use outcome::{Access, Error, Failed, Outcome, Refusal, Trouble, Value};
pub use pending::{Finished, Pending};
pub use queue::{Queue, WAKE_MIN};
pub use scope::{Scope, Scoped};
pub use settings::Settings;
pub use slots::{Index, SLOTS_MAX, Slots};
pub use task::{Compare, Copy, CopyCrc32c, Crc32c, Fill, Task};
pub use worker::WorkerSettings;

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
