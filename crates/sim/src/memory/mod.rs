//! The parts of the memory system, each self-contained; [`crate::system`] connects them.
//!
//! - [`port`]: the interface between the processor and the memory system;
//! - [`cache`]: the lines that a cache holds;
//! - [`mshr`]: the lines under way;
//! - [`bus`]: address and data lines, and the phases of a transaction;
//! - [`dram`]: channels, banks and rows;
//! - [`queue`]: the requests that wait for the channels;
//! - [`trace`]: the stages of each transaction.

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
