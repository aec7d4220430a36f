//! The parts of the memory system, each a small machine of its own: the memory system ties them.
//!
//! - [`port`]: what passes between the processor and the memory system;
//! - [`cache`]: which lines a cache holds;
//! - [`mshr`]: the lines on their way;
//! - [`bus`]: address and data lines, and the phases of a transaction;
//! - [`dram`]: channels, banks and rows;
//! - [`queue`]: what waits for the channels;
//! - [`trace`]: what each transaction did when.

pub mod bus;
pub mod cache;
pub mod dram;
pub mod mshr;
pub mod port;
pub mod queue;
pub mod trace;

pub use bus::Bus;
pub use cache::Cache;
pub use dram::Channel;
pub use mshr::Registers;
pub use port::{Access, Completion, Copy, Kind, Passing, Tag};
pub use queue::{Agent, Purpose, Queue, Request};
pub use trace::Trace;
