//! Copies beside the CPU, with one contract over a helper thread, a device and the CPU itself.
//!
//! From the bottom up:
//!
//! - `sync`: the atomics of the protocols, the processor's or loom's;
//! - `sys`: system calls;
//! - `operation`: what an engine does, as addresses;
//! - `outcome`: how an operation ends, and errors;
//! - `slots`: the slots of pending operations;
//! - `contract`: what an engine implements;
//! - [`dsa`]: Intel's Data Streaming Accelerator, and a fake of it.

mod contract;
pub mod dsa;
mod operation;
mod outcome;
mod slots;
mod sync;
mod sys;

pub use contract::{Engine, Facts, Kind};
pub use haul_copy::Hint;
pub use operation::{Operation, Region, Request, Verb};
pub use outcome::{Access, Error, Failed, Outcome, Refusal, Value};
pub use slots::{Index, SLOTS_MAX, Slots};
