//! The heap compared with its peers: every heap in a separate process, all interleaved in one
//! run.
//!
//! From the bottom up:
//!
//! - [`peers`]: the heaps, and the locations of their libraries;
//! - [`protocol`]: the messages between a run and its drivers;
//! - `allocator`: a heap as a driver calls it;
//! - `script`: the steps of a replay, as a file between a run and its drivers;
//! - `work`: the tasks of a driver's threads;
//! - [`driver`]: the child process that drives one heap;
//! - `child`: the child process, as its run uses it;
//! - [`mod@test`]: the tests, their tasks and their figures;
//! - [`mod@bench`]: the run;
//! - `emit`: turns the results of a run into records;
//! - [`trace`]: a recorded history of allocations, read from its file;
//! - [`replay`]: a recorded history on every heap;
//! - [`map`]: the contents of a heap.

mod allocator;
pub mod bench;
mod child;
pub mod driver;
mod emit;
pub mod map;
pub mod peers;
pub mod protocol;
pub mod replay;
mod script;
pub mod test;
pub mod trace;
mod work;

pub use bench::{Bench, baseline_first, check_shape};
pub use map::{map_shared, map_trace, operations_until};
pub use peers::{Found, Peer};
pub use protocol::Shape;
pub use replay::Replay;
pub use test::{Extent, Test};
pub use trace::{Part, Trace};
