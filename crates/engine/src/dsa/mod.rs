//! Intel's Data Streaming Accelerator (DSA), by its public specification and the kernel's idxd
//! driver, and a fake of it.
//!
//! From the bottom up:
//!
//! - `status`: what a completion record says;
//! - `descriptor`: what a program asks for;
//! - `completion`: the completion record;
//! - `memory`: accesses by system calls, which fail instead of raising a signal;
//! - `instructions`: MOVDIR64B and ENQCMD;
//! - `sysfs`: devices and queues;
//! - `chain`: what lies between a program and a DSA;
//! - [`fake`]: a device of threads;
//! - `portal`: an open queue, and how descriptors get into it;
//! - `engine`: the engine over a queue.

mod status;

mod descriptor;

mod completion;

mod memory;

mod instructions;

mod sysfs;

mod chain;

pub mod fake;

mod portal;

mod engine;

#[cfg(all(test, not(loom), not(miri)))]
mod tests;

pub use chain::{Link, State, Step, chain};
pub use completion::{Completion, RECORD_BYTES, Record};
pub use descriptor::{DESCRIPTOR_BYTES, Descriptor, Opcode, Placement, flag};
pub use engine::{Dsa, Options};
pub use portal::Mechanism;
pub use status::Status;
pub use sysfs::{Device, Mode, Operations, Queue, QueueType, Sysfs};
